"""Requests to the agents of a running job, and the events that a comparison of its ranks makes."""

from msgspec.structs import replace

from jobmeter.access.principal import Scope
from jobmeter.diagnose.stacks import StackComparison, compare
from jobmeter.errors import InvalidRequestError, NotFoundError
from jobmeter.model.event import STACK_EVIDENCE, EventSource, Level
from jobmeter.model.job import JobView
from jobmeter.model.record import EventRecord, Records
from jobmeter.model.task import DiagnosticTask, NodeAnswer, TaskFilter, TaskState, TaskType, Verdict, make_task_id
from jobmeter.model.time import SECOND
from jobmeter.query.execute import Executor
from jobmeter.query.request import JobQuestion, JobRef
from jobmeter.registry.base import Registry

MOST_NODES = 1_024
"""Nodes of a job whose agents are requested."""
REPEAT_MS = 20 * SECOND
"""Greatest age of evidence that a further request gets instead of a new collection."""


def create_job_task(
    executor: Executor,
    registry: Registry,
    view: JobView,
    now_ms: int,
    seconds: int,
    kind: TaskType = TaskType.STACKS,
) -> DiagnosticTask:
    """Create a task for the agents that measure a job, or return the task of this type of the last 20 s.

    Raises InvalidRequestError for a job that does not run, or on no known node, and ThrottledError.
    """
    job = view.job
    if job.state.finished:
        raise InvalidRequestError(f"job {job.id} does not run: a task of type {kind} needs running processes", "job")
    last = {replica.name: replica for replica in sorted(view.replicas, key=lambda one: one.attempt)}
    living = [one for one in last.values() if one.node and one.end is None]
    if not living:
        raise InvalidRequestError(f"no node is known on which job {job.id} runs", "job")
    scope, kinds = Scope(frozenset({job.project})), frozenset({kind})
    recent = executor.run(TaskFilter(types=kinds, job=job.id, limit=1), scope).tasks
    if recent and now_ms - recent[0].created < REPEAT_MS:
        return recent[0]
    clusters = {one.cluster for one in living}
    task = DiagnosticTask(
        id=make_task_id(),
        type=kind,
        state=TaskState.WAITING,
        project=job.project,
        created=now_ms,
        start=now_ms - 1,
        end=now_ms,
        cluster=clusters.pop() if len(clusters) == 1 else "",
        nodes=list(dict.fromkeys(one.node for one in living))[:MOST_NODES],
        resource_group=job.resource_group,
        job=job.id,
        deadline=now_ms + seconds * SECOND,
    )
    registry.tasks.add(task)
    return task


def finish_stacks(
    executor: Executor, registry: Registry, task: DiagnosticTask, answers: list[NodeAnswer], now_ms: int
) -> DiagnosticTask:
    """Return the finished task with the result of the comparison, and record the result as events of the job.

    The evidence itself stays with the answers.
    """
    try:
        view = executor.run(JobQuestion(JobRef(task.job, task.project)), Scope(frozenset({task.project})))
    except NotFoundError:
        return replace(task, state=TaskState.INTERRUPTED, message="The job was deleted.", finished=now_ms)
    result = compare(view, answers)
    has_evidence = any(one.stacks for one in answers)
    if has_evidence:
        registry.record(task.project, Records(events=_events(task, result, now_ms)), now_ms)
    verdict = Verdict.FAULT if result.named else Verdict.UNKNOWN
    message = "\n".join([result.sentence, *result.notes])
    return replace(task, state=TaskState.DONE, finished=now_ms, verdict=verdict, message=message)


def _events(task: DiagnosticTask, result: StackComparison, now_ms: int) -> list[EventRecord]:
    """Return an event about the job, and one about each rank that the others wait for, all of one time.

    The event about a rank that may be slow instead of stuck has level info.
    """
    level = Level.WARNING if result.named else Level.INFO
    common = EventRecord(time=now_ms, project=task.project, job=task.job, level=level, reason=STACK_EVIDENCE)
    named = [
        replace(
            common,
            source=EventSource.REPLICA,
            replica=one.replica,
            attempt=one.attempt,
            level=Level.INFO if one.may_work else Level.WARNING,
            message=one.text,
        )
        for one in result.named[:16]
    ]
    return [replace(common, source=EventSource.JOB, message=result.sentence), *named]
