"""PAI-DLC's states of jobs and pods, and ours."""

from collections.abc import Mapping

from jobmeter.dialects.alibaba.common.statuses import Statuses
from jobmeter.dialects.alibaba.pai_dlc.requests import NAME
from jobmeter.model.job import Job, JobState, Replica

STATUSES: Mapping[str, JobState] = {
    "Creating": JobState.QUEUED,
    "Queuing": JobState.QUEUED,
    "Bidding": JobState.QUEUED,
    "EnvPreparing": JobState.QUEUED,
    "SanityChecking": JobState.QUEUED,
    "Running": JobState.RUNNING,
    "Restarting": JobState.RUNNING,
    "Stopping": JobState.RUNNING,
    "SucceededReserving": JobState.SUCCEEDED,
    "FailedReserving": JobState.FAILED,
    "Succeeded": JobState.SUCCEEDED,
    "Failed": JobState.FAILED,
    "Stopped": JobState.STOPPED,
}
"""Our state of each of their words."""
WORDS: Mapping[JobState, str] = {
    JobState.QUEUED: "Queuing",
    JobState.RUNNING: "Running",
    JobState.SUCCEEDED: "Succeeded",
    JobState.FAILED: "Failed",
    JobState.STOPPED: "Stopped",
    # They have three final states: this one means neither success nor failure.
    JobState.UNKNOWN: "Stopped",
}
"""Their default word for each of our states."""
STATUS = Statuses(dialect=NAME, meanings=STATUSES, words=WORDS)
"""Converts states of jobs to their words, and their words to filters of jobs."""
REASONS: Mapping[JobState, tuple[str, str]] = {
    JobState.QUEUED: ("JobEnqueued", "Job is waiting to run."),
    JobState.RUNNING: ("JobRunning", "Job is running."),
    JobState.SUCCEEDED: ("JobSucceeded", "Job has succeeded."),
    JobState.FAILED: ("JobFailed", "Job has failed."),
    JobState.STOPPED: ("JobStopped", "Job was stopped."),
    JobState.UNKNOWN: ("JobUnknown", "Nobody saw how the job ended."),
}
"""ReasonCode and ReasonMessage of each state, for a job whose record has none."""
_PODS = {
    JobState.QUEUED: "Pending",
    JobState.RUNNING: "Running",
    JobState.SUCCEEDED: "Succeeded",
    # The vendor's pods have no such state; the pod of a stopped job ended without success.
    JobState.STOPPED: "Failed",
    JobState.FAILED: "Failed",
    JobState.UNKNOWN: "Unknown",
}


def find_pod_status(replica: Replica, job: Job) -> str:
    """Return the pod's own state, else the state that follows from its job's state and its times."""
    if replica.state is not None and (replica.state.finished or not job.state.finished):
        return _PODS[replica.state]
    if replica.end is not None and not job.state.finished:
        return "Unknown"
    if job.state is JobState.RUNNING and replica.start is None:
        return "Pending"
    return _PODS[job.state]
