"""Failures of the replicas of a job: exit statuses, records, and the last lines of each."""

import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import takewhile

import msgspec

from jobmeter.diagnose.case import Case
from jobmeter.diagnose.thresholds import Numbers
from jobmeter.model.finding import Subject
from jobmeter.model.grouping import group_pairs
from jobmeter.model.job import JobState, Replica
from jobmeter.model.log import LogLine
from jobmeter.model.time import NS_PER_MS

_AFTER_MS = 5_000
"""Longest time by which a replica's last line may be dated after its end."""
_TAIL = 60
"""Last lines before an end that are searched for a cause if no exception ended the replica."""
_RANK = re.compile(r"^\s*(?:\[\w*rank\s*\d+\]|\[\d+\]|\d+):\s?", re.IGNORECASE)
_HEADER = "Traceback (most recent call last):"
_LONGEST_MARK = 200
_MARK = re.compile(r"(?:[|>\])\d]|\dZ|:) ?$", re.ASCII)
"""End of the prefix that a logger or launcher writes before each line, of equal length in all lines."""
_CHAIN = ("During handling of the above exception", "The above exception was the direct cause")
_FRAME = re.compile(r'^(.{0,200}?)  File "[^"\n]{1,4000}", line \d+')
"""A frame of a traceback behind its mark. The lines below it that are indented further quote the program's source."""
_EXCEPTION = re.compile(r"^(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?::\s|$)")


class Raised(msgspec.Struct, frozen=True):
    """A Python exception: its name and message, its time, its line, and the lines of its traceback."""

    text: str
    lines: tuple[LogLine, ...]
    time: int

    @property
    def name(self) -> str:
        """The exception's class, without its modules."""
        return self.text.partition(":")[0].strip().rpartition(".")[2]


class FailedReplica(msgspec.Struct, frozen=True, dict=True):
    """A failed replica, or the job if the record names no failed replica.

    ``end`` is in epoch ms. ``lines`` are its last lines. ``exit_code`` has the form of a shell: above 128 for a signal.
    """

    subject: Subject
    node: str
    end: int
    exit_code: int | None
    reason: str
    state: JobState | None
    lines: tuple[LogLine, ...]

    @property
    def signal(self) -> int | None:
        """The signal that ended the replica; None without a signal, or if it is unknown."""
        return self.exit_code - 128 if self.exit_code is not None and 128 < self.exit_code < 128 + 65 else None

    @cached_property
    def tail(self) -> tuple[LogLine, ...]:
        """The very last lines."""
        return self.lines[-_TAIL:]

    @cached_property
    def output(self) -> tuple[LogLine, ...]:
        """The lines without the source code that tracebacks quote: it names errors that did not happen."""
        marks: dict[str, int] = {}
        found = []
        for line in self.lines:
            if frame := _FRAME.match(line.text):
                marks[line.stream] = frame.end(1)
            elif line.stream in marks and line.text[marks[line.stream] :].startswith("    "):
                continue
            else:
                marks.pop(line.stream, None)
            found.append(line)
        return tuple(found)

    @cached_property
    def raised(self) -> Raised | None:
        """The exception that ended the replica; the first one of a chain. None if the last lines have none."""
        return _find_exception(self.lines)


def list_failed_replicas(case: Case, numbers: Numbers) -> list[FailedReplica]:
    """Return each failed replica (its last attempt) in the order of their ends; one for the job without any."""
    if case.job.state is JobState.SUCCEEDED:
        return []
    own = group_pairs((line.replica, line) for line in case.lines)
    last = {replica.name: replica for replica in sorted(case.view.replicas, key=lambda one: one.attempt)}
    found = [_make_failure(case, replica, own, numbers) for replica in last.values() if has_failed(replica)]
    if not found and case.job.state in {JobState.FAILED, JobState.STOPPED}:
        end = case.job.end if case.job.end is not None else case.span.end_ms
        job, lines = case.job, _select_last_lines(case.lines, end, numbers)
        subject = Subject("job", job.id)
        found = [FailedReplica(subject, "", end, job.exit_code, f"{job.error}".strip(), job.state, lines)]
    return sorted(found, key=lambda failure: failure.end)


def has_failed(replica: Replica) -> bool:
    """True for a replica that failed."""
    return bool(replica.exit_code) or replica.state is JobState.FAILED


def _make_failure(case: Case, replica: Replica, own: Mapping[str, list[LogLine]], numbers: Numbers) -> FailedReplica:
    end = next((time for time in (replica.end, case.job.end) if time is not None), case.span.end_ms)
    lines = own.get(replica.name, [])
    if not lines and len(case.view.replicas) == 1:
        lines = own.get("", [])
    return FailedReplica(
        Subject("replica", replica.name),
        replica.node,
        end,
        replica.exit_code,
        "; ".join(filter(None, (replica.reason, case.job.error if not replica.reason else ""))),
        replica.state,
        _select_last_lines(lines, end, numbers),
    )


def _select_last_lines(lines: Sequence[LogLine], end: int, numbers: Numbers) -> tuple[LogLine, ...]:
    first, last = end - numbers["window"], end + _AFTER_MS
    return tuple(line for line in lines if first <= line.time_ns / NS_PER_MS <= last)


def strip_rank(text: str) -> str:
    """Return the text without the launcher's rank prefix."""
    return _RANK.sub("", text, count=1)


def _mark_length(text: str) -> int | None:
    """Return the length of the mark before the header of a traceback, 0 for indentation; None for another line."""
    text = text.rstrip()
    if len(text) > _LONGEST_MARK or not text.endswith(_HEADER):
        return None
    mark = text[: -len(_HEADER)]
    if not mark.strip():
        return 0
    return len(mark) if _MARK.search(mark) else None


def _find_exception(lines: Sequence[LogLine]) -> Raised | None:
    """Return the exception of the last traceback; the first one of a chain."""
    # Two streams of a replica interleave: a traceback is read in its own.
    texts = [(strip_rank(line.text), line) for line in lines]
    headers = [at for at, (text, _) in enumerate(texts) if _mark_length(text) is not None]
    if not headers:
        return None
    first = len(headers) - 1
    while first > 0 and any(
        one in text for text, _ in texts[headers[first - 1] : headers[first]] for one in _CHAIN
    ):  # it was raised while another one was handled
        first -= 1
    begin = headers[first]
    end = headers[first + 1] if first + 1 < len(headers) else len(texts)
    stream = texts[begin][1].stream
    own = _strip_marks([one for one in texts[begin:end] if one[1].stream == stream])
    for at, (text, line) in enumerate(own[1:], 1):
        if text and not text[0].isspace() and _EXCEPTION.match(text):
            message = [other for other, _ in own[at : at + 12]]
            # The exception itself first, then where it was raised.
            shown = (line, *(one for _, one in own[max(0, at - 4) : at]))
            own_message = takewhile(lambda text: not text.startswith((*_CHAIN, _HEADER)), message)
            return Raised("\n".join(own_message), shown, line.time_ns // NS_PER_MS)
    return None


def _strip_marks(traceback: list[tuple[str, LogLine]]) -> list[tuple[str, LogLine]]:
    """Remove the prefix of a traceback's header from all lines, unless only the header has it."""
    header = traceback[0][0]
    length = _mark_length(header) or 0
    if not length or (len(traceback) > 1 and traceback[1][0][:1].isspace() > header[:1].isspace()):
        return traceback
    return [(text[length:], line) for text, line in traceback]
