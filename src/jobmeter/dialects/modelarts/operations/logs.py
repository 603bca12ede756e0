"""The logs of a task: the newest part, lines from a line on, and the address of the whole text.

https://support.huaweicloud.com/intl/en-us/api-modelarts/ShowTrainingJobLogsPreview.html and
https://support.huaweicloud.com/api-modelarts/ShowTrainingJobLogsFromAom.html
"""

import re
from collections.abc import Generator
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
from msgspec.structs import replace

from jobmeter.access.call import Call
from jobmeter.access.forwarded import public_address
from jobmeter.dialects.base import Answer, Context, Parameter, Steps, execute
from jobmeter.dialects.modelarts.answers import answer, nothing_yet
from jobmeter.dialects.modelarts.arguments import job_of, query_choice, query_integer, query_text, replicas_of, task_of
from jobmeter.dialects.modelarts.errors import INVALID_QUERY, NO_LOG, RefusedError
from jobmeter.dialects.modelarts.operations.common import JOB_PATH, operation
from jobmeter.errors import LimitExceededError
from jobmeter.model.job import JobView
from jobmeter.model.log import LogLine
from jobmeter.model.question import Question
from jobmeter.query.request import JobQuestion, LogQuestion

MAX_PREVIEW = 5 * 2**20
"""Most bytes of a preview."""
MAX_LINES = 500
DEFAULT_LINES = 50
_SMALL_PAGE, _LARGE_PAGE = 1_000, 10_000
_BASE = re.compile(r"(?P<time>[0-9]{1,18}[0-9]?)(?:\.(?P<passed>[0-9]{1,9}))?")


class _Base(msgspec.Struct, frozen=True):
    """A position in the log: after all lines of that time (ns), or after the first ``passed`` of them."""

    time_ns: int
    passed: int | None = None

    def __str__(self) -> str:
        return f"{self.time_ns}" if self.passed is None else f"{self.time_ns}.{self.passed}"


def show_training_job_logs_preview(call: Call, context: Context) -> Steps:
    """Return the newest lines that fit, in the order in which they were written."""
    view, question = yield from _job_and_question(call, context)
    newest = yield from execute(replace(question, descending=True, limit=_SMALL_PAGE, count=True))
    if not newest.lines:
        return _no_log(view, context)
    lines = yield from _preview(question, newest.lines)
    content = "".join(f"{line.text}\n" for line in reversed(lines))
    full = (newest.total or 0) + (newest.total_bytes or 0)
    current = len(content.encode())
    return answer({"content": content, "current_size": current, "full_size": max(full, current)}, context)


def show_training_job_logs_from_aom(call: Call, context: Context) -> Steps:
    """Return lines from a base line on; the answer's ``end_line`` is the base line of the following lines."""
    order = query_choice(call, "order", ("asc", "desc"), "desc")
    most = query_integer(call, "lines", DEFAULT_LINES, 1, MAX_LINES)
    base = _base(query_text(call, "base_line"))
    view, question = yield from _job_and_question(call, context)
    page = yield from execute(replace(_from(question, base, order), limit=most + 1))
    lines = page.lines[:most]
    if not lines and base is None:
        return _no_log(view, context)
    body = {
        "start_line": str(lines[0].time_ns if lines else base),
        "end_line": str(_end(page.lines, most, base) if lines else base),
        "lines": len(lines),
        "content": "".join(f"{line.text}\n" for line in lines),
    }
    return answer(body, context)


def show_obs_url_of_training_job_logs(call: Call, context: Context) -> Steps:
    """Return the address of the whole text on this server, for the holder of a key."""
    view, _ = yield from _job_and_question(call, context)
    query = {"project": view.job.project, "replica": context.path["task_id"], "format": "text"}
    path = f"/api/jobmeter/v1/jobs/{quote(view.job.id, safe='')}/logs?{urlencode(query)}"
    return answer({"obs_url": public_address(call, context.public).url + path}, context)


