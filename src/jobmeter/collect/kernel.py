"""Events from the kernel's log: errors of GPUs (XID), memory and disks, processes killed for memory."""

import os
import re
from collections.abc import Callable
from contextlib import suppress

from jobmeter.collect.base import Place
from jobmeter.collect.clock import elapsed_ns
from jobmeter.collect.syslog.kernel import Record, parse_record
from jobmeter.collect.text import valid_text
from jobmeter.model.event import Level
from jobmeter.model.finding import Severity
from jobmeter.model.record import EventRecord, Records
from jobmeter.model.xid import read_xid

MOST_LINES = 2_000
"""Lines read in one tick; the rest waits in the kernel's own buffer."""
MOST_EVENTS = 50
OOM_KILLING = "OOMKilling"
_LINE_BYTES = 8_192
_LONGEST = 1_000
_NS = 1_000_000
_NOTHING = Record(0, 0, 0, "")
_LEVELS = {Severity.INFO: Level.INFO, Severity.WARNING: Level.WARNING, Severity.CRITICAL: Level.ERROR}
_SIGNS = (
    (OOM_KILLING, re.compile(r"(?:Memory cgroup out of memory|Out of memory): Killed process", re.IGNORECASE)),
    ("HardwareError", re.compile(r"\[Hardware Error\]|Uncorrected hardware memory error|EDAC .*\bUE\b")),
    ("DiskError", re.compile(r"I/O error, dev \S+|medium error, dev|nvme\S* .*(?:controller is down|timeout)")),
    ("FilesystemError", re.compile(r"EXT4-fs error|XFS \(\S+\): .*(?:orruption|shut ?down)|Remounting filesystem")),
    ("LinkDown", re.compile(r"\b(?:NIC )?Link is Down\b|Lost Carrier|link becomes not ready", re.IGNORECASE)),
)  # fmt: skip


def event_of_line(text: str, time_ms: int, place: Place) -> EventRecord | None:
    """The event of a node in a line of its kernel; None where there is none."""
    xid = read_xid(text)
    if xid is not None:
        meaning = xid.meaning
        message = f"{text[:_LONGEST]} - {meaning.text}. {meaning.advice}"
        subject = f"device {xid.device}" if xid.device else ""
        return place.event(time_ms, _LEVELS[meaning.severity], "Xid", valid_text(message), subject=subject)
    for reason, sign in _SIGNS:
        if sign.search(text):
            return place.event(time_ms, Level.ERROR, reason, valid_text(text[:_LONGEST]))
    return None


class KernelWatch:
    """See ``RecordSource``. Reads new lines of the kernel's log; none where it may not be read."""

    def __init__(self, place: Place, path: str = "/dev/kmsg", since_boot_ns: Callable[[], int] = elapsed_ns) -> None:
        self._place = place
        self._since_boot_ns = since_boot_ns
        self._file: int | None = None
        with suppress(OSError):
            self._file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.lseek(self._file, 0, os.SEEK_END)

    def records(self, now_ms: int) -> Records:
        """See ``RecordSource.records``: at most 50 events, at the times of their lines.

        So an event and the same line in the system log of its node have the same node, time and text.
        """
        events: list[EventRecord] = []
        began_ms = now_ms - self._since_boot_ns() // _NS
        for _ in range(MOST_LINES):
            record = self._next() if len(events) < MOST_EVENTS else None
            if record is None:
                break
            event = event_of_line(record.text, min(began_ms + record.micros // 1_000, now_ms), self._place)
            if event is not None and event.message not in {one.message for one in events}:
                events.append(event)
        return Records(events=events)

    def _next(self) -> Record | None:
        """The next message; an empty one where the kernel has overwritten it, None for none."""
        if self._file is None:
            return None
        try:
            line = os.read(self._file, _LINE_BYTES)
        except BrokenPipeError:  # the reader was too slow: the next read gives the oldest that is left
            return _NOTHING
        except OSError:
            return None
        return (parse_record(line) or _NOTHING) if line else None
