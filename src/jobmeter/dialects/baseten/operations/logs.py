"""The log lines of a job.

https://docs.baseten.co/reference/training-api/get-training-job-logs
"""

from collections.abc import Generator
from typing import Any

from msgspec.structs import replace

from jobmeter.access.call import Call
from jobmeter.dialects.base import Context, Operation, Parameter, Steps, execute
from jobmeter.dialects.baseten.arguments import Arguments
from jobmeter.dialects.baseten.operations.common import JOB_PATH, answer, job_ref, operation
from jobmeter.errors import InvalidRequestError
from jobmeter.model.event import Level
from jobmeter.model.log import LogLine
from jobmeter.model.question import Question
from jobmeter.model.time import DAY, MAX_TIME_MS, MINUTE, NS_PER_MS
from jobmeter.query.request import LogQuestion

MOST_LINES = 1_000
DEFAULT_LINES = 500
DEFAULT_WINDOW_MS = 30 * MINUTE
MOST_WINDOW_MS = 7 * DAY
MOST_IN_A_MILLISECOND = 10_000
_DIRECTIONS = {"asc": "asc", "desc": "desc"}
_LEVELS = {level.value.upper(): level for level in Level}


def job_logs(call: Call, context: Context) -> Steps:
    """Return the lines of a range, newest or oldest first."""
    arguments = Arguments(call)
    start, end = _window(arguments, context.now_ms)
    ascending = arguments.choice("direction", _DIRECTIONS) == "asc"
    question = LogQuestion(
        ref=job_ref(context),
        min_level=arguments.choice("min_level", _LEVELS),
        start_ns=start * NS_PER_MS,
        end_ns=end * NS_PER_MS,
        descending=not ascending,
        limit=arguments.integer("limit", 1, MOST_LINES) or DEFAULT_LINES,
    )
    lines = (yield from execute(question)).lines
    if ascending and len(lines) == MOST_LINES:
        lines = yield from _completed(question, lines)
    return answer({"logs": [_body(line) for line in lines]})


def _window(arguments: Arguments, now_ms: int) -> tuple[int, int]:
    end = arguments.time("end_epoch_millis")
    end = now_ms if end is None else end
    start = arguments.time("start_epoch_millis")
    start = max(0, end - DEFAULT_WINDOW_MS) if start is None else start
    if end < start:
        raise InvalidRequestError("end_epoch_millis is before start_epoch_millis", "end")
    if end - start > MOST_WINDOW_MS:
        raise InvalidRequestError("start_epoch_millis and end_epoch_millis may be 7 days apart", "start")
    return start, end


def _completed(question: LogQuestion, lines: list[LogLine]) -> Generator[Question[Any], Any, list[LogLine]]:
    """Complete a full page with all lines of its last millisecond.

    `truss` fetches pages of the largest size and continues at the next millisecond: lines left out would be lost.
    """
    start = lines[-1].time_ns - lines[-1].time_ns % NS_PER_MS
    end = min(start + NS_PER_MS, question.end_ns or MAX_TIME_MS * NS_PER_MS)
    page = yield from execute(replace(question, start_ns=start, end_ns=end, limit=MOST_IN_A_MILLISECOND))
    return [*(line for line in lines if line.time_ns < start), *page.lines]


def _body(line: LogLine) -> dict[str, Any]:
    return {
        "timestamp": str(line.time_ns),
        "message": line.text,
        "replica": line.replica or None,
        "request_id": None,
        "level": None if line.level is None else line.level.value.upper(),
    }


def _operation(method: str, where: Any) -> Operation:  # noqa: ANN401 - one of Parameter's literals
    return operation(
        f"{method.lower()}_training_projects_jobs_logs",
        method,
        f"{JOB_PATH}/logs",
        job_logs,
        (
            "Log lines: `{logs: [{timestamp, message, replica, request_id, level}]}`, `timestamp` in nanoseconds since "
            f"the epoch as text. A page of {MOST_LINES} lines in ascending order is completed to a whole millisecond, "
            "at which `truss` continues."
        ),
        Parameter("start_epoch_millis", where, "Epoch milliseconds, included. Default: 30 minutes before the end."),
        Parameter(
            "end_epoch_millis",
            where,
            "Epoch milliseconds, not included, at most 7 days after the start. Default: now.",
        ),
        Parameter("direction", where, "`desc`, the newest first, or `asc`. Default: `desc`."),
        Parameter("limit", where, f"1 to {MOST_LINES} lines. Default: {DEFAULT_LINES}."),
        Parameter(
            "min_level",
            where,
            f"{', '.join(f'`{level}`' for level in _LEVELS)}: lines of that level or above, none without a level. "
            "Default: every line.",
        ),
        by_resource=True,
    )


OPERATIONS = (_operation("GET", "query"), _operation("POST", "body"))
