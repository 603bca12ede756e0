"""Job records of Slurm jobs, by Slurm's data."""

from collections.abc import Iterator, Sequence

from jobmeter.collect.scheduler.slurm.slurm_job import LIVE, WAITING, Attempt, SlurmJob
from jobmeter.collect.text import shorten_text
from jobmeter.errors import InvalidRequestError
from jobmeter.model.event import Level
from jobmeter.model.job import AllocationSource, JobState
from jobmeter.model.record import MAX_SHORT_TEXT, AllocationRecord, EventRecord, JobRecord, ReplicaRecord, check_record

_STOPPED = frozenset({"CANCELLED", "PREEMPTED", "REVOKED"})
_MEANING = {
    "BOOT_FAIL": "a node did not start",
    "DEADLINE": "it could not end before its deadline",
    "NODE_FAIL": "a node that it ran on failed",
    "OUT_OF_MEMORY": "the kernel killed a process at the job's memory limit",
    "PREEMPTED": "it was preempted by another job",
    "REVOKED": "it runs in another cluster of the federation",
}
_MOST_REPLICAS = 65_536
_OUT_OF_MEMORY = "OUT_OF_MEMORY"


def convert_state(state: str) -> JobState:
    """Convert a state of Slurm (https://slurm.schedmd.com/squeue.html#SECTION_JOB-STATE-CODES)."""
    if state in LIVE:
        return JobState.RUNNING
    if state in WAITING:
        return JobState.QUEUED
    if state == "COMPLETED":
        return JobState.SUCCEEDED
    if not state:
        return JobState.UNKNOWN
    return JobState.STOPPED if state in _STOPPED else JobState.FAILED


def build_records(facts: SlurmJob, cluster: str) -> list[JobRecord]:
    """Return the records of a job. If there are two, the first one reports the start of the first attempt.

    Empty if Slurm's names are illegal here.
    """
    attempts = list(_number_attempts(facts))
    full = _job(facts, cluster, attempts)
    found = [full]
    first = facts.attempts[0]
    if first is not facts.now and first.start is not None:
        start = JobRecord(job_id=full.job_id, state=JobState.RUNNING, created=_ms(first.submit), start=_ms(first.start))
        found.insert(0, start)
    try:
        return [check_record(record) for record in found]
    except InvalidRequestError:
        return []


def _job(facts: SlurmJob, cluster: str, attempts: Sequence[tuple[int, Attempt]]) -> JobRecord:
    now = facts.now
    replicas = [replica for number, attempt in attempts for replica in _replicas(facts, cluster, number, attempt)]
    return JobRecord(
        job_id=str(facts.number),
        name=shorten_text(facts.name) or None,
        type="Slurm",
        state=convert_state(now.state),
        user=shorten_text(facts.user) or None,
        workspace=shorten_text(facts.account) or None,
        resource_group=shorten_text(facts.partition) or None,
        created=_ms(facts.attempts[0].submit),
        start=_ms(now.start),
        end=_ms(now.end) if facts.over else None,
        error=_error(facts) if facts.over else None,
        exit_code=now.exit.status if facts.over and now.exit and now.start is not None else None,
        instance_type=_share(facts, max(len(_nodes_of_ranks(facts, now)), 1)),
        labels=_labels(facts, cluster),
        replicas=list(replicas),
        allocations=_allocations(facts, cluster, attempts[-1][1]) if attempts else [],
    )


def _number_attempts(facts: SlurmJob) -> Iterator[tuple[int, Attempt]]:
    """Yield the attempts that have begun, with their number in SLURM_RESTART_COUNT."""
    begun = [attempt for attempt in facts.attempts if attempt.start is not None]
    last = len(begun) - 1
    if facts.restarts is not None:
        last = facts.restarts - (0 if facts.now.start is not None else 1)
    for back, attempt in enumerate(reversed(begun)):
        if last - back < 0:
            break
        if back == 0 or attempt.steps or attempt.nodes:
            yield last - back, attempt


def _nodes_of_ranks(facts: SlurmJob, attempt: Attempt) -> dict[int, str]:
    """Return the node of each rank of a step, empty if unknown. A job's script is a task of rank 0."""
    nodes: dict[int, str] = {}
    for step in sorted(attempt.steps, key=lambda step: step.tasks, reverse=True):
        for place in range(min(step.tasks, _MOST_REPLICAS - len(nodes))):
            nodes.setdefault(step.first + place, _node(step.nodes, step.tasks, place))
    has_script = facts.component is None or facts.component[1] == 0
    if not attempt.steps and has_script:
        nodes[0] = _node(attempt.nodes[:1], 1, 0)
    return nodes


def _replicas(facts: SlurmJob, cluster: str, number: int, attempt: Attempt) -> Iterator[ReplicaRecord]:
    latest = attempt is facts.now
    over = attempt.end is not None
    state = convert_state(attempt.state)
    if over and not state.outcome:
        state = JobState.STOPPED  # it was requeued
    for rank, node in sorted(_nodes_of_ranks(facts, attempt).items()):
        yield ReplicaRecord(
            name=f"worker-{rank}",
            attempt=number,
            rank=rank,
            cluster=cluster,
            node=node,
            state=state,
            start=_ms(attempt.start),
            end=_ms(attempt.end) if over else None,
            exit_code=attempt.exit.status if over and attempt.exit else None,
            reason=_reason(attempt, latest=latest) if over else "",
        )


