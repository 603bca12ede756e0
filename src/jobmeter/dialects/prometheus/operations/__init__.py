"""The operations, one file a subject."""

from jobmeter.dialects.prometheus.operations import metadata, query, read, write

OPERATIONS = (*write.OPERATIONS, *query.OPERATIONS, *metadata.OPERATIONS, *read.OPERATIONS)
