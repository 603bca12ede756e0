"""Log lines: the output of the processes of a job, and the system log of a node."""

import re

import msgspec

from jobmeter.model.event import Level
from jobmeter.model.series import job_key, node_key
from jobmeter.model.syslog import level_of_severity, severity_of

MAX_TEXT_BYTES = 65_536
"""Most bytes of one line's text in UTF-8; a longer one is truncated, with a note."""

MAX_SYSTEM_NAME = 256
"""Longest name of a stream or a tag of a system log, in characters."""


class LogLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line at ``time_ns`` (epoch nanoseconds), without its line end.

    (project, job, replica, attempt, stream, time, text) identify a line: sent again, it counts once. A sender gives
    lines of one stream strictly growing times, so that their order stays. ``level`` None: the line does not say.

    A line with a ``facility`` is one of the system log of its node: (project, node, stream, time, text) identify it,
    and ``job`` and ``replica`` say whom it is about, where that is known. ``severity`` is one of syslog's, from 0, the
    worst, to 7; ``tag`` is the program that wrote it.
    """

    time_ns: int
    text: str
    job: str = ""
    project: str = "default"
    replica: str = ""
    attempt: int = 0
    node: str = ""
    stream: str = "stdout"
    level: Level | None = None
    facility: str = ""
    severity: int | None = None
    tag: str = ""

    @property
    def key(self) -> int:
        """The 64-bit key under which the line lies: its job's, or that of its node's system log."""
        return node_key(self.project, self.node) if self.facility else job_key(self.project, self.job)

    @property
    def order(self) -> tuple[int, str, int, str, bytes]:
        """What the lines of one job, or node, are sorted by; two lines that have it in common are the same line."""
        if self.facility:
            return (self.time_ns, "", 0, self.stream, self.text.encode())
        return (self.time_ns, self.replica, self.attempt, self.stream, self.text.encode())


class LogPage(msgspec.Struct, frozen=True):
    """Lines in the order that was requested.

    ``total`` lines with ``total_bytes`` of text (in UTF-8) match in all (None: not requested). Lines of equal time are
    ordered by (replica, attempt, stream, text); newest first is that order reversed.
    """

    lines: list[LogLine]
    total: int | None = None
    total_bytes: int | None = None


def level_of(word: str) -> Level | None:
    """Return the level that a word or a digit of syslog means (``WARN``, ``fatal``, ``3``), in any case.

    None for any other word.
    """
    severity = severity_of(word)
    return None if severity is None else level_of_severity(severity)


_MARK = re.compile(r" \[(\d+) bytes cut\]\Z")


def cut_text(text: str) -> str:
    """The text, when it is short enough, else its beginning and how many bytes are missing."""
    encoded = text.encode()
    return text if len(encoded) <= MAX_TEXT_BYTES else cut_bytes(encoded, len(encoded))


def cut_bytes(beginning: bytes, length: int) -> str:
    """The text of a line of ``length`` bytes, more than a line may have, of which the beginning is known."""
    text = beginning[: MAX_TEXT_BYTES - len(f" [{length} bytes cut]")].decode(errors="ignore")
    return f"{text} [{length - len(text.encode())} bytes cut]"


def is_cut(text: str) -> bool:
    """Whether the text says that a part of the line is missing."""
    return _MARK.search(text) is not None
