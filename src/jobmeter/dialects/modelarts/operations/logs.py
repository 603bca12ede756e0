"""The logs of a task: the newest part, the lines from a given line on, and the address of the whole text.

https://support.huaweicloud.com/intl/en-us/api-modelarts/ShowTrainingJobLogsPreview.html and
https://support.huaweicloud.com/api-modelarts/ShowTrainingJobLogsFromAom.html
"""

import re
from collections.abc import Generator
from typing import Annotated, Any, Literal
from urllib.parse import quote, urlencode

import msgspec
from msgspec import Meta, field
from msgspec.structs import replace

from jobmeter.access.forwarded import find_public_address
from jobmeter.dialects.base import Answer, Context, Steps, ask
from jobmeter.dialects.modelarts.answers import answer, answer_no_data
from jobmeter.dialects.modelarts.errors import INVALID_QUERY, NO_LOG, RefusedError
from jobmeter.dialects.modelarts.requests import JOB_PATH, TaskRequest, operation
from jobmeter.errors import LimitExceededError
from jobmeter.model.job import JobView
from jobmeter.model.log import LogLine
from jobmeter.model.question import Question
from jobmeter.query.request import JobQuestion, LogQuestion

MAX_PREVIEW = 5 * 2**20
"""Most bytes of a preview."""
_SMALL_PAGE, _LARGE_PAGE = 1_000, 10_000
_BASE = re.compile(r"(?P<time>[0-9]{1,18}[0-9]?)(?:\.(?P<passed>[0-9]{1,9}))?")


class _Base(msgspec.Struct, frozen=True):
    """A position in the log: after all lines of that time (ns), or after the first ``passed`` of them."""

    time_ns: int
    passed: int | None = None

    def __str__(self) -> str:
        return f"{self.time_ns}" if self.passed is None else f"{self.time_ns}.{self.passed}"


@operation(f"GET {JOB_PATH}/tasks/{{task_id}}/logs/preview", "jobs:read", by_resource=True)
class ShowTrainingJobLogsPreview(TaskRequest, frozen=True, kw_only=True):
    """`{content, current_size, full_size}`: the newest whole lines, up to 5 MB, in their order.

    `current_size` is the size of the content and `full_size` that of the whole log, in bytes. 204 while the log is
    empty; ModelArts.2818 if the job has ended without a log.
    """

    def _steps(self) -> Steps:
        view, question = yield from _job_and_question(self)
        newest = yield from ask(replace(question, descending=True, limit=_SMALL_PAGE, count=True))
        if not newest.lines:
            return _answer_empty_log(view, self.context)
        lines = yield from _preview(question, newest.lines)
        content = "".join(f"{line.text}\n" for line in reversed(lines))
        full = (newest.total or 0) + (newest.total_bytes or 0)
        current = len(content.encode())
        body = {"content": content, "current_size": current, "full_size": max(full, current)}
        return answer(body, self.context)


@operation(f"GET {JOB_PATH}/tasks/{{task_id}}/logs/url", "jobs:read", by_resource=True)
class ShowObsUrlOfTrainingJobLogs(TaskRequest, frozen=True, kw_only=True):
    """`{obs_url}`: the address of the whole log as text on this server.

    The vendor's link works without a credential; this one needs a key.
    """

    content_type: Annotated[str, "`text/plain` or `application/octet-stream`; both give the text."] = field(
        default="", name="Content-Type"
    )

    def _steps(self) -> Steps:
        view, _ = yield from _job_and_question(self)
        query = {"project": view.job.project, "replica": self.task_id, "format": "text"}
        path = f"/api/jobmeter/v1/jobs/{quote(view.job.id, safe='')}/logs?{urlencode(query)}"
        return answer({"obs_url": find_public_address(self.call, self.context.public).url + path}, self.context)


