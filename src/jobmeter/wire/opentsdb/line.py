"""The telnet protocol without its socket: bytes in, events out.

https://opentsdb.net/docs/build/html/api_telnet/index.html

A line ends with LF or CRLF. One or more spaces separate words, because collectd sends two of them. Data points go
straight into a ``Points``. Every other line becomes an event, in its order.
"""

from collections.abc import Iterator
from enum import Enum

import msgspec

from jobmeter.wire.opentsdb.point import PointRefusedError, Points

MAX_LINE = 16 * 1024
_LEAST_WORDS = 4
_SHOWN = 80


class LineProblem(Enum):
    """The fault of a line, in OpenTSDB's words."""

    ARGUMENT = "put: illegal argument: "
    VALUE = "put: invalid value: "
    COMMAND = "unknown command: "
    LENGTH = "error: "


class Command(msgspec.Struct, frozen=True):
    """A command other than ``put``, and its arguments."""

    name: str
    arguments: tuple[str, ...]


class Wrong(msgspec.Struct, frozen=True):
    """A rejected line; ``reason`` is for counting."""

    problem: LineProblem
    text: str
    reason: str

    @property
    def line(self) -> str:
        """The message for the sender."""
        return f"{self.problem.value}{self.text}\n"


Event = Command | Wrong


class LineReader:
    """Parses the bytes of one connection to events. Not safe for several threads.

    ``points`` may be replaced between two events. Without one, data points are counted as ``unread`` and skipped.
    """

    def __init__(self, points: Points | None = None) -> None:
        self.points = points
        self.unread = 0
        self._rest = b""
        self._skipping = False

    def feed(self, data: bytes) -> Iterator[Event]:
        """Parse more bytes. At the end of the iterator, all data points of whole lines are in the ``Points``."""
        lines = (self._rest + data).split(b"\n")
        self._rest = lines.pop()
        if self._skipping and lines:
            del lines[0]
            self._skipping = False
        for line in lines:
            yield from self._read_line(line)
        if len(self._rest) > MAX_LINE:
            if not self._skipping:
                yield _make_length_error()
            self._skipping, self._rest = True, b""

    def _read_line(self, line: bytes) -> Iterator[Event]:
        if len(line) > MAX_LINE:
            yield _make_length_error()
            return
        words = line.split()
        if not words:
            return
        if words[0] == b"put":
            if self.points is None:
                self.unread += 1
                return
            wrong = _put(self.points, words)
            if wrong is not None:
                yield wrong
            return
        yield _command(words)


def _put(points: Points, words: list[bytes]) -> Wrong | None:
    if len(words) <= _LEAST_WORDS:
        text = f"not enough arguments (need least {_LEAST_WORDS}, got {len(words)})"
        return Wrong(LineProblem.ARGUMENT, text, "tags" if len(words) == _LEAST_WORDS else "name")
    key = (words[1], *words[4:])
    try:
        time, value = words[2].decode("ascii"), words[3].decode("ascii")
        if points.is_described(key):
            points.add_cached(key, words[1].decode(), time, value, {})
        else:
            points.add_cached(key, words[1].decode(), time, value, _tags(words[4:]))
    except UnicodeDecodeError:
        return Wrong(LineProblem.ARGUMENT, "the line is not UTF-8", "name")
    except PointRefusedError as refusal:
        problem = LineProblem.VALUE if refusal.reason in {"time", "value"} else LineProblem.ARGUMENT
        return Wrong(problem, refusal.message, refusal.reason)
    return None


def _tags(words: list[bytes]) -> dict[str, str]:
    tags: dict[str, str] = {}
    for word in words:
        name, equals, value = word.decode().partition("=")
        if not equals or not name or not value:
            raise PointRefusedError(f"invalid tag: {word[:_SHOWN].decode(errors='replace')}", "tags")
        if tags.setdefault(name, value) != value:
            raise PointRefusedError(f"duplicate tag: {name[:_SHOWN]}", "tags")
    return tags


def _command(words: list[bytes]) -> Event:
    try:
        name, *arguments = (word.decode() for word in words)
    except UnicodeDecodeError:
        return Wrong(LineProblem.COMMAND, "not UTF-8.  Try `help'.", "command")
    return Command(name, tuple(arguments))


def _make_length_error() -> Wrong:
    return Wrong(LineProblem.LENGTH, f"a line may have at most {MAX_LINE} bytes", "length")
