"""``/jobs/{job}/logs/live`` and ``/nodes/{node}/logs/live``: the newest lines, as server-sent events."""

from collections import Counter
from functools import partial
from itertools import chain

import msgspec
from msgspec.structs import replace

from jobmeter.access.principal import Scope
from jobmeter.model.log import LogLine
from jobmeter.model.time import SECOND
from jobmeter.query.logs import LogLinesQuestion
from jobmeter.query.request import HeadQuestion, JobRef, LogQuestion, NodeRecordsQuestion, NodeRef
from jobmeter.server.live import CONTENT_TYPE, Feed, Update
from jobmeter.server.native.arguments import RANGE, REPLICA
from jobmeter.server.native.endpoint import PROJECT, CallContext, Endpoint, make_job_ref, make_node_ref
from jobmeter.server.native.logs import SEARCH, LogLineBody, LogList, build_question, make_line_body
from jobmeter.server.native.node_logs import STREAM, NodeLogList
from jobmeter.server.services import Services

MOST_LINES = 500
"""Lines in an update."""
MOST_COUNTED = 20_000
"""Newest lines counted per second for an update: at 1,000 lines a second, the whole range of an update."""
BACK_SECONDS = 20
"""Range in seconds of each update before its newest line: replicas do not write at the same moment."""
_NS = 10**9


class LineCount(msgspec.Struct, frozen=True):
    """Number of lines in the second that begins at ``time`` (epoch milliseconds)."""

    time: int
    lines: int


class LiveLogList(LogList, frozen=True):
    """The newest lines. From ``start`` (null: always) they are complete, or ``counts`` gives the numbers of lines."""

    start: int | None
    counts: list[LineCount]


class LiveNodeLogList(NodeLogList, frozen=True):
    """The newest lines of a node's log, like ``LiveLogList``."""

    start: int | None
    counts: list[LineCount]


class LineWindow(msgspec.Struct, frozen=True):
    """The newest lines, oldest first, see ``LiveLogList``. ``start`` is in epoch milliseconds."""

    start: int | None
    lines: list[LogLineBody]
    counts: list[LineCount]


class NewestLines:
    """Newest lines that match a question: first the existing lines, then those since shortly before the last update."""

    def __init__(self, services: Services, scope: Scope, question: LogQuestion) -> None:
        self._executor = services.executor
        self._scope = scope
        self._question = replace(question, descending=True, limit=MOST_LINES)

    def __call__(self) -> LineWindow:
        """Return the lines of the next update."""
        question = self._question
        newest = self._executor.run(question, self._scope).lines
        if newest:
            second = newest[0].time_ns // _NS - BACK_SECONDS
            self._question = replace(question, start_ns=max(second * _NS, 0))
        start_ns, counts = question.start_ns, list[LineCount]()
        if len(newest) == MOST_LINES:
            start_ns, counts = self._count_lines(question, newest)
        lines = [make_line_body(line) for line in reversed(newest)]
        return LineWindow(None if start_ns is None else start_ns // 1_000_000, lines, counts)

    def _count_lines(self, question: LogQuestion, newest: list[LogLine]) -> tuple[int, list[LineCount]]:
        """Count lines per second. Returns the first second that is counted in full, and the counts."""
        if question.start_ns is None:
            return _round_up_to_second(newest[-1].time_ns), []
        ended = replace(question, end_ns=newest[0].time_ns + 1)
        pages = self._executor.run(LogLinesQuestion(ended, MOST_COUNTED), self._scope)
        times = [line.time_ns for line in chain.from_iterable(pages)]
        start_ns = _round_up_to_second(times[-1]) if len(times) == MOST_COUNTED else question.start_ns
        counted = Counter(time_ns // _NS for time_ns in times if time_ns >= start_ns)
        return start_ns, [LineCount(second * SECOND, lines) for second, lines in sorted(counted.items())]


def _round_up_to_second(time_ns: int) -> int:
    return (time_ns // _NS + 1) * _NS


HEADING = "logs"
_TEXT = (
    f"Server-sent events: `data` is the newest lines, at most {MOST_LINES}, oldest first. Each update begins "
    f"{BACK_SECONDS} seconds before the newest line of the previous update, so lines repeat. If more "
    "lines arrived than an update holds, `counts` gives their number per second. Viewers of equal questions share the "
    "same updates. "
)
_FOLLOWED = tuple(query for query in SEARCH if query not in RANGE)


@Endpoint(
    "followJobLogs",
    "GET /jobs/{job}/logs/live",
    "jobs:read",
    details=_TEXT + "`end`, `refused` and `problem` are as for `/live/jobs`.",
    answer=LiveLogList,
    answer_type=CONTENT_TYPE,
    queries=(
        REPLICA,
        *(query for query in _FOLLOWED if query.name in {"level", "contains", "query"}),
        PROJECT,
    ),
    by_resource=True,
)
def _follow_job(context: CallContext) -> Feed:
    """Follow the log of a job while it runs."""
    services, scope = context.services, context.scope
    job = context.ask(HeadQuestion(make_job_ref(context)))
    ref = JobRef(job.id, job.project)
    question = replace(
        build_question(context, ref, MOST_LINES), replicas=frozenset(context.arguments.read_texts("replica"))
    )
    newest = NewestLines(services, scope, question)
    return Feed(("logs", question, scope), partial(_job_now, services, scope, ref, newest), context.renew)


def _job_now(services: Services, scope: Scope, ref: JobRef, newest: NewestLines) -> Update:
    # Read before its lines: the lines of an ended job are complete.
    job = services.executor.run(HeadQuestion(ref), scope)
    now = newest()
    body = LiveLogList(job.id, job.project, now.lines, None, None, now.start, now.counts)
    return Update(msgspec.json.encode(body), last=job.state.finished)


@Endpoint(
    "followNodeLogs",
    "GET /nodes/{node}/logs/live",
    "nodes:read",
    details=_TEXT + "The stream lasts until the viewer leaves; `refused` and `problem` are as for `/live/jobs`.",
    answer=LiveNodeLogList,
    answer_type=CONTENT_TYPE,
    queries=(STREAM, *_FOLLOWED, PROJECT),
    by_resource=True,
)
def _follow_node(context: CallContext) -> Feed:
    """Follow the system log of a node."""
    services, scope = context.services, context.scope
    ref = make_node_ref(context)
    context.ask(NodeRecordsQuestion(ref))
    question = build_question(context, ref, MOST_LINES)
    newest = NewestLines(services, scope, question)
    return Feed(("logs", question, scope), partial(_node_now, ref, newest), context.renew)


def _node_now(ref: NodeRef, newest: NewestLines) -> Update:
    now = newest()
    return Update(msgspec.json.encode(LiveNodeLogList(ref.name, now.lines, None, None, now.start, now.counts)))
