"""Maps ModelArts' words for metrics, phases and fields to ours."""

from collections.abc import Mapping

from jobmeter.dialects.base import clamp_negative, round_digits
from jobmeter.model.catalog import map_dialect_names
from jobmeter.model.job import JobState

NAME = "modelarts"

METRICS = map_dialect_names(NAME)
"""Our metric of each ModelArts name, in the order of an answer."""

PHASES: Mapping[JobState, tuple[str, str]] = {
    JobState.QUEUED: ("Pending", "Queuing"),
    JobState.RUNNING: ("Running", "Running"),
    JobState.SUCCEEDED: ("Completed", "Completed"),
    JobState.FAILED: ("Failed", "Failed"),
    JobState.STOPPED: ("Terminated", "Terminated"),
    JobState.UNKNOWN: ("Abnormal", "Unknown"),
}
"""The phase and the secondary phase of each state."""
LOST_PHASE = "Lost"
"""The secondary phase of a job that failed because its run was lost."""

ALL_PHASES = ("Creating", "Pending", "Running", "Failed", "Completed", "Terminating", "Terminated", "Abnormal")
"""Every phase of ModelArts. Jobs here only have phases of ``PHASES``."""

KINDS = (
    "job",
    "hetero_job",
    "autosearch_job",
    "edge_job",
    "mrs_job",
    "diag_job",
    "visualization_job",
    "federated_pool_job",
)

FIELDS: Mapping[str, str] = {
    "job": "training_job_id",
    "job_id": "training_job_id",
    "start": "start_time",
    "end": "end_time",
    "range": "start_time",
    "project": "project_id",
}
"""ModelArts' names of the fields in our errors."""


def convert_percent(value: float) -> float | int:
    """Convert a ratio to percent, 0 to 100, to 12 significant digits; whole numbers have no fraction in their JSON.

    Values below 0 or above 1 (a burst over the limit, the noise of an exporter) are clamped. Every metric of the page
    is a usage rate, and -1 means that there are no samples.
    """
    scaled = round_digits(min(clamp_negative(value), 1.0) * 100.0)
    return int(scaled) if scaled.is_integer() else scaled
