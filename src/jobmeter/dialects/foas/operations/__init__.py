"""One file a subject."""
