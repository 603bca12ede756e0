"""Diagnostic tasks: created, executed, and stored with their findings."""

import logging

from msgspec.structs import replace

from jobmeter.access.decide import EVERYTHING
from jobmeter.access.principal import Scope
from jobmeter.diagnose.report import diagnose
from jobmeter.diagnose.stored import evaluate_lines, evaluate_nodes
from jobmeter.diagnose.thresholds import Thresholds
from jobmeter.errors import ForbiddenError, InvalidRequestError, JobmeterError, LimitExceededError
from jobmeter.model.finding import Severity
from jobmeter.model.job import Node
from jobmeter.model.series import DEFAULT_PROJECT
from jobmeter.model.task import (
    ANSWERS_ASIDE,
    MAX_LOG_BYTES,
    MAX_LOG_LINES,
    MAX_NODES,
    OF_CHECKS,
    DiagnosticTask,
    NewTask,
    NodeAnswer,
    TaskState,
    TaskType,
    Verdict,
    make_task_id,
)
from jobmeter.model.time import DAY, HOUR, SECOND, Clock
from jobmeter.query.execute import Executor
from jobmeter.query.request import HeadQuestion, JobQuestion, JobRef, NodeRecordsQuestion, NodeRef
from jobmeter.query.tasks import DueTasksQuestion, TaskAnswersQuestion
from jobmeter.registry.base import Registry
from jobmeter.server.background import use_request_budget
from jobmeter.server.services import Services
from jobmeter.server.stacks import create_job_task, finish_stacks

_log = logging.getLogger("jobmeter.server")
MOST_ATTEMPTS = 3
"""Attempts at a task that were ended by the server's death before the task is given up."""
TASKS_PER_ROUND = 16
"""Tasks evaluated in one round. Bounded, so that a project with many tasks leaves room for others."""
LONGEST_RANGE = 31 * DAY
_LONGEST_MESSAGE = 2_000


def create_task(services: Services, new_task: NewTask, scope: Scope) -> DiagnosticTask:
    """Create a task. Raises InvalidRequestError, ThrottledError, and NotFoundError for a node or job out of scope."""
    now_ms = services.clock.now_ms()
    end = now_ms if new_task.end is None else new_task.end
    start = end - HOUR if new_task.start is None else new_task.start
    if new_task.type is TaskType.STACKS or (new_task.type is TaskType.PROCESSES and new_task.job):
        return _request_of_job(services, new_task, scope)
    if not 0 <= start < end or end - start > LONGEST_RANGE:
        raise InvalidRequestError("the range must have an end after its start, and at most 31 days", "end")
    project, group, nodes, job = new_task.project or "default", "", [], ""
    if new_task.type in OF_CHECKS:
        found = _nodes(services, new_task, scope)
        project, nodes = found[0].project, list(dict.fromkeys(node.name for node in found))
        groups = {node.resource_group for node in found}
        group = groups.pop() if len(groups) == 1 else ""
    elif new_task.type is TaskType.JOB:
        if not new_task.job:
            raise InvalidRequestError("a task of type job needs a job", "job")
        head = services.executor.run(HeadQuestion(JobRef(new_task.job, new_task.project)), scope)
        project, job, group = head.project, head.id, head.resource_group
    else:
        project = _read_given_logs(new_task, scope)
        nodes = list(dict.fromkeys(new_task.nodes))
    task = DiagnosticTask(
        id=make_task_id(),
        type=new_task.type,
        state=TaskState.WAITING,
        project=project,
        created=now_ms,
        start=start,
        end=end,
        cluster=new_task.cluster,
        nodes=nodes,
        resource_group=group,
        job=job,
        label=new_task.label,
        logs=new_task.logs,
        deadline=now_ms + services.settings.task_seconds * SECOND,
    )
    services.registry.tasks.add(task)
    return task


def _request_of_job(services: Services, new_task: NewTask, scope: Scope) -> DiagnosticTask:
    if not new_task.job:
        raise InvalidRequestError("a task of type stacks names its job", "job")
    if new_task.type is TaskType.PROCESSES and new_task.nodes:
        raise InvalidRequestError("a task of type processes is about nodes or a job: give one of them", "nodes")
    view = services.executor.run(JobQuestion(JobRef(new_task.job, new_task.project)), scope)
    seconds, now_ms = services.settings.task_seconds, services.clock.now_ms()
    return create_job_task(services.executor, services.registry, view, now_ms, seconds, new_task.type)


def _nodes(services: Services, new_task: NewTask, scope: Scope) -> list[Node]:
    names, cluster = list(dict.fromkeys(new_task.nodes)), new_task.cluster or None
    if not 1 <= len(names) <= MAX_NODES:
        raise InvalidRequestError(f"a task of type {new_task.type} needs 1 to {MAX_NODES} nodes", "nodes")
    found = [
        node
        for name in names
        for node in services.executor.run(NodeRecordsQuestion(NodeRef(name, cluster, new_task.project)), scope)
    ]
    if len({node.project for node in found}) > 1:
        raise InvalidRequestError("the nodes belong to several projects: give a project", "project")
    return found


