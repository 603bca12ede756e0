"""Records of the kernel's log: https://www.kernel.org/doc/Documentation/ABI/testing/dev-kmsg."""

import os
import re
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

from jobmeter.collect.files import read_boot_id
from jobmeter.collect.syslog.base import LogReading, Position, SystemLogEntry
from jobmeter.model.syslog import name_facility

DEVICE = Path("/dev/kmsg")
_RECORD_BYTES = 16_384
_RECORDS = 2_000
_KEPT = 1_000
"""Newest records in memory, for the other consumers."""
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
    """Parse a record of the device, without its property lines; None for an invalid record."""
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

    def read(self) -> bytes | None:
        """Return the next record; None without one yet. Raises BrokenPipeError if records were overwritten."""
        try:
            return os.read(self._descriptor, _RECORD_BYTES)
        except BlockingIOError:
            return None

    def close(self) -> None:
        """Close the device."""
        os.close(self._descriptor)


class KernelReader:
    """Reader of the kernel's log for all consumers of the agent. Thread-safe.

    A consumer passes the number of its last record. The newest records stay in memory. For older ones the device is
    opened again. Without new records, a call costs one system call.
    """

    def __init__(self, connect: Callable[[], KernelLog] = KernelLog) -> None:
        self._connect = connect
        self._lock = Lock()
        self._device: KernelLog | None = None
        self._kept: deque[KernelRecord] = deque()
        self._floor = -1
        """Number above which all read records are in memory."""

    def read_after(self, last: int, most: int) -> list[KernelRecord]:
        """Return the oldest ``most`` records after number ``last``. Raises OSError if the device cannot be read."""
        with self._lock:
            if self._device is None or last < self._floor:
                self._open(last)
            has_more = bool(self._kept) and self._kept[-1].sequence > last
            found = [record for record in self._kept if record.sequence > last][:most] if has_more else []
            while len(found) < most and (record := self._read_next()) is not None:
                if record.sequence <= self._floor:
                    continue
                if len(self._kept) >= _KEPT:
                    self._floor = self._kept.popleft().sequence
                self._kept.append(record)
                if record.sequence > last:
                    found.append(record)
            return found

    def find_newest(self) -> int:
        """Return the number of the newest record, -1 without any. Raises OSError if the device cannot be read."""
        last = -1
        while records := self.read_after(last, _RECORDS):
            last = records[-1].sequence
        return last

    def close(self) -> None:
        """Close the device. The next call opens it again."""
        with self._lock:
            if self._device is not None:
                self._device.close()
                self._device = None

    def _open(self, last: int) -> None:
        """Open the device, to read the records after ``last``."""
        if self._device is not None:
            self._device.close()
            self._device = None
        self._device = self._connect()
        self._kept.clear()
        self._floor = last

    def _read_next(self) -> KernelRecord | None:
        while self._device is not None:
            try:
                data = self._device.read()
            except BrokenPipeError:
                continue  # the next record's number shows the number of missing records
            if not data:
                return None
            record = parse_record(data)
            if record is not None:
                return record
        return None


class KernelSource:
    """Kernel's log since the boot, or since a position of this boot.

    A position contains the offset of times, so that a record that is read again gets an equal time. A line counts the
    records that the kernel overwrote before they were read.
    """

    key = "kernel"
    stream = "kernel"

    def __init__(
        self,
        now_ns: Callable[[], int],
        since_boot_ns: Callable[[], int],
        *,
        reader: KernelReader | None = None,
        boot: Callable[[], str] = read_boot_id,
    ) -> None:
        self._now_ns = now_ns
        self._since_boot_ns = since_boot_ns
        self._reader = reader or KernelReader()
        self._boot = boot()

    def read(self, position: Position | None, until: Position | None = None) -> LogReading | None:
        """Return the next lines."""
        if position is None or position.get("boot") != self._boot:
            if until is not None:
                return None  # the records of an earlier start are gone
            return LogReading([], {"boot": self._boot, "sequence": -1, "anchor": self._anchor()}, more=True)
        last, anchor = int(position["sequence"]), int(position["anchor"])
        most = None if until is None else int(until["sequence"])
        records = self._reader.read_after(last, _RECORDS)
        entries: list[SystemLogEntry] = []
        for record in records:
            if most is not None and record.sequence > most:
                break
            if record.sequence > last + 1 and last >= 0:
                entries.append(_make_loss_entry(record, record.sequence - last - 1, anchor))
            entries.append(_entry(record, anchor))
            last = record.sequence
        if until is not None:
            return LogReading(entries, until, more=False) if entries else None
        if not entries:
            return None
        now = self._anchor()
        anchor = now if abs(now - anchor) > _DRIFT_NS else anchor
        end = {"boot": self._boot, "sequence": last, "anchor": anchor}
        return LogReading(entries, end, more=len(records) == _RECORDS)

    def close(self) -> None:
        """Close the device, also for its other consumers."""
        self._reader.close()

    def _anchor(self) -> int:
        """Return the time of the boot, by the current wall clock."""
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
        facility=name_facility(record.priority >> 3),
        pid=int(found[1] or found[2]) if found else None,
    )


def _make_loss_entry(record: KernelRecord, count: int, anchor: int) -> SystemLogEntry:
    text = f"[jobmeter: {count} records of the kernel are missing here, they were overwritten before they were read]"
    return SystemLogEntry(text, _time_ns(record, anchor) - 1, severity=4, facility="kern")
