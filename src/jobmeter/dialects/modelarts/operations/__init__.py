"""Operations, one file a subject; ``OPERATIONS`` lists them all."""

from jobmeter.dialects.modelarts.operations import (
    catalogs,
    events,
    ft_metrics,
    jobs,
    logs,
    metrics,
    projects,
    search,
    stages,
)

OPERATIONS = (
    *metrics.OPERATIONS,
    *ft_metrics.OPERATIONS,
    *search.OPERATIONS,
    *jobs.OPERATIONS,
    *stages.OPERATIONS,
    *events.OPERATIONS,
    *logs.OPERATIONS,
    *catalogs.OPERATIONS,
    *projects.OPERATIONS,
)
