"""The operations, one file a subject."""

from jobmeter.dialects.prometheus.operations import metadata, query, read, rules, write

OPERATIONS = (*write.OPERATIONS, *query.OPERATIONS, *metadata.OPERATIONS, *rules.OPERATIONS, *read.OPERATIONS)
