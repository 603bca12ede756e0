"""CreateDiagnosticTask, ListDiagnosticResults, DescribeDiagnosticResult.

https://www.alibabacloud.com/help/en/pai/developer-reference/api-eflo-controller-2022-12-15-creatediagnostictask
https://www.alibabacloud.com/help/en/pai/developer-reference/api-eflo-controller-2022-12-15-describediagnosticresult
"""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from jobmeter.access.limit import Per, Rate
from jobmeter.dialects.alibaba.common.operation import AlibabaRequest, JsonText, answer, operation, select_given
from jobmeter.dialects.base import MissingFieldError, Steps, ask
from jobmeter.dialects.base.request import BODY
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
from jobmeter.model.time import MINUTE, SECOND, format_iso

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


@operation("POST /", "tasks:write", rate=_RATE)
class CreateDiagnosticTask(AlibabaRequest, frozen=True, kw_only=True):
    """Requests a diagnosis of nodes or log lines: `{DiagnosticId, RequestId}`. See `docs/how-to/diagnose.md`."""

    cluster_id: Annotated[str, BODY, "The nodes' cluster. Default: nodes of that name in any."] = ""
    node_ids: Annotated[tuple[str, ...], BODY, "Comma text: 1 to 256 nodes; required without AiJobLogInfo."] = ()
    diagnostic_type: Annotated[str, BODY, f"`{BY_LOGS}`; any other word requests a check of the nodes."] = ""
    ai_job_log_info: Annotated[
        _LogInfo,
        BODY,
        "JSON text: `{StartTime, EndTime, AiJobLogs: [{NodeId, AiInstance, Logs: [{Datetime, "
        "LogContent}]}]}`, times in seconds, whole minutes. Default: the last hour.",
        JsonText(_LogInfo, "not the required JSON object", detail=True),
    ] = msgspec.field(default_factory=_LogInfo)
    start_time: Annotated[str, BODY, "Seconds, whole minutes; used if AiJobLogInfo has no StartTime."] = ""
    end_time: Annotated[str, BODY, "Seconds, whole minutes; used if AiJobLogInfo has no EndTime."] = ""

    def _steps(self) -> Steps:
        info, label = self.ai_job_log_info, self.diagnostic_type
        start = _minute(info.StartTime, self.start_time, "StartTime")
        end = _minute(info.EndTime, self.end_time, "EndTime")
        logs = [_read_given_log(log) for log in info.AiJobLogs or []]
        kind = TaskType.LOGS if label == BY_LOGS or (not label and logs) else TaskType.NODE
        if kind is TaskType.LOGS and not any(log.lines for log in logs):
            raise MissingFieldError("AiJobLogInfo is mandatory for this diagnostics type", "AiJobLogInfo")
        task = yield from ask(
            NewTask(
                type=kind,
                cluster=self.cluster_id,
                nodes=list(self.node_ids),
                start=start,
                end=end,
                logs=logs if kind is TaskType.LOGS else [],
                label=label or (BY_LOGS if kind is TaskType.LOGS else "NodeDiagnostic"),
            )
        )
        return answer({"DiagnosticId": task.id}, self)


@operation("POST /", "jobs:read", rate=_RATE)
class ListDiagnosticResults(AlibabaRequest, frozen=True, kw_only=True):
    """Lists tasks, newest first.

    `{DiagnosticResults: [{DiagId, ClusterId, ClusterName, ResourceId, ServerName, DiagContent, DiagResult, Status,
    CreationTime, FinishedTime}], MaxResults, NextToken, RequestId}`.
    """

    diag_type: Annotated[str, BODY, "Only tasks that were created with this DiagnosticType."] = ""
    diagnostic_type: Annotated[str, BODY, "Alias of DiagType."] = ""
    diagnostic_id: Annotated[str, BODY, "Only this task."] = ""
    cluster_id: Annotated[str, BODY, "Only tasks that name this cluster."] = ""
    node_ids: Annotated[tuple[str, ...], BODY, "Comma text: only tasks about one of these nodes."] = ()
    resource_group_id: Annotated[str, BODY, "Only tasks whose nodes belong to this resource group."] = ""
    max_results: Annotated[
        int, BODY, f"A value below 20 counts as 20, above {MAX_PAGE} as {MAX_PAGE}.", Meta(ge=-(10**9), le=10**9)
    ] = DEFAULT_PAGE
    next_token: Annotated[str, BODY, "NextToken of the previous page."] = ""

    def _steps(self) -> Steps:
        size = min(max(self.max_results, DEFAULT_PAGE), MAX_PAGE)
        kinds = select_given(self.diag_type, self.diagnostic_type)
        question = TaskFilter(
            ids=tuple(select_given(self.diagnostic_id)),
            labels=kinds,
            clusters=select_given(self.cluster_id),
            nodes=frozenset(self.node_ids),
            resource_groups=select_given(self.resource_group_id),
            after=self.next_token,
            limit=size,
        )
        # A task has one type: two different types match no task.
        page = TaskPage([], 0) if len(kinds) > 1 else (yield from ask(question))
        token = page.tasks[-1].id if len(page.tasks) == size else ""
        body = {"DiagnosticResults": [_row(task) for task in page.tasks], "MaxResults": size, "NextToken": token}
        return answer(body, self)


@operation("POST /", "jobs:read", rate=_RATE)
class DescribeDiagnosticResult(AlibabaRequest, frozen=True, kw_only=True):
    """Returns one task and its results.

    `{DiagnosticId, DiagnosticType, DiagnosticState, ClusterId, NodeIds, CreatedTime, EndTime, DiagnosticResults,
    RequestId}`. DiagnosticState is Running, Normal, Fault, Unknown (an agent gave no answer) or Interrupted. Results
    are findings, the answer of each node, and events that warn.
    """

    diagnostic_id: Annotated[str, BODY, "The task."]

    def _steps(self) -> Steps:
        page = yield from ask(TaskFilter(ids=(self.diagnostic_id,), limit=1))
        if not page.tasks:
            name = self.diagnostic_id[:64]
            raise NotFoundError(f"The specified DiagnosticId {name} does not exist.", "task", name)
        [task] = page.tasks
        body = {
            "DiagnosticId": task.id,
            "DiagnosticType": task.label or task.type,
            "DiagnosticState": _state(task),
            "ClusterId": task.cluster,
            "NodeIds": task.nodes,
            "CreatedTime": format_iso(task.created),
            "EndTime": format_iso(task.end),
            "DiagnosticResults": [
                *({"Kind": "Finding", **msgspec.to_builtins(one)} for one in task.findings),
                *(_node(one) for one in task.answers),
                *(_event(one) for one in task.events),
            ],
        }
        return answer(body, self)


def _read_given_log(log: _JobLog) -> GivenLog:
    lines = [line for one in log.Logs or [] for line in (one.LogContent or "").splitlines()]
    return GivenLog(instance=log.AiInstance or "", node=log.NodeId or "", lines=lines)


def _minute(value: str | int | None, otherwise: str, name: str) -> int | None:
    """Return the epoch milliseconds of a whole minute, from a text or number of seconds; None for empty texts."""
    text = otherwise if value in {None, ""} else str(value)
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
        "CreationTime": format_iso(task.created),
        "FinishedTime": "" if task.finished is None else format_iso(task.finished),
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
