"""``/jobs/{job}/logs``: what the processes of a job wrote, read and pushed."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from jobmeter.errors import InvalidRequestError
from jobmeter.model.event import Level
from jobmeter.model.job import Job
from jobmeter.model.line_level import level_in
from jobmeter.model.log import LogLine, LogPage, level_of
from jobmeter.model.log_query import parse_log_query, parse_severity
from jobmeter.model.syslog import WORDS
from jobmeter.model.time import MAX_TIME_MS, parse_time_ns
from jobmeter.query.request import JobRef, LogQuestion, NodeRef
from jobmeter.server.native.arguments import RANGE, REPLICA, Query
from jobmeter.server.native.endpoint import PROJECT, CallContext, Endpoint, Stream, job_ref, read_json, tagged
from jobmeter.server.native.jobs import MAX_OFFSET
from jobmeter.wire.json_shape import shape_of

T = TypeVar("T")
MAX_LINES = 1_000
_NS = 1_000_000


class LogLineBody(msgspec.Struct, frozen=True):
    """One line. ``time`` is in milliseconds; ``time_ns`` is the same moment in nanoseconds, a text of 19 digits.

    ``facility``, ``severity`` (0, the worst, to 7), ``tag`` and ``job`` are those of a line of a system log.
    """

    time: int
    time_ns: str
    text: str
    replica: str
    attempt: int
    node: str
    stream: str
    level: Level | None
    facility: str
    severity: int | None
    tag: str
    job: str


class LogList(msgspec.Struct, frozen=True):
    """One page of lines. ``total`` lines of ``total_bytes`` of text match in all, null unless ``count=true`` asked."""

    job: str
    project: str
    lines: list[LogLineBody]
    total: int | None
    total_bytes: int | None


class PushedLine(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A line that a program pushes. Without a time it is now."""

    text: str
    time: int | str | None = None
    time_ns: int | str | None = None
    replica: str = ""
    attempt: int = 0
    node: str = ""
    stream: str = "stdout"
    level: int | str | None = None


class PushBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Lines in their order; those without a time get the server's."""

    lines: list[PushedLine]


class Pushed(msgspec.Struct, frozen=True):
    """What became of the lines: those accepted are durable, the others are counted by reason."""

    accepted: int
    rejected: dict[str, int]


def _read(context: CallContext) -> LogList | Stream:
    """Log lines of a job.

    Lines are ordered by time, then replica, attempt, stream and text. `format=json` gives one page; `text` (the bare
    texts) and `jsonl` (an object a line) give the whole selection, however long, as a stream, unless `limit` says how
    much of it.
    """
    found = found_lines(context, partial(_question, context))
    if isinstance(found, Stream):
        return found
    job = context.services.executor.head(job_ref(context), context.scope)
    return LogList(job.id, job.project, [line_body(line) for line in found.lines], found.total, found.total_bytes)


def found_lines(context: CallContext, question: Callable[[int], LogQuestion]) -> LogPage | Stream:
    """The answer to the question with a limit: one page, or with ``format`` text or jsonl all lines as a stream."""
    given, executor = context.arguments, context.services.executor
    form = given.choice("format", _FORMATS, "json")
    if form is None:
        return executor.run(question(given.integer("limit", 100, 0, MAX_LINES)), context.scope)
    write, content_type = form
    limit = given.integer("limit", 2**53, 1, 2**53)
    return Stream(write(executor.log_pages(question(0), context.scope, limit)), content_type)


def _question(context: CallContext, limit: int) -> LogQuestion:
    given = context.arguments
    return replace(
        base_question(context, job_ref(context), limit),
        node=given.text("node"),
        replicas=frozenset(given.texts("replica")),
        attempt=given.integer("attempt", 0, 0, 2**31 - 1) if given.text("attempt") else None,
    )


def base_question(context: CallContext, ref: JobRef | NodeRef, limit: int) -> LogQuestion:
    """What the parameters say that the logs of jobs and of nodes have in common: ``SEARCH`` and ``PAGE``."""
    given = context.arguments
    start, end, since = _time(context, "start"), _time(context, "end"), given.duration("since")
    if since is not None:
        if start is not None:
            raise InvalidRequestError("start and since exclude each other", "since")
        start = (context.services.clock.now_ms() * _NS if end is None else end) - since * _NS
    least, severity = given.text("level"), given.text("severity")
    return LogQuestion(
        ref=ref,
        query=parse_log_query(given.text("query")),
        max_severity=parse_severity(severity) if severity else None,
        stream=given.text("stream"),
        min_level=_least(least) if least else None,
        contains=given.text("contains"),
        start_ns=start,
        end_ns=end,
        descending=given.descending(),
        offset=given.integer("offset", 0, 0, MAX_OFFSET),
        limit=limit,
        count=given.flag("count"),
    )


def _time(context: CallContext, name: str) -> int | None:
    text = context.arguments.text(name)
    return parse_time_ns(text, name) if text else None


def _least(word: str) -> Level | None:
    # The lowest level asks for everything, lines that do not say their level included.
    level = _level(word, "level")
    return None if level is Level.DEBUG else level


def _level(word: str, field: str) -> Level:
    level = level_of(word)
    if level is None:
        raise InvalidRequestError(f"{field} {word[:100]!r} is not one of {', '.join(WORDS)}", field)
    return level


