"""CreateDiagnosticTask, ListDiagnosticResults, DescribeDiagnosticResult.

https://www.alibabacloud.com/help/en/pai/developer-reference/api-eflo-controller-2022-12-15-creatediagnostictask
https://www.alibabacloud.com/help/en/pai/developer-reference/api-eflo-controller-2022-12-15-describediagnosticresult
"""

from typing import Any

import msgspec

from jobmeter.access.limit import Per, Rate
from jobmeter.dialects.alibaba.common.operation import Arguments, answer, in_body, operation
from jobmeter.dialects.base import MissingFieldError, Steps, execute
from jobmeter.errors import InvalidRequestError, NotFoundError
from jobmeter.model.event import Event
from jobmeter.model.task import (
    DiagnosticTask,
    GivenLog,
    NewTask,
    NodeAnswer,
    TaskFilter,
    TaskPage,
    TaskState,
    TaskType,
    Verdict,
)
from jobmeter.model.time import MINUTE, SECOND, iso

BY_LOGS = "CheckByAiJobLogs"
DEFAULT_PAGE, MAX_PAGE = 20, 100
_RATE = Rate(100, 100, Per.KEY)
"""The limit of the page "PAI monitoring", which does not say for whom; per user, like the neighbouring operations."""
_STATES = {Verdict.HEALTHY: "Normal", Verdict.FAULT: "Fault", Verdict.UNKNOWN: "Unknown"}
_MOST_SECONDS = 253_402_300_800


class _Log(msgspec.Struct):
    LogContent: str | None = None
    Datetime: str | None = None


class _JobLog(msgspec.Struct):
    AiInstance: str | None = None
    NodeId: str | None = None
    Logs: list[_Log] | None = None


class _LogInfo(msgspec.Struct):
    StartTime: str | int | None = None
    EndTime: str | int | None = None
    AiJobLogs: list[_JobLog] | None = None


@operation(
    "POST /",
    "tasks:write",
    in_body("ClusterId", "The nodes' cluster. Default: nodes of that name in any."),
    in_body("NodeIds", "Comma text: 1 to 256 nodes; needed unless logs come along."),
    in_body("DiagnosticType", f"`{BY_LOGS}`; every other word has the nodes checked."),
    in_body(
        "AiJobLogInfo",
        "JSON text: `{StartTime, EndTime, AiJobLogs: [{NodeId, AiInstance, Logs: [{Datetime, LogContent}]}]}`, "
        "times in seconds, whole minutes. Default: the last hour.",
    ),
    in_body("StartTime", "Seconds, whole minutes, where AiJobLogInfo has none."),
    in_body("EndTime", "Seconds, whole minutes, where AiJobLogInfo has none."),
    rate=_RATE,
)
def create_diagnostic_task(arguments: Arguments) -> Steps:
    """Requests a diagnosis of nodes or log lines: `{DiagnosticId, RequestId}`. See `docs/how-to/diagnose.md`."""
    info = _log_info(arguments)
    label = arguments.text("DiagnosticType")
    start, end = _minute(info.StartTime, arguments, "StartTime"), _minute(info.EndTime, arguments, "EndTime")
    logs = [_given(log) for log in info.AiJobLogs or []]
    kind = TaskType.LOGS if label == BY_LOGS or (not label and logs) else TaskType.NODE
    if kind is TaskType.LOGS and not any(log.lines for log in logs):
        raise MissingFieldError("AiJobLogInfo is mandatory for this diagnostics type", "AiJobLogInfo")
    task = yield from execute(
        NewTask(
            type=kind,
            cluster=arguments.text("ClusterId"),
            nodes=list(arguments.names("NodeIds")),
            start=start,
            end=end,
            logs=logs if kind is TaskType.LOGS else [],
            label=label or (BY_LOGS if kind is TaskType.LOGS else "NodeDiagnostic"),
        )
    )
    return answer({"DiagnosticId": task.id}, arguments)


