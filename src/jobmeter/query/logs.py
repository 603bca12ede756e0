"""Queries for log lines: limits, and whole selections page by page."""

from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b

import msgspec
from msgspec.structs import replace

from jobmeter.errors import InvalidRequestError, LimitExceededError
from jobmeter.model.job import Job, Node
from jobmeter.model.log import LogLine, LogPage
from jobmeter.model.log_filter import LogFilter
from jobmeter.model.question import Question
from jobmeter.model.time import clamp_to_int64
from jobmeter.query.request import LogQuestion
from jobmeter.store.base import LogSelector

MAX_LINES = 10_000
"""Most lines of one page."""
_FIRST, _LEAST = 1_000, 100
_BYTES = 8 * 2**20
"""Approximate text size of a page of a whole selection."""


class LogLinesQuestion(msgspec.Struct, Question[Iterator[list[LogLine]]], frozen=True):
    """Question for at most ``limit`` selected lines (None: all), in lists of bounded size.

    The limit of ``question`` is ignored. Errors arise before the first list, or while it is iterated.
    """

    by_resource = of_job = True

    question: LogQuestion
    limit: int | None = None


def make_selector(question: LogQuestion, subject: Job | Sequence[Node]) -> LogSelector:
    """Build the store's query. Raises LimitExceededError (field ``limit``), InvalidRequestError naming the field."""
    if question.limit > MAX_LINES:
        raise LimitExceededError(f"a page may have {MAX_LINES} lines, not {question.limit}", "limit")
    for field in ("limit", "offset", "attempt"):
        if (getattr(question, field) or 0) < 0:
            raise InvalidRequestError(f"{field} must be 0 or more", field)
    filtered = {name: getattr(question, name) for name in LogFilter.__struct_fields__}
    filtered.update(
        {name: clamp_to_int64(filtered[name]) for name in ("start_ns", "end_ns") if filtered[name] is not None}
    )
    if isinstance(subject, Job):
        return LogSelector(project=subject.project, job=subject.id, node=question.node, **filtered)
    return LogSelector(node=subject[0].name, projects=frozenset(node.project for node in subject), **filtered)


def iterate_pages(
    read: Callable[[LogSelector], LogPage], selector: LogSelector, limit: int | None
) -> Iterator[list[LogLine]]:
    """Iterate over a selection from its offset on, at most ``limit`` lines (None: all), in lists of bounded size.

    Each page begins at the time where the previous one ended, so that all pages cost about the same.
    """
    size = _FIRST
    while limit is None or limit > 0:
        most = size if limit is None else min(size, limit)
        lines = read(replace(selector, limit=most, count=False)).lines
        if lines:
            yield lines
        if len(lines) < most:
            return
        limit = None if limit is None else limit - len(lines)
        selector = _continue_after(selector, lines)
        mean = sum(len(line.text) for line in lines) // len(lines) + 1
        size = max(_LEAST, min(MAX_LINES, _BYTES // mean))


def _continue_after(selector: LogSelector, lines: list[LogLine]) -> LogSelector:
    """Continue the selection after these lines."""
    time_ns = lines[-1].time_ns
    if lines[0].time_ns == time_ns:  # lines skipped before them may be of the same moment
        return replace(selector, offset=selector.offset + len(lines))
    return selector.continue_from(time_ns, sum(line.time_ns == time_ns for line in lines))


_MOST_GIVEN = 128
"""Most lines of one moment that a cursor names. With more, it only has their number."""


class LogCursor(msgspec.Struct, frozen=True, array_like=True):
    """End of a page: at the moment ``time_ns``.

    The first ``passed`` lines of that moment, and those with digests in ``given``, come before the cursor.
    """

    time_ns: int
    given: tuple[int, ...] = ()
    passed: int = 0


class LogPageQuestion(msgspec.Struct, Question["FoundLines"], frozen=True, kw_only=True):
    """Question for a page of at most ``question.limit`` lines.

    ``token`` comes from the previous page, empty for the first. It is valid for an unchanged query and for an hour.
    ``field`` names it in errors.
    """

    by_resource = of_job = True

    question: LogQuestion
    token: str = ""
    field: str = "next_token"


class FoundLines(msgspec.Struct, frozen=True):
    """Lines, and the token of the next page, empty on the last one."""

    lines: list[LogLine]
    token: str = ""


def read_next_lines(
    read: Callable[[LogQuestion], LogPage], question: LogQuestion, cursor: LogCursor | None
) -> tuple[list[LogLine], LogCursor | None]:
    """Return the lines after a cursor, and the new cursor; None if no line follows.

    A line that is written meanwhile appears if its time is after the cursor. No line appears twice, none is skipped.
    """
    size = question.limit
    given = frozenset(cursor.given if cursor else ())
    if cursor is not None:
        question = question.continue_from(cursor.time_ns, cursor.passed)
    found = read(replace(question, limit=size + len(given) + 1)).lines
    fresh = [line for line in found if compute_digest(line) not in given]
    lines = fresh[:size]
    if len(fresh) <= size or not lines:
        return lines, None
    return lines, _end(lines, cursor)


def compute_digest(line: LogLine) -> int:
    """Compute a 64-bit digest of a line's identity."""
    time_ns, replica, attempt, stream, text = line.order
    parts = f"{line.project}\x1f{time_ns}\x1f{replica}\x1f{attempt}\x1f{stream}\x1f".encode()
    return int.from_bytes(blake2b(parts + text, digest_size=8).digest(), "little")


def _end(lines: list[LogLine], before: LogCursor | None) -> LogCursor:
    time_ns = lines[-1].time_ns
    given = tuple(compute_digest(line) for line in lines if line.time_ns == time_ns)
    passed = 0
    if before is not None and before.time_ns == time_ns:
        given, passed = before.given + given, before.passed
    if len(given) > _MOST_GIVEN:
        return LogCursor(time_ns, (), passed + len(given))
    return LogCursor(time_ns, given, passed)
