"""``/tasks``: diagnostic tasks; ``/nodes/{node}/checks``: requests to agents, and their answers."""

from functools import partial

import msgspec

from jobmeter.access.decide import write_project
from jobmeter.errors import LimitExceededError
from jobmeter.model.series import MAX_NAME, check_job_id, check_name
from jobmeter.model.stacks import MOST_BYTES, NodeEvidence, is_bounded
from jobmeter.model.task import (
    CHECKS,
    MOST_PROCESSES,
    OF_CHECKS,
    CheckStatus,
    DiagnosticTask,
    NewTask,
    NodeAnswer,
    NodeRequest,
    TaskCheck,
    TaskFilter,
    TaskPage,
    TaskState,
    TaskType,
    Verdict,
)
from jobmeter.query.tasks import MAX_PAGE, NodeTasksQuestion, TaskQuestion
from jobmeter.server.native.arguments import QueryArguments
from jobmeter.server.native.endpoint import PROJECT, CallContext, Endpoint

_MOST_REQUESTS, _MOST_CHECKS, _LONGEST = 8, 64, 4_096


class Answered(msgspec.Struct, frozen=True):
    """Results of an agent's checks for a task, or its evidence of a job's ranks."""

    task: str
    checks: list[TaskCheck] = []
    stacks: NodeEvidence | None = None


class AgentReport(msgspec.Struct, frozen=True):
    """Answers of an agent; ``cluster`` is the cluster of its node.

    ``jobmeter run`` sets ``job``: it measures this job alone, in ``project``.
    """

    cluster: str = ""
    project: str = ""
    job: str = ""
    answers: list[Answered] = []


class AgentRequests(msgspec.Struct, frozen=True):
    """Checks that the agent should make now."""

    asks: list[NodeRequest]


HEADING = "tasks"
_TEXT = (
    "`state` is waiting, running, done or interrupted; `verdict` healthy, fault or unknown. A node whose agent did not "
    "answer in time is unknown, with the text `no answer from the agent`."
)


@Endpoint(
    "createTask",
    "POST /tasks",
    "tasks:write",
    details="Type `node`: the agents of the nodes run their checks at their next request, and rules evaluate the "
    "stored samples, events and kernel log lines of the range (default: the last hour). "
    "Type `job`: every rule evaluates the job. Type `stacks`: the agents that measure the running job collect "
    "where each of its ranks is (stacks, states of processes, reports of NCCL and PyTorch), and the ranks are "
    "compared; a request within 20 s of another one gets the evidence of that one. Type `processes`: the "
    "agents of the nodes, or of the running job, rank the processes by processor time and storage traffic "
    "within a second and by memory; the answers have the first ten of each. Type `logs`: the rules about logs "
    "evaluate the lines given along. "
    f"{_TEXT} A task outlives a restart of the server.",
    body=NewTask,
    example={"type": "node", "nodes": ["node-7"]},
    lane="write",
    large=True,
)
def _create(context: CallContext) -> DiagnosticTask:
    """Start a diagnosis of nodes, a job, or log lines."""
    return context.ask(context.decode_body(NewTask))


@Endpoint(
    "listTasks",
    "GET /tasks",
    "jobs:read",
    queries=(
        QueryArguments("type", "Only these: node, job, logs, stacks, processes.", many=True),
        QueryArguments("state", "Only these: waiting, running, done, interrupted.", many=True),
        QueryArguments("after", "The id of the previous page's last task."),
        QueryArguments("limit", f"Tasks in the answer, 1 to {MAX_PAGE}. Default: 20.", type="integer"),
        PROJECT,
    ),
)
def _list(context: CallContext) -> TaskPage:
    """List diagnostic tasks, newest first.

    For the next page give `after` the id of the last task.
    """
    given = context.arguments
    question = TaskFilter(
        projects=context.projects,
        types=given.read_choices("type", TaskType),
        states=given.read_choices("state", TaskState),
        after=given.read_text("after"),
        limit=given.read_integer("limit", 20, 1, MAX_PAGE),
    )
    return context.ask(question)


@Endpoint("getTask", "GET /tasks/{task}", "jobs:read", details=_TEXT)
def _show_task(context: CallContext) -> DiagnosticTask:
    """Show a diagnostic task and its findings."""
    return context.ask(TaskQuestion(context.path["task"]))


@Endpoint(
    "reportChecks",
    "POST /nodes/{node}/checks",
    "ingest:write",
    details=f"Agents call this operation. All checks only read: {', '.join(CHECKS)}. A request with a `job` asks for "
    "evidence about the ranks of the job, or with `checks` for the check of its processes. The first answer of "
    "a node to a task before the deadline counts.",
    body=AgentReport,
    example={"cluster": "", "answers": []},
    lane="write",
    large=True,
)
def _report(context: CallContext) -> AgentRequests:
    """Deliver an agent's results of checks, and return the checks to run next."""
    node, report = check_name(context.path["node"], "node"), context.decode_body(AgentReport)
    if report.cluster:
        check_name(report.cluster, "cluster")
    project = write_project(context.principal, report.project or None)
    services, now_ms = context.services, context.services.clock.now_ms()
    if report.job:
        check_job_id(report.job)
    for answered in report.answers:
        if len(answered.checks) > _MOST_CHECKS or not all(map(_is_check_bounded, answered.checks)):
            raise LimitExceededError(
                f"an answer has at most {_MOST_CHECKS} checks of short text, with {MOST_PROCESSES} processes each",
                "answers.checks",
            )
        if answered.stacks and not is_bounded(answered.stacks):
            raise LimitExceededError(f"the evidence of a node has at most {MOST_BYTES} bytes", "answers.stacks")
        answer = NodeAnswer(
            node=node,
            cluster=report.cluster,
            time=now_ms,
            verdict=combine_checks(answered.checks),
            checks=answered.checks,
            stacks=answered.stacks,
        )
        kinds = {TaskType.STACKS} if answered.stacks else OF_CHECKS
        services.registry.tasks.answer(project, answered.task, answer, kinds)
    waiting = partial(NodeTasksQuestion, project=project, cluster=report.cluster, node=node, limit=_MOST_REQUESTS)
    checks = [] if report.job else context.ask(waiting(type=TaskType.NODE))
    asks = [NodeRequest(task.id, list(CHECKS)) for task in checks]
    for kind, names in ((TaskType.STACKS, []), (TaskType.PROCESSES, ["processes"])):
        tasks = context.ask(waiting(type=kind))
        asks += [NodeRequest(task.id, names, task.job) for task in tasks if report.job in {"", task.job}]
    return AgentRequests(asks)


def _is_check_bounded(check: TaskCheck) -> bool:
    texts = ((one.name, one.job, one.replica) for one in check.processes)
    is_short = len(check.text) <= _LONGEST and all(len(text) <= MAX_NAME for some in texts for text in some)
    return is_short and len(check.processes) <= MOST_PROCESSES


def combine_checks(checks: list[TaskCheck]) -> Verdict:
    """Combine checks: fault if any found one; healthy if at least one worked and none found a fault; else unknown."""
    states = {one.status for one in checks}
    if states & {CheckStatus.WARNING, CheckStatus.CRITICAL}:
        return Verdict.FAULT
    return Verdict.HEALTHY if CheckStatus.OK in states else Verdict.UNKNOWN
