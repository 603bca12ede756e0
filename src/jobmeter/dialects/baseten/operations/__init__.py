"""Operations, one file a subject; ``OPERATIONS`` lists them all."""

from jobmeter.dialects.baseten.operations import checkpoints, jobs, logs, metrics, projects, search

OPERATIONS = (
    *metrics.OPERATIONS,
    *projects.OPERATIONS,
    *search.OPERATIONS,
    *jobs.OPERATIONS,
    *logs.OPERATIONS,
    *checkpoints.OPERATIONS,
)
