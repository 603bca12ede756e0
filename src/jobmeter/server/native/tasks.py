"""``/tasks``: diagnostic tasks; and ``/nodes/{node}/checks``, where agents ask what is wanted of them and answer."""

import msgspec

from jobmeter.access.decide import write_project
from jobmeter.errors import LimitExceededError
from jobmeter.model.series import check_job_id, check_name
from jobmeter.model.stacks import MOST_BYTES, NodeEvidence, is_bounded
from jobmeter.model.task import (
    CHECKS,
    Check,
    CheckStatus,
    DiagnosticTask,
    NewTask,
    NodeAnswer,
    NodeRequest,
    TaskFilter,
    TaskPage,
    TaskState,
    TaskType,
    Verdict,
)
from jobmeter.server.native.arguments import Query
from jobmeter.server.native.endpoint import PROJECT, CallContext, Endpoint, tagged
from jobmeter.server.tasks import MAX_PAGE, create_task, find_task, find_tasks

_MOST_REQUESTS, _MOST_CHECKS, _LONGEST = 8, 64, 4_096


class Answered(msgspec.Struct, frozen=True):
    """The checks that an agent made for a task, or the evidence of a job's ranks that it collected."""

    task: str
    checks: list[Check] = []
    stacks: NodeEvidence | None = None


class AgentReport(msgspec.Struct, frozen=True):
    """An agent's answers; ``cluster`` is that of its node.

    ``job`` is set by ``jobmeter run``: it measures this job alone, in ``project``.
    """

    cluster: str = ""
    project: str = ""
    job: str = ""
    answers: list[Answered] = []


class AgentRequests(msgspec.Struct, frozen=True):
    """What is wanted of the agent now."""

    asks: list[NodeRequest]


def _create(context: CallContext) -> DiagnosticTask:
    """Have nodes, a job, or log lines diagnosed."""
    new_task = context.body(NewTask)
    project = (
        write_project(context.principal, new_task.project) if new_task.project or context.principal.project else None
    )
    return create_task(context.services, msgspec.structs.replace(new_task, project=project), context.scope)


def _list(context: CallContext) -> TaskPage:
    """List diagnostic tasks, the newest first.

    For the next page give `after` the id of the last task.
    """
    given = context.arguments
    question = TaskFilter(
        projects=context.projects,
        types=given.choices("type", TaskType),
        states=given.choices("state", TaskState),
        after=given.text("after"),
        limit=given.integer("limit", 20, 1, MAX_PAGE),
    )
    return find_tasks(context.services, question, context.scope)


def _one(context: CallContext) -> DiagnosticTask:
    """A diagnostic task and what it found."""
    return find_task(context.services, context.path["task"], context.scope)


def _report(context: CallContext) -> AgentRequests:
    """The checks that an agent is to make, and its answers to those before."""
    node, report = check_name(context.path["node"], "node"), context.body(AgentReport)
    if report.cluster:
        check_name(report.cluster, "cluster")
    project, table, now_ms = (
        write_project(context.principal, report.project or None),
        context.services.registry.tasks,
        context.services.clock.now_ms(),
    )
    if report.job:
        check_job_id(report.job)
    for answered in report.answers:
        if len(answered.checks) > _MOST_CHECKS or any(len(one.text) > _LONGEST for one in answered.checks):
            raise LimitExceededError(f"an answer has at most {_MOST_CHECKS} checks of short text", "answers.checks")
        if answered.stacks and not is_bounded(answered.stacks):
            raise LimitExceededError(f"the evidence of a node has at most {MOST_BYTES} bytes", "answers.stacks")
        answer = NodeAnswer(
            node=node,
            cluster=report.cluster,
            time=now_ms,
            verdict=verdict_of(answered.checks),
            checks=answered.checks,
            stacks=answered.stacks,
        )
        kind = TaskType.STACKS if answered.stacks else TaskType.NODE
        table.answer(project, answered.task, answer, kind)
    place = (project, report.cluster, node, now_ms, _MOST_REQUESTS)
    checks = [] if report.job else table.waiting_for(*place)
    stacks = [one for one in table.waiting_for(*place, TaskType.STACKS) if report.job in {"", one.job}]
    asks = [NodeRequest(task.id, list(CHECKS)) for task in checks]
    return AgentRequests(asks + [NodeRequest(task.id, [], task.job) for task in stacks])


def verdict_of(checks: list[Check]) -> Verdict:
    """A fault where a check saw one; healthy where at least one could look and none saw anything."""
    states = {one.status for one in checks}
    if states & {CheckStatus.WARNING, CheckStatus.CRITICAL}:
        return Verdict.FAULT
    return Verdict.HEALTHY if CheckStatus.OK in states else Verdict.UNKNOWN


_TEXT = (
    "`state` is waiting, running, done or interrupted; `verdict` healthy, fault or unknown. A node whose agent did not "
    "answer in time is unknown, with the text `no answer from the agent`."
)
ENDPOINTS = tagged(
    "tasks",
    Endpoint(
        "createTask",
        "POST /tasks",
        "tasks:write",
        _create,
        details=(
            "Of type `node`: the agents of the nodes make their checks when they next ask, and rules look at the "
            "samples, events and lines of the kernels that are stored of the range (by default the last hour). Of "
            "type `job`: every rule looks at the job. Of type `stacks`: what measures the running job collects where "
            "each of its ranks is (stacks, states of processes, reports of NCCL and PyTorch), and the ranks are "
            "compared; a request within 20 s of another one gets the evidence of that one. Of type `logs`: the rules "
            "about logs look at the lines that come along. "
            f"{_TEXT} A task outlives a restart of the server."
        ),
        body=NewTask,
        example={"type": "node", "nodes": ["node-7"]},
        lane="write",
        large=True,
    ),
    Endpoint(
        "listTasks",
        "GET /tasks",
        "jobs:read",
        _list,
        queries=(
            Query("type", "Only these: node, job, logs, stacks.", many=True),
            Query("state", "Only these: waiting, running, done, interrupted.", many=True),
            Query("after", "The id of the last task of the page before."),
            Query("limit", f"Tasks in the answer, 1 to {MAX_PAGE}. Default: 20.", type="integer"),
            PROJECT,
        ),
    ),
    Endpoint("getTask", "GET /tasks/{task}", "jobs:read", _one, details=_TEXT),
    Endpoint(
        "reportChecks",
        "POST /nodes/{node}/checks",
        "ingest:write",
        _report,
        details=(
            f"An agent asks for itself; the checks are {', '.join(CHECKS)}, all of which only read. A request with a "
            "`job` is for the evidence of its ranks. The first answer of a node to a task counts, until the task's "
            "deadline."
        ),
        body=AgentReport,
        example={"cluster": "", "answers": []},
        lane="write",
        large=True,
    ),
)
