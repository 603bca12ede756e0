"""Operations, one file a subject; ``OPERATIONS`` lists them all."""

from jobmeter.dialects.opentsdb.operations import information, last, lookup, put, query, suggest

OPERATIONS = (
    *query.OPERATIONS,
    *last.OPERATIONS,
    *suggest.OPERATIONS,
    *lookup.OPERATIONS,
    *put.OPERATIONS,
    *information.OPERATIONS,
)
