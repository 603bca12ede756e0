"""Default lengths of buckets."""

from jobmeter.model.time import DAY, HOUR, MINUTE, SECOND

STEPS: tuple[int, ...] = (
    SECOND,
    5 * SECOND,
    10 * SECOND,
    15 * SECOND,
    30 * SECOND,
    MINUTE,
    2 * MINUTE,
    5 * MINUTE,
    10 * MINUTE,
    15 * MINUTE,
    30 * MINUTE,
    HOUR,
    2 * HOUR,
    6 * HOUR,
    12 * HOUR,
    DAY,
)
"""Bucket lengths in milliseconds, ascending."""

SUMMARY_BUCKETS = 60
"""Most buckets of a job's summary."""
