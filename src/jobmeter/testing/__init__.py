"""Contract tests that every engine, dialect and collector inherits."""
