"""``/nodes/{node}/logs``: the system log of a node."""

from functools import partial
from typing import Any

import msgspec

from jobmeter.access.decide import write_project
from jobmeter.errors import InvalidRequestError, NotFoundError
from jobmeter.model.line_level import find_level
from jobmeter.model.log import LogLine
from jobmeter.model.record import NodeRecord, Records
from jobmeter.model.series import check_name
from jobmeter.model.syslog import (
    FACILITIES,
    SEVERITIES,
    WORDS,
    convert_severity,
    parse_facility,
    parse_priority,
    parse_severity_word,
)
from jobmeter.model.time import NS_PER_MS
from jobmeter.query.request import NodeRecordsQuestion, NodeRef
from jobmeter.server.native.arguments import QueryArguments
from jobmeter.server.native.endpoint import PROJECT, CallContext, Endpoint, Stream, make_node_ref
from jobmeter.server.native.logs import (
    PAGE,
    SEARCH,
    LogLineBody,
    Pushed,
    answer_lines,
    build_question,
    choose_moment,
    make_line_body,
    read_pushed_lines,
    store_lines,
)


class NodeLogList(msgspec.Struct, frozen=True):
    """A page of lines. ``total`` and ``total_bytes`` cover all matches; null without ``count=true``."""

    node: str
    lines: list[LogLineBody]
    total: int | None
    total_bytes: int | None


HEADING = "logs"
STREAM = QueryArguments("stream", "Only this stream: kernel, journal, or `file:` with a path.")
_LINE: dict[str, Any] = {"time": "2026-11-20T15:00:00.25Z", "facility": "kern", "severity": "err"}


@Endpoint(
    "getNodeLogs",
    "GET /nodes/{node}/logs",
    "nodes:read",
    answer=NodeLogList,
    queries=(STREAM, *SEARCH, *PAGE),
    other_types=("text/plain", "application/x-ndjson"),
    by_resource=True,
)
def _read(context: CallContext) -> NodeLogList | Stream:
    """Read lines of a node's system log.

    Lines of the kernel, the journal and the files that the node's agent is configured to read, ordered by time. Output
    of jobs' processes is under the jobs.
    """
    ref = make_node_ref(context)
    found = answer_lines(context, partial(build_question, context, ref))
    if isinstance(found, Stream):
        return found
    return NodeLogList(ref.name, [make_line_body(line) for line in found.lines], found.total, found.total_bytes)


class PushedNodeLine(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A line of a node's system log that a program pushes. The default time is now."""

    text: str
    time: int | str | None = None
    time_ns: int | str | None = None
    facility: str | int = ""
    severity: int | str | None = None
    tag: str = ""
    stream: str = "pushed"
    job: str = ""
    replica: str = ""


class PushNodeBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Lines in order. Lines without a time get the server's."""

    lines: list[PushedNodeLine]


@Endpoint(
    "pushNodeLogs",
    "POST /nodes/{node}/logs",
    "ingest:write",
    details="For a node without an agent. The answer comes when accepted lines are durable. Project, "
    "node, stream, time and text identify a line: a repeated line counts once. A new node is added to the "
    "project's nodes; later silence is not reported as a failure. "
    f"`facility` is a number from 0 to 23 or one of {', '.join(FACILITIES)} (default: user), `severity` a "
    f"number from 0 to 7 or one of {', '.join(SEVERITIES)}. A text that begins with `<PRI>` of syslog states "
    "both. The level of a line follows from its severity, else from its text.",
    queries=(PROJECT,),
    body=PushNodeBody,
    example={"lines": [{"text": "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.", **_LINE}]},
    lane="write",
    large=True,
)
def _push(context: CallContext) -> Pushed:
    """Push lines of a node's system log."""
    services, node = context.services, check_name(context.path["node"], "node")
    project = write_project(context.principal, context.project)
    now_ns = services.clock.now_ms() * NS_PER_MS
    pushed = read_pushed_lines(context, PushNodeBody).lines
    lines = [_line(line, node, project, now_ns + at) for at, line in enumerate(pushed)]
    result = store_lines(context, lines)
    if result.accepted and not _is_recorded(context, NodeRef(node, None, project)):
        services.registry.record(project, Records(nodes=[NodeRecord(name=node)]), services.clock.now_ms())
    return result


def _is_recorded(context: CallContext, ref: NodeRef) -> bool:
    try:
        return bool(context.ask(NodeRecordsQuestion(ref)))
    except NotFoundError:
        return False


def _line(line: PushedNodeLine, node: str, project: str, now_ns: int) -> LogLine:
    facility, severity = _facility(line.facility), _severity(line.severity)
    stated = parse_priority(line.text)
    if stated is not None:  # the form in which a syslog daemon forwards a line
        facility, severity = facility or stated[0], stated[1] if severity is None else severity
    return LogLine(
        time_ns=choose_moment(line.time, line.time_ns, now_ns),
        text=line.text,
        job=line.job,
        project=project,
        replica=line.replica,
        node=node,
        stream=line.stream,
        level=find_level(line.text) if severity is None else convert_severity(severity),
        facility=facility or "user",
        severity=severity,
        tag=line.tag,
    )


def _facility(given: int | str) -> str:
    """Return the name of a pushed facility, empty for none."""
    if given == "":
        return ""
    name = parse_facility(str(given))
    if name is None:
        raise InvalidRequestError(
            f"facility {str(given)[:40]!r} is not 0 to 23 or one of {', '.join(FACILITIES)}", "facility"
        )
    return name


def _severity(given: int | str | None) -> int | None:
    if given is None or given == "":
        return None
    number = parse_severity_word(str(given))
    if number is None:
        raise InvalidRequestError(
            f"severity {str(given)[:40]!r} is not 0 to 7 or one of {', '.join(WORDS)}", "severity"
        )
    return number
