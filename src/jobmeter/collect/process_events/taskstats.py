"""Final figures of processes, as the kernel sends them when they end: ``include/uapi/linux/taskstats.h``.

They need CONFIG_TASKSTATS, the machine's own namespaces of processes and users, and CAP_NET_ADMIN.
"""

import errno
import os
import select
import struct
from collections.abc import Iterator
from typing import NamedTuple

from jobmeter.collect import files
from jobmeter.collect.process.stat import ProcessIo
from jobmeter.collect.process_events import netlink
from jobmeter.collect.process_events.netlink import ACCEPT, DROP, EventSocket, NetlinkStep

_GENERIC = struct.Struct("=BBH")
"""``struct genlmsghdr``: command, version, reserved."""
_BODY = netlink.HEADER + _GENERIC.size
_FAMILY = 16
_CONTROL, _GET_FAMILY, _NAME, _ID = 16, 3, 2, 1
_GET, _OF_PROCESS, _REGISTER = 1, 1, 3
_OF_TASK, _OF_GROUP, _STATS, _GROUP = 4, 5, 3, 2
_VERSION = struct.Struct("=H")
_NUMBER = struct.Struct("=I")
_RAN = struct.Struct("=72xQ")
_FIGURES = struct.Struct("=8xB63xQ48xI12xQ48xQ8xQQ16xQQ")
"""Part of ``struct taskstats``: flags, nanoseconds on a CPU, process, microseconds since the start, peak resident KiB.

Then the bytes that calls read and wrote, and the bytes read from and written to storage.
"""
_FLAG = 8
_LAST_THREAD, _FLAGGED_SINCE = 0x20, 12
"""The flag of a task that was the last one of its process, and the version of the structure that has it."""
_LONGEST = 2_048
_ANSWER_MS = 1_000
_KIB = 1_024


class TaskExit(NamedTuple):
    """Figures of a process that has ended, without its children. ``lived_seconds`` is the time since its start.

    ``io`` is absent if each of several threads had its own.
    """

    pid: int
    cpu_seconds: float
    lived_seconds: float
    memory_peak: float
    io: ProcessIo | None


class TaskStats(EventSocket):
    """Reports the ends of processes. For one thread."""

    def __init__(self) -> None:
        """Raise OSError if the kernel sends no figures to this process, or in an unknown layout."""
        super().__init__(_FAMILY, 0, _LONGEST)
        try:
            self._kind = self._find_family()
            self._at, self._end, version = self._find_layout()
            self._request(self._kind, _GET, _make_cpu_mask(), netlink.REQUEST | netlink.ACKNOWLEDGE)
            self._await_answer()
            self._flagged = version >= _FLAGGED_SINCE
            if self._flagged:
                # Most ends are ends of single threads, which are irrelevant here.
                flag = NetlinkStep(netlink.LOAD_BYTE, self._at + _FLAG)
                self.attach((flag, NetlinkStep(netlink.IF_BITS, _LAST_THREAD, true=ACCEPT, false=DROP)))
        except OSError:
            self.close()
            raise

    def read_ends(self) -> Iterator[TaskExit]:
        """Yield the waiting ends, oldest first, at most 256."""
        buffer, stride = self.buffer, self.stride
        for slot in range(self.receive()):
            start, length = slot * stride, self.measure(slot)
            if length < self._end:
                continue
            flags, ran, pid, lived, most, *called, read, written = _FIGURES.unpack_from(buffer, start + self._at)
            io: ProcessIo | None = ProcessIo(*map(float, (read, written, *called)))
            if length > self._end + _RAN.size:
                pid, ran = _read_group_usage(bytes(buffer[start + _BODY : start + length])) or (pid, ran)
                io = None
            elif self._flagged and not flags & _LAST_THREAD:
                continue
            yield TaskExit(pid, ran / 1e9, lived / 1e6, float(most * _KIB), io)

    def _find_family(self) -> int:
        """Return the kernel's number for this family of messages, which differs after each boot."""
        self._request(_CONTROL, _GET_FAMILY, netlink.attribute(_NAME, b"TASKSTATS\0"))
        for kind, _, value in netlink.parse_attributes(self._await_answer()[_BODY:]):
            if kind == _ID:
                return int(_VERSION.unpack(value)[0])
        raise OSError(errno.EOPNOTSUPP, "the kernel has no TASKSTATS")

    def _find_layout(self) -> tuple[int, int, int]:
        """Return the bounds and the version of the structure in a message, by the known number of this process."""
        self._request(self._kind, _GET, netlink.attribute(_OF_PROCESS, _NUMBER.pack(os.getpid())))
        for kind, at, value in netlink.parse_attributes(self._await_answer()[_BODY:]):
            for inner, start, stats in netlink.parse_attributes(value) if kind == _OF_TASK else ():
                if inner == _STATS and len(stats) >= _FIGURES.size and _FIGURES.unpack_from(stats)[2] == os.getpid():
                    begin = _BODY + at + start
                    return begin, begin + len(stats), int(_VERSION.unpack_from(stats)[0])
        raise OSError(errno.EOPNOTSUPP, "the layout of this kernel's TASKSTATS is unknown")

    def _request(self, kind: int, command: int, value: bytes, flags: int = netlink.REQUEST) -> None:
        self.send(kind, _GENERIC.pack(command, 1, 0) + value, flags)

    def _await_answer(self) -> bytes:
        """Wait for an answer; empty for an acknowledgement. Raises OSError for a refusal."""
        poll = select.poll()
        poll.register(self.fileno(), select.POLLIN)
        if not poll.poll(_ANSWER_MS):
            raise TimeoutError("the kernel does not answer")
        return next(self.read_messages(), b"")


def _read_group_usage(body: bytes) -> tuple[int, int] | None:
    """Return the number and the CPU time of a process of several threads; None without them."""
    for kind, _, value in netlink.parse_attributes(body):
        if kind == _OF_GROUP:
            found = {inner: part for inner, _, part in netlink.parse_attributes(value)}
            return _NUMBER.unpack(found[_GROUP])[0], _RAN.unpack_from(found[_STATS])[0]
    return None


def _make_cpu_mask() -> bytes:
    cpus = files.read_text("/sys/devices/system/cpu/possible") or "0"
    return netlink.attribute(_REGISTER, cpus.encode() + b"\0")
