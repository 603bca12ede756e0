"""XIDs of the kernel's log and of the driver, each once."""

from collections.abc import Sequence

from jobmeter.collect.base import RecordSource
from jobmeter.model.device import normalize_pci_address
from jobmeter.model.event import XID
from jobmeter.model.record import EventRecord, Records
from jobmeter.model.time import SECOND
from jobmeter.model.xid import read_xid

SAME_MS = 5 * SECOND
"""Longest time in ms between the two reports of one XID."""
_MOST = 1_000
"""Most reports that wait for their counterpart."""
_Report = tuple[str, int, int]
"""Address and code of an XID, and its time."""


class XidReports:
    """Record source: the events of ``kernel`` and of ``drivers``, each XID once.

    The kernel's line is the event, because it names the process and is in the system log. If the driver's report came
    first, the report is the event, and the line is left out.
    """

    def __init__(self, kernel: RecordSource, drivers: Sequence[RecordSource]) -> None:
        self._kernel = kernel
        self._drivers = drivers
        self._lines: list[_Report] = []
        self._reports: list[_Report] = []

    def take_records(self, now_ms: int) -> Records:
        """Return the events since the last call."""
        found = [event for driver in self._drivers for event in driver.take_records(now_ms).events]
        # The lines are read after the drivers' reports. So the line of each report is among them.
        lines = [event for event in self._kernel.take_records(now_ms).events if not self._is_reported(event)]
        self._lines = [*self._lines, *filter(None, map(_report_of, lines))][-_MOST:]
        # The driver repeats the last XID if several came at once: a line may match several events.
        events = [event for event in found if _find(self._lines, event) is None]
        self._reports = [*self._reports, *filter(None, map(_report_of, events))][-_MOST:]
        return Records(events=[*lines, *events])

    def _is_reported(self, line: EventRecord) -> bool:
        """Return True if a driver reported this line's XID before. Each report matches one line."""
        match = _find(self._reports, line)
        if match is not None:
            self._reports.remove(match)
        return match is not None


def _find(reports: Sequence[_Report], event: EventRecord) -> _Report | None:
    """Return the report that has the event's XID; None without a report or without an XID."""
    own = _report_of(event)
    near = (one for one in reports if own and one[:2] == own[:2] and abs(one[2] - own[2]) <= SAME_MS)
    return next(near, None)


def _report_of(event: EventRecord) -> _Report | None:
    xid = read_xid(event.message) if event.reason == XID else None
    return (normalize_pci_address(xid.device), xid.code, int(event.time)) if xid else None
