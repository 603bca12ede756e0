"""Job records of Kubernetes jobs, by the API server's data."""

from collections.abc import Iterator

from jobmeter.collect.scheduler.kubernetes.cluster_state import ClusterJob, ClusterMember
from jobmeter.collect.scheduler.kubernetes.instance_types import find_instance_type, select_newest_pods
from jobmeter.collect.scheduler.kubernetes.kinds import WorkloadStatus, defer_to_pods
from jobmeter.collect.scheduler.kubernetes.objects import Metadata, PodRequests, convert_time
from jobmeter.collect.scheduler.kubernetes.owners import OwnerPresence
from jobmeter.collect.scheduler.kubernetes.runs import PodRun
from jobmeter.collect.text import escape_invalid, shorten_text
from jobmeter.model.event import EventSource
from jobmeter.model.job import JobState
from jobmeter.model.record import MAX_TEXT, EventRecord, JobRecord, ReplicaRecord

_QUEUES = ("kueue.x-k8s.io/queue-name", "volcano.sh/queue-name", "scheduling.volcano.sh/queue-name")
_MOST_LABELS = 32
"""Most labels that a job takes from its owner."""
_MEANING = {
    "OOMKilled": "the kernel killed a process at the container's memory limit",
    "Evicted": "the node ran short of a resource",
    "ContainerCannotRun": "the container could not be started",
    "DeadlineExceeded": "it exceeded its time limit",
}


def build_job_record(job: ClusterJob, cluster: str, user_label: str) -> JobRecord:
    """Build the current record of the job, without its replicas."""
    status = _status(job)
    runs = [run for member in job.members.values() for run in member.runs.values()]
    state = status.state or _state(job, runs)
    over = state.finished
    metadata = _metadata(job)
    return JobRecord(
        job_id=job.job_id,
        project=job.project or None,
        name=shorten_text(job.root.name),
        type=job.root.kind,
        state=state,
        user=shorten_text(metadata.find_label(user_label)) or None if user_label and metadata else None,
        resource_group=shorten_text(metadata.find_label(*_QUEUES)) or None if metadata else None,
        workspace=job.root.namespace or None,
        created=convert_time(metadata.creation_timestamp) if metadata else None,
        start=status.start or min((run.start for run in runs if run.start is not None), default=None),
        end=status.end or max((run.end for run in runs if run.end is not None), default=None) if over else None,
        error=_error(job, status, state) if over else None,
        exit_code=_exit_code(job, state) if over else None,
        instance_type=find_instance_type(job),
        labels=_labels(job, cluster, metadata),
    )


def iterate_replica_records(job: ClusterJob, cluster: str) -> Iterator[ReplicaRecord]:
    """Yield every attempt of every known replica."""
    for member in job.members.values():
        place = member.place
        # Agents number a pod's runs from its first attempt, which is unknown for a pod older than the watch.
        for number, run in sorted({0: PodRun(JobState.UNKNOWN), **member.runs}.items()):
            yield ReplicaRecord(
                name=place.replica,
                attempt=place.first + number,
                rank=place.rank,
                cluster=cluster,
                node=member.pod.spec.node_name,
                pod_id=member.node_uid,
                pod=member.pod.metadata.name,
                state=run.state,
                start=run.start,
                end=run.end,
                exit_code=run.exit_code,
                reason=shorten_text(run.reason),
            )


def iterate_scheduled_events(job: ClusterJob, cluster: str) -> Iterator[tuple[str, EventRecord]]:
    """Yield the uid of each pod with a node, and the event that the scheduler chose the node."""
    for uid, member in job.members.items():
        times = {one.type: one for one in member.pod.status.conditions or () if one.status == "True"}
        condition = times.get("PodScheduled")
        moment = convert_time(condition.last_transition_time) if condition else None
        if moment is not None:
            yield (
                uid,
                EventRecord(
                    time=moment,
                    project=job.project,
                    job=job.job_id,
                    replica=member.place.replica,
                    attempt=member.place.first,
                    cluster=cluster,
                    node=member.pod.spec.node_name,
                    source=EventSource.REPLICA,
                    reason="Scheduled",
                    message="Kubernetes gave its pod a node.",
                ),
            )


def _metadata(job: ClusterJob) -> Metadata | None:
    """Return the metadata of the owner, else of the first pod."""
    if job.owner is not None:
        return job.owner.workload.metadata
    return next((member.pod.metadata for member in job.members.values()), None)


