"""One file a subject; ``OPERATIONS`` lists them all."""

from jobmeter.dialects.pai_studio.operations import (
    events,
    instance_metrics,
    logs,
    node_metrics,
    resource_group,
    training_metrics,
    user_metrics,
)

OPERATIONS = (
    *user_metrics.OPERATIONS,
    *node_metrics.OPERATIONS,
    *resource_group.OPERATIONS,
    *training_metrics.OPERATIONS,
    *instance_metrics.OPERATIONS,
    *events.OPERATIONS,
    *logs.OPERATIONS,
)