def _job_and_question(call: Call, context: Context) -> Generator[Question[Any], Any, tuple[JobView, LogQuestion]]:
    """Return the job, and the query for all lines of the task."""
    view = yield from execute(JobQuestion(job_of(call, context)))
    task = task_of(view, context)
    return view, LogQuestion(ref=job_of(call, context), replicas=replicas_of(view, task))


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
            page = (yield from execute(replace(behind, limit=size))).lines
        except LimitExceededError:  # lines that are much longer than the earlier ones
            size = _SMALL_PAGE
            page = (yield from execute(replace(behind, limit=size))).lines


def _base(text: str) -> _Base | None:
    if not text:
        return None
    found = _BASE.fullmatch(text)
    if found is None:
        raise RefusedError(INVALID_QUERY, f"{text[:64]!r} is not a line that an answer named", "base_line")
    return _Base(int(found["time"]), int(found["passed"]) if found["passed"] else None)


def _from(question: LogQuestion, base: _Base | None, order: str) -> LogQuestion:
    question = replace(question, descending=order == "desc")
    if base is None:
        return question
    at = 0 if base.passed is None else 1
    if question.descending:
        return replace(question, end_ns=base.time_ns + at, offset=base.passed or 0)
    return replace(question, start_ns=base.time_ns + 1 - at, offset=base.passed or 0)


def _end(lines: list[LogLine], most: int, base: _Base | None) -> _Base:
    """Return the position after the first ``most`` of these lines.

    It counts lines only if more lines have the same time as the last one.
    """
    last = lines[:most][-1].time_ns
    if len(lines) <= most or lines[most].time_ns != last:
        return _Base(last)
    before = base.passed or 0 if base is not None and base.time_ns == last else 0
    return _Base(last, before + sum(1 for line in lines[:most] if line.time_ns == last))


def _no_log(view: JobView, context: Context) -> Answer:
    """Answer for an empty log: an error for a job that has ended, else 204, because lines may come."""
    if view.job.state.finished:
        raise RefusedError(NO_LOG, "No log of this task was generated, or it is no longer kept.")
    return nothing_yet(context)


OPERATIONS = (
    operation(
        "ShowTrainingJobLogsPreview",
        "GET",
        f"{JOB_PATH}/tasks/{{task_id}}/logs/preview",
        show_training_job_logs_preview,
        (
            "`{content, current_size, full_size}`: the newest whole lines, up to 5 MB, their size, and the size of the "
            "whole log in bytes. 204 while the log is empty; ModelArts.2818 if the job has ended without a log."
        ),
        by_resource=True,
    ),
    operation(
        "ShowObsUrlOfTrainingJobLogs",
        "GET",
        f"{JOB_PATH}/tasks/{{task_id}}/logs/url",
        show_obs_url_of_training_job_logs,
        (
            "`{obs_url}`: the address of the whole log as text on this server. The vendor's link works without a "
            "credential; this one needs a key."
        ),
        Parameter("Content-Type", "query", "`text/plain` or `application/octet-stream`; both give the text."),
        by_resource=True,
    ),
    operation(
        "ShowTrainingJobLogsFromAom",
        "GET",
        f"{JOB_PATH}/logs/{{task_id}}",
        show_training_job_logs_from_aom,
        (
            "`{start_line, end_line, lines, content}`: lines in the requested order, without the base line. "
            "A line is named by its time in nanoseconds; `end_line` is the `base_line` of the next page. Without "
            "a base line `desc` begins with the newest line, `asc` with the oldest."
        ),
        Parameter("base_line", "query", "`start_line` or `end_line` of an answer. Default: the log's beginning."),
        Parameter("lines", "query", f"1 to {MAX_LINES}. Default: {DEFAULT_LINES}."),
        Parameter("order", "query", "`desc`: the lines before, newest first; `asc`: those after. Default: `desc`."),
        by_resource=True,
    ),
)
