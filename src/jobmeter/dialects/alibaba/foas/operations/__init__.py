"""Operations, one file a subject."""
