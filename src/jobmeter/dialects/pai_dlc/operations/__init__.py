"""One file a subject; ``OPERATIONS`` lists them all."""

from jobmeter.dialects.pai_dlc.operations import (
    events,
    job_metrics,
    jobs,
    logs,
    metrics,
    registration,
    sanity,
    tokens,
)

OPERATIONS = (
    *job_metrics.OPERATIONS,
    *metrics.OPERATIONS,
    *jobs.OPERATIONS,
    *events.OPERATIONS,
    *logs.OPERATIONS,
    *sanity.OPERATIONS,
    *tokens.OPERATIONS,
    *registration.OPERATIONS,
)
