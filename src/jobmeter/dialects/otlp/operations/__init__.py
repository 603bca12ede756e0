"""The operations, one file a subject."""

from jobmeter.dialects.otlp.operations import export

OPERATIONS = export.OPERATIONS
"""All of them."""
