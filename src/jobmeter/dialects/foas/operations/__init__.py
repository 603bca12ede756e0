"""One file a subject; ``OPERATIONS`` lists them all."""

from jobmeter.dialects.foas.operations import cluster_metrics, instance_metric, instances, jobs

OPERATIONS = (
    *instance_metric.OPERATIONS,
    *cluster_metrics.OPERATIONS,
    *instances.OPERATIONS,
    *jobs.OPERATIONS,
)
