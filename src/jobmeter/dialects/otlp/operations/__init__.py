"""The operations, one file a subject."""

from jobmeter.dialects.otlp.operations import export, telemetry

OPERATIONS = (*export.OPERATIONS, *telemetry.OPERATIONS)
"""All operations."""
