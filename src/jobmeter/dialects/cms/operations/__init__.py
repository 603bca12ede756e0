"""One file a subject; ``OPERATIONS`` lists them all."""

from jobmeter.dialects.cms.operations import meta, points

OPERATIONS = (*points.OPERATIONS, *meta.OPERATIONS)