def line_body(line: LogLine) -> LogLineBody:
    """A line as an answer shows it."""
    return LogLineBody(
        time=line.time_ns // _NS,
        time_ns=str(line.time_ns),
        text=line.text,
        replica=line.replica,
        attempt=line.attempt,
        node=line.node,
        stream=line.stream,
        level=line.level,
        facility=line.facility,
        severity=line.severity,
        tag=line.tag,
        job=line.job,
    )


def _text(pages: Iterable[list[LogLine]]) -> Iterator[bytes]:
    for lines in pages:
        yield "".join(f"{line.text}\n" for line in lines).encode()


def _json_lines(pages: Iterable[list[LogLine]]) -> Iterator[bytes]:
    encoder = msgspec.json.Encoder()
    for lines in pages:
        yield encoder.encode_lines(line_body(line) for line in lines)


_FORMATS = {
    "json": None,
    "text": (_text, "text/plain; charset=utf-8"),
    "jsonl": (_json_lines, "application/x-ndjson"),
}


def _push(context: CallContext) -> Pushed:
    """Push log lines of a job.

    Answered when the accepted lines are durable. Job, replica, attempt, stream, time and text identify a line: sent
    again, it counts once. A text of several lines becomes several, a nanosecond apart; a line of more than 64 KiB is
    cut and says so. A line without a `level` has the level that its text states, if any. The job must exist: by a
    record or its samples.
    """
    job = context.services.executor.head(job_ref(context), context.scope)
    now_ns = context.services.clock.now_ms() * _NS
    lines = [_pushed(line, job, now_ns + at) for at, line in enumerate(pushed_lines(context, PushBody).lines)]
    return stored(context, lines)


def stored(context: CallContext, lines: list[LogLine]) -> Pushed:
    """Store lines; on return those accepted are durable."""
    receipt = context.services.pipeline.logs(lines, context.principal)
    context.services.telemetry.ingested(receipt)
    return Pushed(receipt.lines, receipt.rejected_lines)


def pushed_lines(context: CallContext, kind: type[T]) -> T:
    """The lines that a program pushes. Raises LimitExceededError (field ``lines``) for too many of them."""
    body = context.plain_body()
    shape = shape_of(body)
    shape.check(2, context.services.settings.limits.request_lines, "lines")
    context.call.take(shape.read_bytes)
    return read_json(body, kind)


def _pushed(line: PushedLine, job: Job, now_ns: int) -> LogLine:
    return LogLine(
        time_ns=moment_ns(line.time, line.time_ns, now_ns),
        text=line.text,
        job=job.id,
        project=job.project,
        replica=line.replica,
        attempt=line.attempt,
        node=line.node,
        stream=line.stream,
        level=level_in(line.text) if line.level in {None, ""} else _level(str(line.level), "level"),
    )


def moment_ns(time: int | str | None, time_ns: int | str | None, now_ns: int) -> int:
    """The time that a pushed line names, in epoch nanoseconds; ``now_ns`` where it names none."""
    if time_ns is not None:
        digits = str(time_ns)
        if not (digits.isascii() and digits.isdigit() and len(digits) <= 19 and int(digits) <= MAX_TIME_MS * _NS):
            raise InvalidRequestError(f"time_ns {digits[:40]!r} is not nanoseconds since the epoch", "time_ns")
        return int(digits)
    return now_ns if time is None else parse_time_ns(time, "time")


SEARCH = (
    Query("level", "Only lines of this level or above: debug, info, warning, error.", example="warning"),
    Query("severity", "Only lines of this severity or worse: emerg, alert, crit, err, warning, notice, info, debug."),
    Query("contains", "Only lines that hold this text, in any case.", example="nan"),
    Query(
        "query",
        "Words, quoted phrases, patterns of words (`err*`, `er?or`), `AND`, `OR` or `|`, `NOT`, parentheses, "
        "`field:value`, and comparisons (`severity>=4`, `level>=warning`).",
        example='Xid AND NOT "Xid 45"',
    ),
    *RANGE,
)
"""Parameters that choose lines."""
PAGE = (
    Query("order", "asc or desc (newest first). Default: asc."),
    Query("limit", "Lines in the answer, 0 to 1000. Default: 100 (json), all (text, jsonl).", type="integer"),
    Query("offset", "Lines to pass over. Default: 0.", type="integer"),
    Query("count", "true to be told how many lines and bytes match in all. Default: false."),
    Query("format", "json, text or jsonl. Default: json."),
    PROJECT,
)
"""Parameters that say which part of them, and in which form."""

ENDPOINTS = tagged(
    "logs",
    Endpoint(
        "getJobLogs",
        "GET /jobs/{job}/logs",
        "jobs:read",
        _read,
        answer=LogList,
        queries=(
            REPLICA,
            Query("attempt", "Only this attempt of the replicas, from 0.", type="integer"),
            Query("stream", "Only this stream: stdout, stderr, or what the sender named."),
            Query("node", "Only lines that came from this node."),
            *SEARCH,
            *PAGE,
        ),
        other_types=("text/plain", "application/x-ndjson"),
        by_resource=True,
    ),
    Endpoint(
        "pushJobLogs",
        "POST /jobs/{job}/logs",
        "ingest:write",
        _push,
        queries=(PROJECT,),
        body=PushBody,
        example={
            "lines": [
                {"time": "2026-11-20T15:00:00.25Z", "text": "epoch 1 loss 0.31", "replica": "worker-0"},
                {"time": 1795186800250, "text": "nan in gradients", "level": "error", "stream": "stderr"},
            ]
        },
        lane="write",
        large=True,
    ),
)