def _status(job: ClusterJob) -> WorkloadStatus:
    """Return the status of the owner: stopped if it was deleted before its end."""
    owner = job.owner
    if owner is None:
        return WorkloadStatus()
    status = owner.kind.read_status(owner.workload)
    if owner.presence is OwnerPresence.THERE or (status.state is not None and status.state.finished):
        return status
    if owner.presence is OwnerPresence.MISSING:
        return WorkloadStatus(JobState.UNKNOWN, status.start)
    end = convert_time(owner.workload.metadata.deletion_timestamp) or owner.deleted_ms
    return WorkloadStatus(JobState.STOPPED, status.start, end, "Deleted")


def _state(job: ClusterJob, runs: list[PodRun]) -> JobState:
    """Return the state of a job by its pods, if the owner has none."""
    latest = [member.runs[max(member.runs)] for member in job.members.values() if member.runs]
    began = any(run.start is not None for run in runs)
    if job.owner is not None and job.owner.kind.read_status is not defer_to_pods:
        return JobState.RUNNING if began else JobState.QUEUED  # its status reports the end
    states = {run.state for run in latest}
    if JobState.RUNNING in states:
        return JobState.RUNNING
    if JobState.QUEUED in states or not states:
        return JobState.RUNNING if began and states else JobState.QUEUED
    if job.root.kind != "Pod" and any(member.presence is OwnerPresence.THERE for member in job.members.values()):
        return JobState.RUNNING  # its controller replaces pods while it exists
    if job.root.kind == "Pod" and _starts_again(job):
        return JobState.RUNNING
    order = (JobState.FAILED, JobState.UNKNOWN, JobState.STOPPED)
    return next((state for state in order if state in states), JobState.SUCCEEDED)


def _starts_again(job: ClusterJob) -> bool:
    """Return True if the pod is between two runs: its phase is Running while a container is to be restarted."""
    return any(
        member.presence is OwnerPresence.THERE and member.pod.status.phase == "Running"
        for member in job.members.values()
    )


def _find_last_failure(job: ClusterJob) -> tuple[ClusterMember, PodRun] | None:
    """Return the run that failed last."""
    found = [
        (member, run) for member in job.members.values() for run in member.runs.values() if run.state is JobState.FAILED
    ]
    return max(found, key=lambda one: one[1].end or 0, default=None)


def _error(job: ClusterJob, status: WorkloadStatus, state: JobState) -> str:
    """Return the reason of a failure; empty for a successful job."""
    if state is JobState.SUCCEEDED:
        return ""
    said = ": ".join(filter(None, (status.reason, status.message)))
    failed = _find_last_failure(job) if state is JobState.FAILED else None
    if failed is None:
        return escape_invalid(said or ("Deleted" if state is JobState.STOPPED else ""))[:MAX_TEXT]
    member, run = failed
    meaning = member.pod.status.message if run.reason == member.pod.status.reason else ""
    if not meaning:
        meaning = _MEANING.get(run.reason) or ("" if run.exit_code is None else f"exit status {run.exit_code}")
    cause = f"{run.reason or 'Error'}: {member.place.replica}: {meaning}".removesuffix(": ")
    return escape_invalid(f"{cause} ({said})" if said else cause)[:MAX_TEXT]


def _exit_code(job: ClusterJob, state: JobState) -> int | None:
    if state is JobState.SUCCEEDED:
        return 0 if job.members else None
    failed = _find_last_failure(job) if state is JobState.FAILED else None
    return failed[1].exit_code if failed else None


def _labels(job: ClusterJob, cluster: str, metadata: Metadata | None) -> dict[str, str]:
    wanted = [PodRequests(member.pod.spec.containers) for member in select_newest_pods(job)]
    cpus = [one.cpu for one in wanted if one.cpu is not None]
    memory = [one.memory for one in wanted if one.memory is not None]
    devices = [sum(one.devices.values()) for one in wanted if one.devices]
    own = {
        "cluster": cluster,
        "namespace": job.root.namespace,
        "kubernetes.kind": job.root.kind,
        "kubernetes.uid": job.root.uid,
        "requested.cpus": f"{sum(cpus):g}" if cpus else "",
        "requested.memory": str(sum(memory)) if memory else "",
        "requested.gpus": str(sum(devices)) if devices else "",
    }
    theirs = sorted((metadata.labels if metadata and metadata.labels else {}).items())[:_MOST_LABELS]
    return {name: shorten_text(value) for name, value in {**dict(theirs), **own}.items() if value}
