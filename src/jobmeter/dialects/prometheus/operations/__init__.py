"""The operations, one file a subject."""

from jobmeter.dialects.prometheus.operations import write

OPERATIONS = write.OPERATIONS
