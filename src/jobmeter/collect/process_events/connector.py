"""Starts and ends of processes: the kernel's process connector, ``include/uapi/linux/cn_proc.h``.

It needs CONFIG_PROC_EVENTS, the machine's own namespaces of processes, users and networks, and, before Linux 6.6,
CAP_NET_ADMIN.
"""

import select
import struct
import sys
from collections.abc import Iterator

from jobmeter.collect.process_events import netlink
from jobmeter.collect.process_events.netlink import ACCEPT, DROP, EventSocket, NetlinkStep

FORK, EXEC, EXIT = 1, 2, 0x8000_0000
_ANSWER = 0
_FAMILY, _GROUP = 11, 1
_LISTEN, _IGNORE = 1, 2
_CONNECTOR = struct.Struct("=IIIIHH")
"""``struct cn_msg``: index, value, sequence, acknowledged, length, flags."""
_EVENT = netlink.HEADER + _CONNECTOR.size
_DATA = _EVENT + 16
_STRIDE = 80
_MESSAGE = struct.Struct(f"={_EVENT}xI12x4I{_STRIDE - _DATA - 16}x")
"""``struct proc_event`` in its message: the kind of change, and four numbers that depend on the kind."""
_DONE = 3
_ANSWER_MS = 1_000


def _number(value: int) -> int:
    """Return a number in network order, as the program of a filter loads it."""
    return int.from_bytes(value.to_bytes(4, sys.byteorder), "big")


_BEGINS = (
    NetlinkStep(netlink.LOAD, _EVENT),
    NetlinkStep(netlink.IF_EQUAL, _number(EXEC), true=ACCEPT),
    NetlinkStep(netlink.IF_EQUAL, _number(_ANSWER), true=ACCEPT),
    NetlinkStep(netlink.IF_EQUAL, _number(FORK), true="fork"),
)
# The number of a process's first thread is the number of the process. Other threads are not of interest.
_ENDS = (
    NetlinkStep(netlink.IF_EQUAL, _number(EXIT), false=DROP),
    NetlinkStep(netlink.LOAD, _DATA),
    NetlinkStep(netlink.TO_INDEX),
    NetlinkStep(netlink.LOAD, _DATA + 4),
    NetlinkStep(netlink.IF_EQUAL_INDEX, true=ACCEPT, false=DROP),
)
_NO_ENDS = (NetlinkStep(netlink.IF_ABOVE, 0, true=DROP),)
_FORKS = (
    NetlinkStep(netlink.LOAD, _DATA + 8, label="fork"),
    NetlinkStep(netlink.TO_INDEX),
    NetlinkStep(netlink.LOAD, _DATA + 12),
    NetlinkStep(netlink.IF_EQUAL_INDEX, true=ACCEPT, false=DROP),
)


class Connector(EventSocket):
    """Reports forks, started programs (exec), and, with ``ends``, ends. For one thread."""

    def __init__(self, *, ends: bool) -> None:
        """Raise OSError if the kernel does not report events to this process."""
        super().__init__(_FAMILY, _GROUP, _STRIDE, (*_BEGINS, *(_ENDS if ends else _NO_ENDS), *_FORKS))
        try:
            self._request(_LISTEN)
            self._await_answer()
        except OSError:
            super().close()
            raise

    def read_changes(self) -> Iterator[tuple[int, int, int, int, int]]:
        """Yield the waiting changes, oldest first, at most 256.

        The first field is the kind. FORK has the number of the parent in the third field, and of the child in the last.
        EXEC and EXIT have the process in the third.
        """
        count = self.receive()
        return _MESSAGE.iter_unpack(memoryview(self.buffer)[: count * _STRIDE])

    def close(self) -> None:
        """Stop listening."""
        try:
            self._request(_IGNORE)
        finally:
            super().close()

    def _request(self, operation: int) -> None:
        payload = struct.pack("=I", operation)
        self.send(_DONE, _CONNECTOR.pack(1, 1, 0, 0, len(payload), 0) + payload)

    def _await_answer(self) -> None:
        """Wait for the answer, which contains an error number. Inside a process namespace there is no answer."""
        poll = select.poll()
        poll.register(self.fileno(), select.POLLIN)
        while poll.poll(_ANSWER_MS):
            for at in range(self.receive()):
                what, code, *_ = _MESSAGE.unpack_from(self.buffer, at * _STRIDE)
                if what == _ANSWER:
                    if code:
                        raise OSError(code, "the kernel does not report processes to this one")
                    return
        raise TimeoutError("the kernel does not answer: this is not the machine's own namespace of processes")
