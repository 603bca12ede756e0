"""What log lines may be: refused as a whole, by the name of what is wrong, before anything of a request is kept."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

import msgspec

from jobmeter.errors import InvalidRequestError, LimitExceededError
from jobmeter.model.log import LogLine, cut_text
from jobmeter.model.series import check_job_id, check_name, check_project
from jobmeter.model.time import MAX_TIME_MS

_MAX_TIME_NS = MAX_TIME_MS * 1_000_000


def prepared(lines: Iterable[LogLine], most: int) -> list[LogLine]:
    """The lines as they are kept, in their order.

    A text of several lines becomes several lines, each a nanosecond after the one before; a text that is too long is
    cut. Raises InvalidRequestError naming the field, LimitExceededError (field ``lines``) for more than ``most``.
    """
    kept: list[LogLine] = []
    for line in lines:
        kept.extend(_plain(line))
        if len(kept) > most:
            raise LimitExceededError(f"a request may bring {most} log lines", "lines")
    _check(kept)
    return kept


def _plain(line: LogLine) -> Iterator[LogLine]:
    text = line.text
    if "\n" not in text and len(text) * 4 <= 2**16:
        yield msgspec.structs.replace(line, text=text.rstrip("\r")) if text.endswith("\r") else line
        return
    parts = text.removesuffix("\n").split("\n")
    for place, part in enumerate(parts):
        yield msgspec.structs.replace(line, time_ns=line.time_ns + place, text=cut_text(part.rstrip("\r")))


def _check(lines: Sequence[LogLine]) -> None:
    for project, job, replica, attempt, node, stream in {_names(line) for line in lines}:
        check_project(project)
        check_job_id(job, "job")
        for field, name in (("replica", replica), ("node", node)):
            if name:
                check_name(name, field)
        check_name(stream, "stream")
        if not 0 <= attempt < 2**31:
            raise InvalidRequestError(f"attempt {attempt} is not between 0 and 2^31", "attempt")
    for line in lines:
        if not 0 <= line.time_ns <= _MAX_TIME_NS:
            raise InvalidRequestError(
                f"time {line.time_ns} is not between 1970 and 2100 in nanoseconds since the epoch", "time"
            )
        if not line.text.isascii():
            _check_text(line.text)


def _check_text(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequestError("a text holds half of a surrogate pair: it is not Unicode", "text") from error


def _names(line: LogLine) -> tuple[str, str, str, int, str, str]:
    return line.project, line.job, line.replica, line.attempt, line.node, line.stream


def by_project(lines: Sequence[LogLine]) -> list[tuple[str, list[LogLine]]]:
    """The lines of each project, in their order."""
    ordered = sorted(lines, key=lambda line: line.project)
    return [(project, list(own)) for project, own in groupby(ordered, lambda line: line.project)]
