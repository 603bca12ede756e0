"""Consecutive pages of lines that stay consistent while lines are written."""

from collections.abc import Callable
from hashlib import blake2b

import msgspec
from msgspec.structs import replace

from jobmeter.model.log import LogLine, LogPage
from jobmeter.model.question import Question
from jobmeter.query.logs import continue_since
from jobmeter.query.request import LogQuestion

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
        question = continue_since(question, cursor.time_ns, cursor.passed)
    found = read(replace(question, limit=size + len(given) + 1)).lines
    fresh = [line for line in found if digest(line) not in given]
    lines = fresh[:size]
    if len(fresh) <= size or not lines:
        return lines, None
    return lines, _end(lines, cursor)


def digest(line: LogLine) -> int:
    """Compute a 64-bit digest of a line's identity."""
    time_ns, replica, attempt, stream, text = line.order
    parts = f"{line.project}\x1f{time_ns}\x1f{replica}\x1f{attempt}\x1f{stream}\x1f".encode()
    return int.from_bytes(blake2b(parts + text, digest_size=8).digest(), "little")


def _end(lines: list[LogLine], before: LogCursor | None) -> LogCursor:
    time_ns = lines[-1].time_ns
    given = tuple(digest(line) for line in lines if line.time_ns == time_ns)
    passed = 0
    if before is not None and before.time_ns == time_ns:
        given, passed = before.given + given, before.passed
    if len(given) > _MOST_GIVEN:
        return LogCursor(time_ns, (), passed + len(given))
    return LogCursor(time_ns, given, passed)