def _read_given_logs(new_task: NewTask, scope: Scope) -> str:
    lines = [line for log in new_task.logs for line in log.lines]
    if not lines:
        raise InvalidRequestError("a task of type logs needs log lines", "logs")
    if len(lines) > MAX_LOG_LINES or sum(map(len, lines)) > MAX_LOG_BYTES:
        raise LimitExceededError(f"logs may have {MAX_LOG_LINES} lines and {MAX_LOG_BYTES} characters", "logs")
    if len(new_task.nodes) > MAX_NODES:
        raise LimitExceededError(f"a task may have at most {MAX_NODES} nodes", "nodes")
    project = new_task.project or (DEFAULT_PROJECT if scope.projects is None else min(scope.projects))
    if scope.grant is not None or scope.job is not None or not scope.allows(project):
        raise ForbiddenError(f"this key may not diagnose log lines for project {project}")
    return project


class Tasks:
    """Background work that executes tasks, alternating between projects.

    A task that a server left unfinished is started again, at most three times. A task about nodes finishes when all
    have answered or its deadline has passed.
    """

    name = "tasks"
    interval = 0.5

    def __init__(self, executor: Executor, registry: Registry, thresholds: Thresholds, clock: Clock) -> None:
        self._executor = executor
        self._registry = registry
        self._thresholds = thresholds
        self._clock = clock

    def round(self) -> None:
        """Start and finish the due tasks."""
        for task in self._executor.run(DueTasksQuestion(TASKS_PER_ROUND), EVERYTHING):
            begun = task if task.looked else self._evaluate(task)
            if begun is not None:
                self._finish(begun)

    def _evaluate(self, task: DiagnosticTask) -> DiagnosticTask | None:
        if task.attempts >= MOST_ATTEMPTS:
            message = f"The server stopped {task.attempts} times while it evaluated the stored data."
            finished = self._clock.now_ms()
            self._registry.tasks.save(replace(task, state=TaskState.INTERRUPTED, message=message, finished=finished))
            return None
        task = replace(task, state=TaskState.RUNNING, attempts=task.attempts + 1)
        self._registry.tasks.save(task)
        try:
            with use_request_budget(self._clock):
                task = self._read_evaluation(task)
        except JobmeterError as error:
            _log.warning("diagnostic task %s failed: %s", task.id, error.message)
            task = replace(
                task, state=TaskState.INTERRUPTED, message=error.message, finished=self._clock.now_ms(), looked=True
            )
        self._registry.tasks.save(task)
        return task if task.state is TaskState.RUNNING else None

    def _read_evaluation(self, task: DiagnosticTask) -> DiagnosticTask:
        now_ms = self._clock.now_ms()
        if task.type in ANSWERS_ASIDE:
            return replace(task, looked=True)
        if task.type is TaskType.LOGS:
            findings = evaluate_lines(task, now_ms, self._thresholds)
            return replace(task, looked=True, findings=findings, logs=[])
        if task.type is TaskType.JOB:
            scope = Scope(frozenset({task.project}))
            made = diagnose(self._executor, JobRef(task.job, task.project), scope, self._clock, self._thresholds)
            return replace(task, looked=True, findings=made.findings)
        evaluation = evaluate_nodes(self._executor, task, now_ms, self._thresholds)
        message = "; ".join(evaluation.failures)[:_LONGEST_MESSAGE]
        return replace(task, looked=True, findings=evaluation.findings, events=evaluation.events, message=message)

    def _finish(self, task: DiagnosticTask) -> None:
        answers: list[NodeAnswer] = []
        now_ms = self._clock.now_ms()
        if task.type is TaskType.STACKS or task.type in OF_CHECKS:
            answers = self._executor.run(TaskAnswersQuestion(task.id), EVERYTHING)
            if now_ms < task.deadline and any(answer.time is None for answer in answers):
                return
            if task.type is TaskType.STACKS:
                finished = finish_stacks(self._executor, self._registry, task, answers, now_ms)
                self._registry.tasks.save(finished)
                return
            answers = [
                replace(answer, text="no answer from the agent") if answer.time is None else answer
                for answer in answers
            ]
        verdict = _verdict(task, answers)
        stored = [] if task.type in ANSWERS_ASIDE else answers
        done = replace(task, state=TaskState.DONE, finished=now_ms, verdict=verdict, answers=stored)
        self._registry.tasks.save(done)


def _verdict(task: DiagnosticTask, answers: list[NodeAnswer]) -> Verdict:
    if any(one.severity is not Severity.INFO for one in task.findings):
        return Verdict.FAULT
    if any(answer.verdict is Verdict.FAULT for answer in answers):
        return Verdict.FAULT
    if task.message:  # some data could not be evaluated
        return Verdict.UNKNOWN
    return Verdict.UNKNOWN if any(answer.verdict is Verdict.UNKNOWN for answer in answers) else Verdict.HEALTHY
