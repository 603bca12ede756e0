"""Log lines: output of a job's processes, and the system log of a node."""

import re

import msgspec

from jobmeter.model.event import Level
from jobmeter.model.series import compute_job_key, compute_node_key
from jobmeter.model.syslog import convert_severity, parse_severity_word

MAX_TEXT_BYTES = 65_536
"""Most bytes of one line's text in UTF-8; a longer one is truncated, with a note."""

MAX_SYSTEM_NAME = 256
"""Longest name of a stream or a tag of a system log, in characters."""


class LogLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Line at ``time_ns`` (epoch nanoseconds), without its line end.

    (project, job, replica, attempt, stream, time, text) identify a line: a repeated line counts once. A sender gives
    lines of one stream strictly growing times, so that their order is preserved. ``level`` is absent if the line states
    none.

    A line with a ``facility`` belongs to the system log of its node: (project, node, stream, time, text) identify it.
    ``job`` and ``replica`` then name the job that it concerns, if known. ``severity`` is one of syslog's, from 0, the
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
        """Store key of the line, 64 bits: its job's, or its node's for a system log."""
        return compute_node_key(self.project, self.node) if self.facility else compute_job_key(self.project, self.job)

    @property
    def order(self) -> tuple[int, str, int, str, bytes]:
        """Sort key of the lines of one job or node; lines with equal keys are identical."""
        if self.facility:
            return (self.time_ns, "", 0, self.stream, self.text.encode())
        return (self.time_ns, self.replica, self.attempt, self.stream, self.text.encode())


class LogPage(msgspec.Struct, frozen=True):
    """Lines in the requested order.

    ``total`` lines with ``total_bytes`` of text (in UTF-8) match in all (None: not requested). Lines of equal time are
    ordered by (replica, attempt, stream, text); newest first reverses that order.
    """

    lines: list[LogLine]
    total: int | None = None
    total_bytes: int | None = None


def parse_level(word: str) -> Level | None:
    """Return the level of a word or syslog digit (``WARN``, ``fatal``, ``3``), in any case.

    None for any other word.
    """
    severity = parse_severity_word(word)
    return None if severity is None else convert_severity(severity)


_MARK = re.compile(r" \[(\d+) bytes cut\]\Z")


def cut_text(text: str) -> str:
    """Return the text if it is short enough, else its beginning and the number of missing bytes."""
    encoded = text.encode()
    return text if len(encoded) <= MAX_TEXT_BYTES else cut_bytes(encoded, len(encoded))


def cut_bytes(beginning: bytes, length: int) -> str:
    """Build the text of a line of ``length`` bytes, which exceeds the limit, from its beginning."""
    text = beginning[: MAX_TEXT_BYTES - len(f" [{length} bytes cut]")].decode(errors="ignore")
    return f"{text} [{length - len(text.encode())} bytes cut]"


def is_cut(text: str) -> bool:
    """True if the text states that a part of the line is missing."""
    return _MARK.search(text) is not None
