"""Runs of a pod. Its containers are restarted in place, and each start is an attempt of the replica."""

from dataclasses import dataclass, replace

from jobmeter.collect.scheduler.kubernetes.objects import ContainerStatus, PodObject, Terminated, convert_time
from jobmeter.model.job import JobState

_PHASES = {
    "Pending": JobState.QUEUED,
    "Running": JobState.RUNNING,
    "Succeeded": JobState.SUCCEEDED,
    "Failed": JobState.FAILED,
    "Unknown": JobState.UNKNOWN,
}
_DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"


@dataclass(frozen=True, slots=True)
class PodRun:
    """Run of a pod's main container, in epoch milliseconds. Missing values are None or empty."""

    state: JobState
    start: int | None = None
    end: int | None = None
    exit_code: int | None = None
    reason: str = ""


def read_runs(pod: PodObject) -> dict[int, PodRun]:
    """Return the runs in the pod's status by number: the current run, and the previous run of each container.

    A run belongs to the main container: the one in the annotation ``kubectl.kubernetes.io/default-container``, else the
    first of the specification. A run that only other containers have is theirs.
    """
    statuses = {status.name: status for status in pod.status.container_statuses or ()}
    names = [container.name for container in pod.spec.containers] or list(statuses)
    main = pod.metadata.find_label(_DEFAULT_CONTAINER)
    ordered = sorted((name for name in names if name in statuses), key=lambda name: name != main)
    found: dict[int, PodRun] = {}
    for name in ordered:
        for number, run in _list_container_runs(statuses[name]).items():
            found.setdefault(number, run)
    latest = max(found, default=0)
    found[latest] = _apply_phase(pod, found.get(latest))
    return found


def _list_container_runs(status: ContainerStatus) -> dict[int, PodRun]:
    number, state, last = status.restart_count, status.state, status.last_state.terminated
    found: dict[int, PodRun] = {}
    if state.running is not None:
        found[number] = PodRun(JobState.RUNNING, convert_time(state.running.started_at))
    elif state.terminated is not None:
        found[number] = _read_terminated(state.terminated)
    if last is not None:
        # A container that waits for its next run still counts as the ended one.
        before = number - 1 if number in found else number
        if before >= 0:
            found[before] = _read_terminated(last)
    return found


def _read_terminated(status: Terminated) -> PodRun:
    failed = status.exit_code != 0 or status.reason == "OOMKilled"
    return PodRun(
        JobState.FAILED if failed else JobState.SUCCEEDED,
        convert_time(status.started_at),
        convert_time(status.finished_at),
        status.exit_code,
        status.reason if failed else "",
    )


def _apply_phase(pod: PodObject, run: PodRun | None) -> PodRun:
    """Complete the latest run by the status of the whole pod (Evicted, NodeLost, Pending)."""
    phase = _PHASES.get(pod.status.phase, JobState.UNKNOWN)
    if run is None:
        end = _read_unready_time(pod) if phase.outcome else None
        return PodRun(phase, None, end, None, pod.status.reason)
    if phase is JobState.FAILED and not run.state.finished:
        return replace(run, state=phase, end=_read_unready_time(pod), reason=pod.status.reason)
    if phase is JobState.FAILED and pod.status.reason:
        return replace(run, state=phase, reason=pod.status.reason)
    return replace(run, state=phase) if phase is JobState.UNKNOWN and not run.state.finished else run


def _read_unready_time(pod: PodObject) -> int | None:
    """Return the time when the pod stopped being ready, for containers without an end."""
    times = {one.type: convert_time(one.last_transition_time) for one in pod.status.conditions or ()}
    return times.get("DisruptionTarget") or times.get("ContainersReady") or times.get("Ready")


def end_deleted_run(run: PodRun, pod: PodObject, *, observed: bool) -> PodRun:
    """Return the latest run of a deleted pod; ``observed``: its deletion was watched."""
    if run.state.finished:
        return run
    if not observed:
        return replace(run, state=JobState.UNKNOWN)
    return replace(run, state=JobState.STOPPED, end=convert_time(pod.metadata.deletion_timestamp), reason="Deleted")
