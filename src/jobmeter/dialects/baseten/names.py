"""Baseten's names for metrics, states and fields, and ours."""

from collections.abc import Mapping

from jobmeter.model.catalog import map_dialect_names
from jobmeter.model.job import JobState

NAME = "baseten"

METRICS: Mapping[str, str] = {name: metric.name for name, metric in map_dialect_names(NAME).items()}
"""Our metric for each of Baseten's names. A dot separates the name of an object from the name of its member."""
CACHE_METRICS = tuple(metric for name, metric in METRICS.items() if name.startswith("cache."))
"""Metrics that are reported for the whole job."""
NODE_METRICS = tuple(metric for metric in METRICS.values() if metric not in CACHE_METRICS)
"""Metrics that are reported for each node and its GPUs."""

STATUSES: Mapping[str, JobState] = {
    "TRAINING_JOB_PENDING": JobState.QUEUED,
    "TRAINING_JOB_CREATED": JobState.QUEUED,
    "TRAINING_JOB_QUEUED": JobState.QUEUED,
    "TRAINING_JOB_DEPLOYING": JobState.QUEUED,
    "TRAINING_JOB_RUNNING": JobState.RUNNING,
    "TRAINING_JOB_COMPLETED": JobState.SUCCEEDED,
    "TRAINING_JOB_FAILED": JobState.FAILED,
    "TRAINING_JOB_DEPLOY_FAILED": JobState.FAILED,
    "TRAINING_JOB_STOPPED": JobState.STOPPED,
}
"""Our state for each of Baseten's statuses."""
DEFAULT_STATUS: Mapping[JobState, str] = {
    **{state: status for status, state in reversed(tuple(STATUSES.items()))},
    # They have no status for an unknown end: this one means neither success nor failure.
    JobState.UNKNOWN: "TRAINING_JOB_STOPPED",
}
"""The default status of each state: its first one in ``STATUSES``."""
STATUS_KEY = "current_status"
"""The key of the finer status in ``Job.extra["baseten"]``."""

FIELDS: Mapping[str, str] = {
    "job": "training_job_id",
    "project": "training_project_id",
    "start": "start_epoch_millis",
    "end": "end_epoch_millis",
    "step": "step_seconds",
    "range": "start_epoch_millis",
}
"""Baseten's names of the fields in our errors."""