@operation(
    "POST /",
    "jobs:read",
    in_body("DiagType", "Only tasks that were made with this DiagnosticType."),
    in_body("DiagnosticType", "Another name of DiagType."),
    in_body("DiagnosticId", "Only this task."),
    in_body("ClusterId", "Only tasks that name this cluster."),
    in_body("NodeIds", "Comma text: only tasks about one of these nodes."),
    in_body("ResourceGroupId", "Only tasks whose nodes belong to this resource group."),
    in_body("MaxResults", f"Below 20 it is 20, above {MAX_PAGE} it is {MAX_PAGE}. Default: 20."),
    in_body("NextToken", "That of the page before."),
    rate=_RATE,
)
def list_diagnostic_results(arguments: Arguments) -> Steps:
    """Lists tasks, newest first.

    `{DiagnosticResults: [{DiagId, ClusterId, ClusterName, ResourceId, ServerName, DiagContent, DiagResult, Status,
    CreationTime, FinishedTime}], MaxResults, NextToken, RequestId}`.
    """
    requested = arguments.integer("MaxResults", DEFAULT_PAGE, -(10**9), 10**9)
    size = DEFAULT_PAGE if requested < DEFAULT_PAGE else min(requested, MAX_PAGE)
    kinds = arguments.given("DiagType", "DiagnosticType")
    question = TaskFilter(
        ids=tuple(arguments.given("DiagnosticId")),
        labels=kinds,
        clusters=arguments.given("ClusterId"),
        nodes=frozenset(arguments.names("NodeIds")),
        resource_groups=arguments.given("ResourceGroupId"),
        after=arguments.text("NextToken"),
        limit=size,
    )
    # A task has one type: two different types match no task.
    page = TaskPage([], 0) if len(kinds) > 1 else (yield from execute(question))
    token = page.tasks[-1].id if len(page.tasks) == size else ""
    body = {"DiagnosticResults": [_row(task) for task in page.tasks], "MaxResults": size, "NextToken": token}
    return answer(body, arguments)


@operation("POST /", "jobs:read", in_body("DiagnosticId", "The task.", required=True), rate=_RATE)
def describe_diagnostic_result(arguments: Arguments) -> Steps:
    """Returns one task and its results.

    `{DiagnosticId, DiagnosticType, DiagnosticState, ClusterId, NodeIds, CreatedTime, EndTime, DiagnosticResults,
    RequestId}`. DiagnosticState is Running, Normal, Fault, Unknown (an agent gave no answer) or Interrupted. Results
    are findings, the answer of each node, and events that warn.
    """
    task_id = arguments.required("DiagnosticId")
    page = yield from execute(TaskFilter(ids=(task_id,), limit=1))
    if not page.tasks:
        raise NotFoundError(f"The specified DiagnosticId {task_id[:64]} does not exist.", "task", task_id[:64])
    [task] = page.tasks
    body = {
        "DiagnosticId": task.id,
        "DiagnosticType": task.label or task.type,
        "DiagnosticState": _state(task),
        "ClusterId": task.cluster,
        "NodeIds": task.nodes,
        "CreatedTime": iso(task.created),
        "EndTime": iso(task.end),
        "DiagnosticResults": [
            *({"Kind": "Finding", **msgspec.to_builtins(one)} for one in task.findings),
            *(_node(one) for one in task.answers),
            *(_event(one) for one in task.events),
        ],
    }
    return answer(body, arguments)


def _given(log: _JobLog) -> GivenLog:
    lines = [line for one in log.Logs or [] for line in (one.LogContent or "").splitlines()]
    return GivenLog(instance=log.AiInstance or "", node=log.NodeId or "", lines=lines)


def _log_info(arguments: Arguments) -> _LogInfo:
    name = "AiJobLogInfo"
    try:
        return msgspec.json.decode(arguments.text(name, "{}"), type=_LogInfo)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequestError(f"{name} is not the JSON object that it has to be: {error}", name) from error


def _minute(value: str | int | None, arguments: Arguments, name: str) -> int | None:
    """Return epoch milliseconds of seconds that are a whole minute, as text or number."""
    text = arguments.text(name) if value in {None, ""} else str(value)
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 13 and int(text) < _MOST_SECONDS):
        raise InvalidRequestError(f"{name} {text[:64]!r} is not a time in seconds", name)
    if int(text) * SECOND % MINUTE:
        raise InvalidRequestError(f"{name} {text} is not a whole minute", name)
    return int(text) * SECOND


def _state(task: DiagnosticTask) -> str:
    if task.state is TaskState.INTERRUPTED:
        return "Interrupted"
    return "Running" if task.verdict is None else _STATES[task.verdict]


def _row(task: DiagnosticTask) -> dict[str, str]:
    done = task.state is TaskState.DONE
    return {
        "DiagId": task.id,
        "ClusterId": task.cluster,
        "ClusterName": task.cluster,
        "ResourceId": ",".join(task.nodes),
        "ServerName": ",".join(task.nodes),
        "DiagContent": task.label or task.type,
        "DiagResult": "" if task.finished is None else "Success" if done else "Failed",
        "Status": _state(task),
        "CreationTime": iso(task.created),
        "FinishedTime": "" if task.finished is None else iso(task.finished),
    }


def _node(one: NodeAnswer) -> dict[str, Any]:
    return {
        "Kind": "Node",
        "NodeId": one.node,
        "State": _STATES[one.verdict],
        "Message": one.text,
        "Checks": msgspec.to_builtins(one.checks),
    }


def _event(one: Event) -> dict[str, Any]:
    return {"Kind": "Event", "EventId": one.id, "EventType": one.type, **msgspec.to_builtins(one)}
