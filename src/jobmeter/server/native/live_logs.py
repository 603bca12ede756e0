"""``/jobs/{job}/logs/live``: the newest lines of a job, as server-sent events."""

from dataclasses import replace

import msgspec

from jobmeter.access.principal import Scope
from jobmeter.query.request import JobRef, LogQuestion
from jobmeter.server.live import CONTENT_TYPE, Feed, Update
from jobmeter.server.native.arguments import Query
from jobmeter.server.native.endpoint import PROJECT, CallContext, Endpoint, job_ref
from jobmeter.server.native.jobs import JOB_PATH
from jobmeter.server.native.live import still
from jobmeter.server.native.logs import LogList, base_question, line_body
from jobmeter.server.services import Services

MOST_LINES = 500
"""Lines in an update."""
BACK_NS = 20 * 10**9
"""How far before the newest line each update reaches: replicas do not write at the same moment."""


class NewestLines:
    """The newest lines that match a question: at first those that there are, then those since shortly before."""

    def __init__(self, services: Services, scope: Scope, question: LogQuestion, ref: JobRef) -> None:
        self._services = services
        self._scope = scope
        self._question = replace(question, ref=ref, descending=True, limit=MOST_LINES)
        self._ref = ref

    def __call__(self) -> Update:
        """The update, the oldest line first."""
        job = self._services.executor.head(self._ref, self._scope)
        page = self._services.executor.run(self._question, self._scope)
        if page.lines:
            self._question = replace(self._question, start_ns=max(page.lines[0].time_ns - BACK_NS, 0))
        lines = [line_body(line) for line in reversed(page.lines)]
        body = LogList(job.id, job.project, lines, None, None)
        return Update(msgspec.json.encode(body), last=job.state.finished)


def _follow(context: CallContext) -> Feed:
    job = context.services.executor.head(job_ref(context), context.scope)
    ref = JobRef(job.id, job.project)
    question = replace(base_question(context, ref, MOST_LINES), replicas=frozenset(context.arguments.texts("replica")))
    newest = NewestLines(context.services, context.scope, question, ref)
    return Feed(("logs", question, context.scope), newest, still(context))


ENDPOINTS = (
    Endpoint(
        name="followJobLogs",
        tag="logs",
        method="GET",
        path="/jobs/{job}/logs/live",
        action="jobs:read",
        summary="Follow the log of a job while it runs",
        text=(
            f"Server-sent events: `data` is the newest lines, {MOST_LINES} at most, the oldest first; each update "
            "begins 20 seconds before the newest line of the one before it, so a line comes more than once. All who "
            "ask the same see the same answers, asked for once. `end`, `refused` and `problem` are as for `/live/jobs`."
        ),
        work=_follow,
        answer=LogList,
        answer_type=CONTENT_TYPE,
        queries=(
            Query("replica", "Only these replicas.", many=True, example="worker-0"),
            Query("level", "Only lines of this level or above: debug, info, warning, error.", example="warning"),
            Query("contains", "Only lines that hold this text, in any case.", example="nan"),
            PROJECT,
        ),
        paths=JOB_PATH,
    ),
)