def _node(nodes: Sequence[str], tasks: int, place: int) -> str:
    """Return the node of a step's task; empty if unknown. Slurm only gives the number of tasks on each node."""
    if len(nodes) == 1:
        return nodes[0]
    if tasks == len(nodes):
        return nodes[place]
    # The first task is on the first node, whatever the layout of the others.
    return nodes[0] if place == 0 and nodes else ""


def _reason(attempt: Attempt, *, latest: bool) -> str:
    if attempt.state == "COMPLETED":
        wrong = [step for step in attempt.steps if step.state not in {"COMPLETED", "RUNNING", ""}]
        return f"step {wrong[0].id} {wrong[0].state}" if wrong else ""
    return attempt.state if not latest or not attempt.by else f"{attempt.state} by {attempt.by}"


def _error(facts: SlurmJob) -> str:
    """Return Slurm's state at the end and its meaning; empty for a successful job."""
    now = facts.now
    if now.state == "COMPLETED":
        return ""
    if now.state == "TIMEOUT":
        limit = "" if facts.time_limit is None else f" of {facts.time_limit} min"
        return f"TIMEOUT: it exceeded its time limit{limit}"
    if now.state == "CANCELLED":
        return f"CANCELLED by {now.by}" if now.by else "CANCELLED"
    if now.state in _MEANING:
        return f"{now.state}: {_MEANING[now.state]}"
    memory = "".join(f"; step {step} ran out of memory" for step in list_oom_steps(now)[:1])
    if now.exit and now.exit.signal:
        return f"{now.state}: ended by signal {now.exit.signal}{memory}"
    if now.exit and now.exit.code:
        return f"{now.state}: exit status {now.exit.code}{memory}"
    return f"{now.state}: {facts.reason}{memory}" if facts.reason else f"{now.state}{memory}"


def _labels(facts: SlurmJob, cluster: str) -> dict[str, str]:
    now = facts.now
    described = {
        "cluster": cluster,
        "account": facts.account,
        "partition": facts.partition,
        "qos": facts.qos,
        "nodes": ",".join(now.nodes)[:MAX_SHORT_TEXT],
        "slurm.job": facts.label if facts.label != str(facts.number) else "",
        "slurm.state": now.state,
        "slurm.exit_code": f"{now.exit.code}:{now.exit.signal}" if facts.over and now.exit else "",
        "slurm.reason": facts.reason,
        "slurm.requested": facts.requested,
        "slurm.time_limit": "" if facts.time_limit is None else f"{facts.time_limit} min",
        "requested.cpus": _text(facts.cpus),
        "requested.memory": _text(facts.memory),
        "requested.gpus": _text(facts.gpu_count),
    }
    return {name: shorten_text(value) for name, value in described.items() if value}


def _share(facts: SlurmJob, tasks: int) -> dict[str, int | float | str] | None:
    """Return the resources of one task: an even share of the job's request. GPUs only if they divide evenly."""
    share: dict[str, int | float | str] = {}
    if facts.cpus is not None:
        share["cpu"] = facts.cpus / tasks
    if facts.memory is not None:
        share["memory"] = facts.memory // tasks
    if facts.gpu_count and facts.gpu_count % tasks == 0:
        share["gpu_count"] = facts.gpu_count // tasks
        share["gpu_type"] = facts.gpu_type
    return share or None


def _allocations(facts: SlurmJob, cluster: str, attempt: Attempt) -> list[AllocationRecord]:
    """Return the GPUs that Slurm allocated to the job, each for the only task of its node.

    A node with several tasks is left out, because only their environment has the GPU of each task.
    """
    start = _ms(attempt.start)
    nodes = _nodes_of_ranks(facts, attempt)
    if start is None or len(nodes) != len(attempt.nodes):
        return []
    holders = {node: rank for rank, node in nodes.items()}
    return [
        AllocationRecord(
            replica=f"worker-{holders[node]}",
            node=node,
            device=f"gpu{gpu}",
            start=start,
            end=_ms(attempt.end),
            cluster=cluster,
            rank=holders[node],
            source=AllocationSource.SCHEDULER,
        )
        for node, gpus in facts.gpus.items()
        if node in holders
        for gpu in gpus
    ]


def _ms(seconds: int | None) -> int | None:
    return None if seconds is None else seconds * 1000


def _text(value: int | None) -> str:
    return "" if value is None else str(value)


def list_oom_steps(attempt: Attempt) -> list[str]:
    """Return the steps in which the kernel killed a process at the memory limit, in Slurm's order."""
    return [step.id for step in attempt.steps if step.state == _OUT_OF_MEMORY]


def iterate_allocation_events(facts: SlurmJob, cluster: str) -> Iterator[EventRecord]:
    """Yield an event for each attempt: the job got its nodes, on which a prolog runs before its processes."""
    for number, attempt in _number_attempts(facts):
        if attempt.start is not None:
            yield EventRecord(
                time=attempt.start * 1000,
                job=str(facts.number),
                attempt=number,
                cluster=cluster,
                reason="Allocated",
                message="Slurm gave the job its nodes.",
            )


def iterate_job_events(facts: SlurmJob, cluster: str) -> Iterator[EventRecord]:
    """Yield an event for each step that ran out of memory. Its script may continue."""
    for attempt in facts.attempts:
        for step in attempt.steps:
            ended = step.end if step.end is not None else attempt.end
            if step.state != _OUT_OF_MEMORY or ended is None:
                continue
            yield EventRecord(
                time=ended * 1000,
                job=str(facts.number),
                cluster=cluster,
                node=step.nodes[0] if len(step.nodes) == 1 else "",
                level=Level.ERROR,
                reason="OOMKilled",
                message=f"Step {step.id} ran out of memory: the kernel killed a process at the memory limit.",
            )
