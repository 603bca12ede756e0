"""Events from the kernel's log: errors of GPUs (XID, RAS), memory and disks, and out-of-memory kills."""

import re
from collections.abc import Callable
from contextlib import suppress

from msgspec.structs import replace

from jobmeter.collect.base import NodeIdentity, RecordSource, Samples
from jobmeter.collect.clock import read_elapsed_ns
from jobmeter.collect.syslog.kernel import KernelReader
from jobmeter.collect.text import escape_invalid
from jobmeter.model.device import normalize_pci_address
from jobmeter.model.event import DEVICE_FAULT, LEVEL_OF, XID, Level
from jobmeter.model.record import EventRecord, Records
from jobmeter.model.time import NS_PER_MS
from jobmeter.model.xid import read_xid

MOST_LINES = 2_000
"""Most lines of one tick. The rest waits in the kernel's buffer."""
MOST_EVENTS = 50
OOM_KILLING = "OOMKilling"
_LONGEST = 1_000
_SIGNS = (
    (OOM_KILLING, re.compile(r"(?:Memory cgroup out of memory|Out of memory): Killed process", re.IGNORECASE)),
    ("HardwareError", re.compile(r"\[Hardware Error\]|Uncorrected hardware memory error|EDAC .*\bUE\b")),
    ("DiskError", re.compile(r"I/O error, dev \S+|medium error, dev|nvme\S* .*(?:controller is down|timeout)")),
    ("FilesystemError", re.compile(r"EXT4-fs error|XFS \(\S+\): .*(?:orruption|shut ?down)|Remounting filesystem")),
    ("LinkDown", re.compile(r"\b(?:NIC )?Link is Down\b|Lost Carrier|link becomes not ready", re.IGNORECASE)),
)  # fmt: skip
_RAS = re.compile(
    r"\b\w+ (?P<device>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]): .*?"
    r"(?:(?<!Total )\b[1-9]\d* (?:new )?uncorrectable hardware errors detected in +\w+ block"
    r"|\buncorrectable hardware error ?\()"
)
"""Line of AMD's driver about new errors. Lines with totals repeat them."""


def parse_event(text: str, time_ms: int, place: NodeIdentity) -> EventRecord | None:
    """Return the event in a line of a node's kernel log; None without one."""
    xid = read_xid(text)
    if xid is not None:
        meaning = xid.meaning
        message = f"{text[:_LONGEST]} - {meaning.text}. {meaning.advice}"
        subject = f"device {xid.device}" if xid.device else ""
        return place.make_event(time_ms, LEVEL_OF[meaning.severity], XID, escape_invalid(message), subject=subject)
    ras = _RAS.search(text[:_LONGEST])
    if ras is not None:
        subject = f"device {normalize_pci_address(ras['device']) or ras['device']}"
        return place.make_event(time_ms, Level.ERROR, DEVICE_FAULT, escape_invalid(text[:_LONGEST]), subject=subject)
    for reason, sign in _SIGNS:
        if sign.search(text):
            return place.make_event(time_ms, Level.ERROR, reason, escape_invalid(text[:_LONGEST]))
    return None


class KernelWatch:
    """Record source: events in new lines of the kernel's log, none while the log is not readable.

    Lines from before the first successful reading are no events.
    """

    def __init__(
        self, place: NodeIdentity, reader: KernelReader, since_boot_ns: Callable[[], int] = read_elapsed_ns
    ) -> None:
        self._place = place
        self._reader = reader
        self._since_boot_ns = since_boot_ns
        self._last: int | None = None
        with suppress(OSError):
            self._last = reader.find_newest()

    def take_records(self, now_ms: int) -> Records:
        """Return at most 50 events, at the times of their lines.

        So an event and its line in the node's system log have equal node, time and text.
        """
        events: list[EventRecord] = []
        began_ms = now_ms - self._since_boot_ns() // NS_PER_MS
        try:
            if self._last is None:
                self._last = self._reader.find_newest()
            lines = self._reader.read_after(self._last, MOST_LINES)
        except OSError:
            return Records()
        for record in lines:
            if len(events) == MOST_EVENTS:
                break
            self._last = record.sequence
            event = parse_event(record.text, min(began_ms + record.micros // 1_000, now_ms), self._place)
            if event is not None and event.message not in {one.message for one in events}:
                events.append(event)
        return Records(events=events)


_COUNTER = "node.memory.oom.kills"


class NodeKills:
    """Record source: the events of ``kernel``, and the kills that only the node's counter shows.

    ``kernel`` None: the kernel's log is not read. ``watch`` gets the samples of a tick before ``take_records`` reads
    the lines. So a kill is counted before its line is read, or in the next tick.
    """

    def __init__(self, place: NodeIdentity, kernel: RecordSource | None) -> None:
        self._place = place
        self._kernel = kernel
        self._value: float | None = None
        self._time = 0
        self._grown = 0
        self._ahead = 0

    def watch(self, samples: Samples) -> None:
        """Read the counter. Its first reading is no kill; it includes kills of earlier lines."""
        for sample in samples:
            if sample.series.metric != _COUNTER:
                continue
            before, self._value, self._time = self._value, sample.value, sample.time_ms
            grown = 0 if before is None else max(0, int(sample.value - before))
            self._grown, self._ahead = max(0, grown - self._ahead), 0

    def take_records(self, now_ms: int) -> Records:
        """Return an event for each line, and one event for the kills without a line."""
        events = self._kernel.take_records(now_ms).events if self._kernel else []
        grown, self._grown = self._grown, 0
        lines = [place for place, event in enumerate(events) if event.reason == OOM_KILLING]
        for place in lines[:grown]:
            message = f"{events[place].message} - the node's counter of out-of-memory kills grew too."
            events[place] = replace(events[place], message=message)
        self._ahead += max(0, len(lines) - grown)
        if grown > len(lines):
            why = "shows no line of it" if self._kernel else "is not read"
            text = f"processes were killed because memory ran out; the kernel's log {why}."
            message = f"{grown - len(lines)} {text}"
            events.append(self._place.make_event(self._time, Level.ERROR, "SystemOOM", message))
        return Records(events=events)
