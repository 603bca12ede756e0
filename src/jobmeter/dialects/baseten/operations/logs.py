"""The log lines of a job.

https://docs.baseten.co/reference/training-api/get-training-job-logs
"""

from collections.abc import Generator
from typing import Annotated, Any, Literal

from msgspec import Meta
from msgspec.structs import replace

from jobmeter.dialects.base import Steps, ask
from jobmeter.dialects.base.request import Choice
from jobmeter.dialects.baseten.requests import JOB_PATH, BasetenJobRequest, answer, operation
from jobmeter.errors import InvalidRequestError
from jobmeter.model.event import Level
from jobmeter.model.log import LogLine
from jobmeter.model.question import Question
from jobmeter.model.time import DAY, MAX_TIME_MS, MINUTE, NS_PER_MS
from jobmeter.query.request import LogQuestion

MOST_LINES = 1_000
DEFAULT_WINDOW_MS = 30 * MINUTE
MOST_WINDOW_MS = 7 * DAY
MOST_IN_A_MILLISECOND = 10_000


@operation(f"GET {JOB_PATH}/logs", "jobs:read", name="get_training_projects_jobs_logs", by_resource=True)
@operation(f"POST {JOB_PATH}/logs", "jobs:read", name="post_training_projects_jobs_logs", by_resource=True)
class JobLogs(BasetenJobRequest, frozen=True, kw_only=True):
    """Log lines: `{logs: [{timestamp, message, replica, request_id, level}]}`.

    `timestamp` is in nanoseconds since the epoch, as text. A full page of the largest size in ascending order is
    completed to a whole millisecond, at which `truss` continues.
    """

    start_epoch_millis: Annotated[
        int | None,
        "Epoch milliseconds, included. Default: 30 minutes before the end.",
        Meta(ge=0, le=MAX_TIME_MS),
    ] = None
    end_epoch_millis: Annotated[
        int | None,
        "Epoch milliseconds, not included, at most 7 days after the start. Default: now.",
        Meta(ge=0, le=MAX_TIME_MS),
    ] = None
    direction: Annotated[Literal["asc", "desc"], "`desc`: the newest first."] = "desc"
    limit: Annotated[int, "Lines.", Meta(ge=1, le=MOST_LINES)] = 500
    min_level: Annotated[
        Level | None,
        "Lines of that level or above, none without a level. Default: every line.",
        Choice({level.value.upper(): level for level in Level}),
    ] = None

    def _steps(self) -> Steps:
        start, end = self._window()
        question = LogQuestion(
            ref=self.ref,
            min_level=self.min_level,
            start_ns=start * NS_PER_MS,
            end_ns=end * NS_PER_MS,
            descending=self.direction == "desc",
            limit=self.limit,
        )
        lines = (yield from ask(question)).lines
        if not question.descending and len(lines) == MOST_LINES:
            lines = yield from _complete_page(question, lines)
        return answer({"logs": [_body(line) for line in lines]})

    def _window(self) -> tuple[int, int]:
        end = self.context.now_ms if self.end_epoch_millis is None else self.end_epoch_millis
        start = max(0, end - DEFAULT_WINDOW_MS) if self.start_epoch_millis is None else self.start_epoch_millis
        if end < start:
            raise InvalidRequestError("end_epoch_millis is before start_epoch_millis", "end")
        if end - start > MOST_WINDOW_MS:
            raise InvalidRequestError("start_epoch_millis and end_epoch_millis may be 7 days apart", "start")
        return start, end


def _complete_page(question: LogQuestion, lines: list[LogLine]) -> Generator[Question[Any], Any, list[LogLine]]:
    """Add the lines that a full page lacks of its last millisecond.

    ``truss`` fetches pages of the largest size and continues at the next millisecond: missing lines would be lost.
    """
    start = lines[-1].time_ns - lines[-1].time_ns % NS_PER_MS
    end = min(start + NS_PER_MS, question.end_ns or MAX_TIME_MS * NS_PER_MS)
    page = yield from ask(replace(question, start_ns=start, end_ns=end, limit=MOST_IN_A_MILLISECOND))
    return [*(line for line in lines if line.time_ns < start), *page.lines]


def _body(line: LogLine) -> dict[str, Any]:
    return {
        "timestamp": str(line.time_ns),
        "message": line.text,
        "replica": line.replica or None,
        "request_id": None,
        "level": None if line.level is None else line.level.value.upper(),
    }
