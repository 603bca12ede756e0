"""``/jobs/{job}/logs``: output of a job's processes, read and pushed."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from jobmeter.errors import InvalidRequestError
from jobmeter.model.event import Level
from jobmeter.model.job import Job
from jobmeter.model.line_level import find_level
from jobmeter.model.log import LogLine, LogPage, parse_level
from jobmeter.model.log_query import parse_log_query, parse_severity
from jobmeter.model.syslog import WORDS
from jobmeter.model.time import MAX_TIME_MS, NS_PER_MS, parse_time_ns
from jobmeter.query.logs import LogLinesQuestion
from jobmeter.query.request import HeadQuestion, JobRef, LogQuestion, NodeRef
from jobmeter.server.native.arguments import RANGE, REPLICA, QueryArguments
from jobmeter.server.native.endpoint import PROJECT, CallContext, Endpoint, Stream, make_job_ref, read_json
from jobmeter.server.native.jobs import MAX_OFFSET
from jobmeter.wire.json_shape import count_json

T = TypeVar("T")
MAX_LINES = 1_000


class LogLineBody(msgspec.Struct, frozen=True):
    """A log line. ``time`` is in milliseconds; ``time_ns`` gives it in nanoseconds, as a text of 19 digits.

    Lines of system logs have ``facility``, ``severity`` (0, the worst, to 7), ``tag`` and ``job``.
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
    """A page of lines. ``total`` and ``total_bytes`` cover all matches; null without ``count=true``."""

    job: str
    project: str
    lines: list[LogLineBody]
    total: int | None
    total_bytes: int | None


