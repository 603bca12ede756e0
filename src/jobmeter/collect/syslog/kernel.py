"""Kernel's log, by its records.

Format: https://www.kernel.org/doc/Documentation/ABI/testing/dev-kmsg.
"""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from jobmeter.collect.files import boot_id
from jobmeter.collect.syslog.base import LogReading, Position, SystemLogEntry
from jobmeter.model.syslog import facility_name

DEVICE = Path("/dev/kmsg")
_RECORD_BYTES = 16_384
_RECORDS = 2_000
_DRIFT_NS = 1_000_000_000
"""Change of the wall clock in nanoseconds from which times are computed again."""
_ESCAPE = re.compile(rb"\\x([0-9a-f]{2})")
_PID = re.compile(r"\bpid[=:' ]{1,3}(\d{1,9})|[Pp]rocess (\d{1,9}) \(", re.ASCII)


@dataclass(frozen=True, slots=True)
class KernelRecord:
    """Record: ``priority`` is facility * 8 + severity, ``micros`` the time since the kernel began."""

    priority: int
    sequence: int
    micros: int
    text: str


def parse_record(data: bytes) -> KernelRecord | None:
    """Parse the record in a read of the device; None for an invalid one.

    Property lines after the first line are left out.
    """
    head, found, message = data.partition(b";")
    fields = head.split(b",")
    if not found or len(fields) < 3 or not all(field.isdigit() for field in fields[:3]):
        return None
    line = _ESCAPE.sub(lambda match: bytes([int(match[1], 16)]), message.split(b"\n", 1)[0])
    priority, sequence, micros = (int(field) for field in fields[:3])
    return KernelRecord(priority, sequence, micros, line.decode(errors="replace"))


class KernelLog:
    """Device ``/dev/kmsg``, from the oldest record that the kernel still has."""

    def __init__(self, path: Path = DEVICE) -> None:
        """Raise OSError if it is not readable."""
        self._descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)

    def skip(self) -> None:
        """Skip the existing records. Raises OSError if that is not possible."""
        os.lseek(self._descriptor, 0, os.SEEK_END)

    def read(self) -> bytes | None:
        """Return the next record; None without one yet.

        Raises BrokenPipeError if records were overwritten before.
        """
        try:
            return os.read(self._descriptor, _RECORD_BYTES)
        except BlockingIOError:
            return None

    def close(self) -> None:
        """Close the device."""
        os.close(self._descriptor)


class KernelSource:
    """Kernel's log since its start, or since a position of the current start.

    A position contains the offset of times, so that a record that is read again gets an equal time. Records that the
    kernel overwrote before they were read are counted in a line.
    """

    key = "kernel"
    stream = "kernel"

    def __init__(
        self,
        now_ns: Callable[[], int],
        since_boot_ns: Callable[[], int],
        *,
        connect: Callable[[], KernelLog] = KernelLog,
        boot: Callable[[], str] = boot_id,
    ) -> None:
        self._now_ns = now_ns
        self._since_boot_ns = since_boot_ns
        self._connect = connect
        self._boot = boot()
        self._device: KernelLog | None = None
        self._last = -1

    def read(self, position: Position | None, until: Position | None = None) -> LogReading | None:
        """Return the next lines."""
        if position is None or position.get("boot") != self._boot:
            if until is not None:
                return None  # the records of an earlier start are gone
            return LogReading([], {"boot": self._boot, "sequence": -1, "anchor": self._anchor()}, more=True)
        if self._device is None or self._last != int(position["sequence"]):
            self.close()
            self._device = self._connect()
        last, anchor = int(position["sequence"]), int(position["anchor"])
        most = None if until is None else int(until["sequence"])
        entries: list[SystemLogEntry] = []
        for _ in range(_RECORDS):
            record = self._next()
            if record is None:
                break
            if record.sequence <= last:
                continue
            if most is not None and record.sequence > most:
                self.close()  # records after ``until`` are read again
                break
            if record.sequence > last + 1 and last >= 0:
                entries.append(_missing(record, record.sequence - last - 1, anchor))
            entries.append(_entry(record, anchor))
            last = record.sequence
        else:
            return self._reading(entries, last, anchor, until, more=True)
        return self._reading(entries, last, anchor, until, more=False) if entries else None

    def close(self) -> None:
        """Close the device."""
        if self._device is not None:
            self._device.close()
            self._device = None

    def _reading(
        self, entries: list[SystemLogEntry], last: int, anchor: int, until: Position | None, *, more: bool
    ) -> LogReading:
        self._last = last
        if until is not None:
            self.close()
            return LogReading(entries, until, more)
        now = self._anchor()
        anchor = now if abs(now - anchor) > _DRIFT_NS else anchor
        return LogReading(entries, {"boot": self._boot, "sequence": last, "anchor": anchor}, more)

    def _next(self) -> KernelRecord | None:
        while self._device is not None:
            try:
                data = self._device.read()
            except BrokenPipeError:
                continue  # the next record's number tells how many are missing
            if data is None:
                return None
            record = parse_record(data)
            if record is not None:
                return record
        return None

    def _anchor(self) -> int:
        """Return the start of the kernel, by the current wall clock."""
        return self._now_ns() - self._since_boot_ns()


def _time_ns(record: KernelRecord, anchor: int) -> int:
    # Records of one microsecond get different times, in order.
    return anchor // 1_000_000 * 1_000_000 + record.micros * 1_000 + record.sequence % 1_000


def _entry(record: KernelRecord, anchor: int) -> SystemLogEntry:
    found = _PID.search(record.text)
    return SystemLogEntry(
        record.text,
        _time_ns(record, anchor),
        severity=record.priority & 7,
        facility=facility_name(record.priority >> 3),
        pid=int(found[1] or found[2]) if found else None,
    )


def _missing(record: KernelRecord, count: int, anchor: int) -> SystemLogEntry:
    text = f"[jobmeter: {count} records of the kernel are missing here, they were overwritten before they were read]"
    return SystemLogEntry(text, _time_ns(record, anchor) - 1, severity=4, facility="kern")