@operation(f"GET {JOB_PATH}/logs/{{task_id}}", "jobs:read", by_resource=True)
class ShowTrainingJobLogsFromAom(TaskRequest, frozen=True, kw_only=True):
    """`{start_line, end_line, lines, content}`: lines in the requested order, without the base line.

    A line is named by its time in nanoseconds; `end_line` is the `base_line` of the next page. Without a base line
    `desc` begins with the newest line, `asc` with the oldest.
    """

    base_line: Annotated[str, "`start_line` or `end_line` of an answer. Default: the log's beginning."] = ""
    lines: Annotated[int, Meta(ge=1, le=500)] = 50
    order: Annotated[Literal["asc", "desc"], "`desc`: the lines before, newest first; `asc`: those after."] = "desc"

    def _steps(self) -> Steps:
        base = _base(self.base_line)
        view, question = yield from _job_and_question(self)
        page = yield from ask(replace(_continue_from(question, base, self.order), limit=self.lines + 1))
        lines = page.lines[: self.lines]
        if not lines and base is None:
            return _answer_empty_log(view, self.context)
        body = {
            "start_line": str(lines[0].time_ns if lines else base),
            "end_line": str(_end(page.lines, self.lines, base) if lines else base),
            "lines": len(lines),
            "content": "".join(f"{line.text}\n" for line in lines),
        }
        return answer(body, self.context)


def _job_and_question(request: TaskRequest) -> Generator[Question[Any], Any, tuple[JobView, LogQuestion]]:
    """Return the job, and the query for all lines of the task."""
    view = yield from ask(JobQuestion(request.ref))
    return view, LogQuestion(ref=request.ref, replicas=request.select_replicas(view))


def _preview(question: LogQuestion, newest: list[LogLine]) -> Generator[Question[Any], Any, list[LogLine]]:
    """Return as many lines as fit, newest first; ``newest`` is the first page."""
    taken: list[LogLine] = []
    room, page, size = MAX_PREVIEW, newest, _SMALL_PAGE
    while True:
        for line in page:
            room -= len(line.text.encode()) + 1
            if room < 0:
                return taken
            taken.append(line)
        if len(page) < size:
            return taken
        last = taken[-1].time_ns
        passed = sum(1 for line in taken if line.time_ns == last)
        behind = replace(question, descending=True, end_ns=last + 1, offset=passed)
        mean = (MAX_PREVIEW - room) // len(taken) + 1
        size = max(_SMALL_PAGE, min(_LARGE_PAGE, room // mean))
        try:
            page = (yield from ask(replace(behind, limit=size))).lines
        except LimitExceededError:  # lines that are much longer than the earlier ones
            size = _SMALL_PAGE
            page = (yield from ask(replace(behind, limit=size))).lines


def _base(text: str) -> _Base | None:
    if not text:
        return None
    found = _BASE.fullmatch(text)
    if found is None:
        raise RefusedError(INVALID_QUERY, f"{text[:64]!r} is not a line that an answer named", "base_line")
    return _Base(int(found["time"]), int(found["passed"]) if found["passed"] else None)


def _continue_from(question: LogQuestion, base: _Base | None, order: str) -> LogQuestion:
    question = replace(question, descending=order == "desc")
    if base is None:
        return question
    at = 0 if base.passed is None else 1
    if question.descending:
        return replace(question, end_ns=base.time_ns + at, offset=base.passed or 0)
    return replace(question, start_ns=base.time_ns + 1 - at, offset=base.passed or 0)


def _end(lines: list[LogLine], most: int, base: _Base | None) -> _Base:
    """Return the position after the first ``most`` of these lines.

    The position counts lines of the last line's time only if more lines have that time.
    """
    last = lines[:most][-1].time_ns
    if len(lines) <= most or lines[most].time_ns != last:
        return _Base(last)
    before = base.passed or 0 if base is not None and base.time_ns == last else 0
    return _Base(last, before + sum(1 for line in lines[:most] if line.time_ns == last))


def _answer_empty_log(view: JobView, context: Context) -> Answer:
    """Answer for an empty log: an error if the job has ended, else 204, because lines may still arrive."""
    if view.job.state.finished:
        raise RefusedError(NO_LOG, "No log of this task was generated, or it is no longer kept.")
    return answer_no_data(context)
