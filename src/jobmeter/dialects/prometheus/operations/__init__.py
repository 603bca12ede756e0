"""The operations, one file a subject."""

from jobmeter.dialects.prometheus.operations import metadata, query, write

OPERATIONS = (*write.OPERATIONS, *query.OPERATIONS, *metadata.OPERATIONS)