class PushedLine(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A line that a program pushes. The default time is now."""

    text: str
    time: int | str | None = None
    time_ns: int | str | None = None
    replica: str = ""
    attempt: int = 0
    node: str = ""
    stream: str = "stdout"
    level: int | str | None = None


class PushBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Lines in order. Lines without a time get the server's."""

    lines: list[PushedLine]


class Pushed(msgspec.Struct, frozen=True):
    """Receipt of pushed lines: accepted lines are durable, rejected ones are counted by reason."""

    accepted: int
    rejected: dict[str, int]


HEADING = "logs"
SEARCH = (
    QueryArguments("level", "Only lines of this level or above: debug, info, warning, error.", example="warning"),
    QueryArguments(
        "severity", "Only lines of this severity or worse: emerg, alert, crit, err, warning, notice, info, debug."
    ),
    QueryArguments("contains", "Only lines that contain this text, ignoring case.", example="nan"),
    QueryArguments(
        "query",
        "Words, quoted phrases, patterns of words (`err*`, `er?or`), `AND`, `OR` or `|`, `NOT`, parentheses, "
        "`field:value`, and comparisons (`severity>=4`, `level>=warning`).",
        example='Xid AND NOT "Xid 45"',
    ),
    *RANGE,
)
"""Parameters that select lines."""
PAGE = (
    QueryArguments("order", "asc or desc (newest first). Default: asc."),
    QueryArguments("limit", "Lines in the answer, 0 to 1000. Default: 100 (json), all (text, jsonl).", type="integer"),
    QueryArguments("offset", "Lines to skip. Default: 0.", type="integer"),
    QueryArguments("count", "true adds the number of matching lines and bytes. Default: false."),
    QueryArguments("format", "json, text or jsonl. Default: json."),
    PROJECT,
)
"""Parameters that select the part of the lines to return, and the form."""


@Endpoint(
    "getJobLogs",
    "GET /jobs/{job}/logs",
    "jobs:read",
    answer=LogList,
    queries=(
        REPLICA,
        QueryArguments("attempt", "Only this attempt of the replicas, from 0.", type="integer"),
        QueryArguments("stream", "Only this stream: stdout, stderr, or a name given by the sender."),
        QueryArguments("node", "Only lines that came from this node."),
        *SEARCH,
        *PAGE,
    ),
    other_types=("text/plain", "application/x-ndjson"),
    by_resource=True,
)
def _read(context: CallContext) -> LogList | Stream:
    """Read log lines of a job.

    Lines are ordered by time, then replica, attempt, stream and text. `format=json` gives one page. `text` (plain
    lines) and `jsonl` (one object per line) stream the whole selection, of any length, unless `limit` shortens it.
    """
    found = answer_lines(context, partial(_question, context))
    if isinstance(found, Stream):
        return found
    job = context.ask(HeadQuestion(make_job_ref(context)))
    return LogList(job.id, job.project, [make_line_body(line) for line in found.lines], found.total, found.total_bytes)


def answer_lines(context: CallContext, question: Callable[[int], LogQuestion]) -> LogPage | Stream:
    """Answer the question with a limit: one page; with ``format`` text or jsonl, all lines as a stream."""
    given = context.arguments
    form = given.read_choice("format", _FORMATS, "json")
    if form is None:
        return context.ask(question(given.read_integer("limit", 100, 0, MAX_LINES)))
    write, content_type = form
    limit = given.read_integer("limit", 2**53, 1, 2**53)
    return Stream(write(context.ask(LogLinesQuestion(question(0), limit))), content_type)


def _question(context: CallContext, limit: int) -> LogQuestion:
    given = context.arguments
    return replace(
        build_question(context, make_job_ref(context), limit),
        node=given.read_text("node"),
        replicas=frozenset(given.read_texts("replica")),
        attempt=given.read_integer("attempt", 0, 0, 2**31 - 1) if given.read_text("attempt") else None,
    )


def build_question(context: CallContext, ref: JobRef | NodeRef, limit: int) -> LogQuestion:
    """Build the question from the parameters that logs of jobs and nodes share: ``SEARCH`` and ``PAGE``."""
    given = context.arguments
    start, end, since = _time(context, "start"), _time(context, "end"), given.read_duration("since")
    if since is not None:
        if start is not None:
            raise InvalidRequestError("give start or since, not both", "since")
        start = (context.services.clock.now_ms() * NS_PER_MS if end is None else end) - since * NS_PER_MS
    least, severity = given.read_text("level"), given.read_text("severity")
    return LogQuestion(
        ref=ref,
        query=parse_log_query(given.read_text("query")),
        max_severity=parse_severity(severity) if severity else None,
        stream=given.read_text("stream"),
        min_level=_parse_least_level(least) if least else None,
        contains=given.read_text("contains"),
        start_ns=start,
        end_ns=end,
        descending=given.is_descending(),
        offset=given.read_integer("offset", 0, 0, MAX_OFFSET),
        limit=limit,
        count=given.read_flag("count"),
    )


def _time(context: CallContext, name: str) -> int | None:
    text = context.arguments.read_text(name)
    return parse_time_ns(text, name) if text else None


def _parse_least_level(word: str) -> Level | None:
    # The lowest level matches everything, including lines without a level.
    level = _level(word)
    return None if level is Level.DEBUG else level


def _level(word: str) -> Level:
    level = parse_level(word)
    if level is None:
        raise InvalidRequestError(f"level {word[:100]!r} is not one of {', '.join(WORDS)}", "level")
    return level


def make_line_body(line: LogLine) -> LogLineBody:
    """Convert a line to the form of an answer."""
    return LogLineBody(
        time=line.time_ns // NS_PER_MS,
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
        yield encoder.encode_lines(make_line_body(line) for line in lines)


_FORMATS = {
    "json": None,
    "text": (_text, "text/plain; charset=utf-8"),
    "jsonl": (_json_lines, "application/x-ndjson"),
}


@Endpoint(
    "pushJobLogs",
    "POST /jobs/{job}/logs",
    "ingest:write",
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
)
def _push(context: CallContext) -> Pushed:
    """Push log lines of a job.

    The answer comes when accepted lines are durable. Job, replica, attempt, stream, time and text identify a line: a
    repeated line counts once. A text of several lines is split, with times a nanosecond apart. A line of more than 64
    KiB is truncated and marked. Without `level`, a line gets the level that its text states, if any. The job must
    exist: by a record or its samples.
    """
    job = context.ask(HeadQuestion(make_job_ref(context)))
    now_ns = context.services.clock.now_ms() * NS_PER_MS
    lines = [_make_line(line, job, now_ns + at) for at, line in enumerate(read_pushed_lines(context, PushBody).lines)]
    return store_lines(context, lines)


def store_lines(context: CallContext, lines: list[LogLine]) -> Pushed:
    """Store lines; on return the accepted ones are durable."""
    receipt = context.services.pipeline.submit_logs(lines, context.principal)
    context.services.telemetry.count_ingested(receipt)
    return Pushed(receipt.lines, receipt.rejected_lines)


def read_pushed_lines(context: CallContext, kind: type[T]) -> T:
    """Read the lines that a program pushes. Raises LimitExceededError (field ``lines``) for too many lines."""
    body = context.read_plain_body()
    shape = count_json(body)
    shape.check(2, context.services.settings.limits.request_lines, "lines")
    context.call.take(shape.read_bytes)
    return read_json(body, kind)


def _make_line(line: PushedLine, job: Job, now_ns: int) -> LogLine:
    return LogLine(
        time_ns=choose_moment(line.time, line.time_ns, now_ns),
        text=line.text,
        job=job.id,
        project=job.project,
        replica=line.replica,
        attempt=line.attempt,
        node=line.node,
        stream=line.stream,
        level=find_level(line.text) if line.level in {None, ""} else _level(str(line.level)),
    )


def choose_moment(time: int | str | None, time_ns: int | str | None, now_ns: int) -> int:
    """Time of a pushed line in epoch nanoseconds; ``now_ns`` if the line has none."""
    if time_ns is not None:
        digits = str(time_ns)
        if not (digits.isascii() and digits.isdigit() and len(digits) <= 19 and int(digits) <= MAX_TIME_MS * NS_PER_MS):
            raise InvalidRequestError(f"time_ns {digits[:40]!r} is not nanoseconds since the epoch", "time_ns")
        return int(digits)
    return now_ns if time is None else parse_time_ns(time, "time")
