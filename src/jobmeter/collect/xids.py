"""XIDs that both the kernel's log and the driver report, each as one event."""

from collections.abc import Sequence

from jobmeter.collect.base import RecordSource
from jobmeter.model.device import pci_address
from jobmeter.model.event import XID
from jobmeter.model.record import EventRecord, Records
from jobmeter.model.time import SECOND
from jobmeter.model.xid import read_xid

SAME_MS = 5 * SECOND
"""Longest time between the two reports of one XID."""
_MOST = 1_000
"""Most reports that wait for their counterpart."""
_Key = tuple[str, int]


class XidReports:
    """Record source: the events of ``kernel`` and of ``drivers``, without the drivers' reports of lines of the kernel.

    The line is the event, because it names the process and is in the system log. If the driver's report came first, its
    line is left out.
    """

    def __init__(self, kernel: RecordSource, drivers: Sequence[RecordSource]) -> None:
        self._kernel = kernel
        self._drivers = drivers
        self._lines: list[tuple[_Key, int]] = []
        self._reports: list[tuple[_Key, int]] = []

    def records(self, now_ms: int) -> Records:
        """Return the events since the last call."""
        found = [event for driver in self._drivers for event in driver.records(now_ms).events]
        # The lines are read after the drivers' reports, so that the line of a report is there.
        lines = [event for event in self._kernel.records(now_ms).events if not self._is_reported(event)]
        self._lines = [*self._lines, *((key, line.time) for line in lines if (key := _key(line)))][-_MOST:]
        events = [event for event in found if not self._has_line(event)]
        self._reports = [*self._reports, *((key, event.time) for event in events if (key := _key(event)))][-_MOST:]
        return Records(events=[*lines, *events])

    def _is_reported(self, line: EventRecord) -> bool:
        """True if an earlier report of a driver is this line. A report stands for one line."""
        match = _find(self._reports, line)
        if match is not None:
            self._reports.remove(match)
        return match is not None

    def _has_line(self, event: EventRecord) -> bool:
        """True if a line reports the XID. The driver repeats an XID for several that came at once."""
        return _find(self._lines, event) is not None


def _find(reports: Sequence[tuple[_Key, int]], event: EventRecord) -> tuple[_Key, int] | None:
    key = _key(event)
    return next((one for one in reports if one[0] == key and abs(one[1] - event.time) <= SAME_MS), None)


def _key(event: EventRecord) -> _Key | None:
    """Return the address and the code of an XID; None for any other event."""
    xid = read_xid(event.message) if event.reason == XID else None
    return xid and (pci_address(xid.device), xid.code)
