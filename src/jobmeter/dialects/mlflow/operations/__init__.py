"""The operations, one file a subject."""
