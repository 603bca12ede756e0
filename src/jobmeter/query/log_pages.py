"""Pages of lines that follow each other whatever is written meanwhile."""

from collections.abc import Callable
from hashlib import blake2b

import msgspec
from msgspec.structs import replace

from jobmeter.model.log import LogLine, LogPage
from jobmeter.model.question import Question
from jobmeter.query.logs import since
from jobmeter.query.request import LogQuestion

_MOST_GIVEN = 128
"""Lines of one moment that a cursor names; of more it only has their number."""


class LogCursor(msgspec.Struct, frozen=True, array_like=True):
    """Where a page ended: at the moment ``time_ns``.

    Of that moment the first ``passed`` lines are behind it, and those in ``given``, by their digests.
    """

    time_ns: int
    given: tuple[int, ...] = ()
    passed: int = 0


class LogSearch(msgspec.Struct, Question["FoundLines"], frozen=True, kw_only=True):
    """Query a page of at most ``question.limit`` lines; ``token`` is that of the page before, empty for the first.

    A token is valid for the same query and for an hour. ``field`` names it in errors.
    """

    question: LogQuestion
    token: str = ""
    field: str = "next_token"


class FoundLines(msgspec.Struct, frozen=True):
    """The lines, and the token of the next page, empty where there is none."""

    lines: list[LogLine]
    token: str = ""


def next_lines(
    read: Callable[[LogQuestion], LogPage], question: LogQuestion, cursor: LogCursor | None
) -> tuple[list[LogLine], LogCursor | None]:
    """The lines behind a cursor, and where they end; None where no line follows.

    A line that is written meanwhile comes where its time is behind the cursor; none comes twice, none is left out.
    """
    size = question.limit
    given = frozenset(cursor.given if cursor else ())
    if cursor is not None:
        question = since(question, cursor.time_ns, cursor.passed)
    found = read(replace(question, limit=size + len(given) + 1)).lines
    fresh = [line for line in found if digest(line) not in given]
    lines = fresh[:size]
    if len(fresh) <= size or not lines:
        return lines, None
    return lines, _end(lines, cursor)


def digest(line: LogLine) -> int:
    """A 64-bit digest of the identity of a line."""
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
