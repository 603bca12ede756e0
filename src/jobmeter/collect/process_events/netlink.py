"""Sockets on which the kernel reports events, read in batches: https://man7.org/linux/man-pages/man7/netlink.7.html.

Only the kernel, and users who may change its networks, can send to such a socket.
"""

import ctypes
import errno
import os
import socket
import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

_MESSAGE = struct.Struct("=IHHII")
"""``struct nlmsghdr``: length, type, flags, sequence, port."""
HEADER = _MESSAGE.size
REQUEST, ACKNOWLEDGE = 1, 4
_ERROR, _DONE = 2, 3
_ATTRIBUTE = struct.Struct("=HH")
_INSTRUCTION = struct.Struct("=HBBI")
_ATTACH_FILTER = 26
_RECEIVE_BUFFER_FORCE = 33
_BUFFER = 4 * 1024 * 1024
"""Bytes of events that may wait in the kernel."""
_TOGETHER = 256
"""Messages that are read with one system call."""

LOAD, LOAD_BYTE, LOAD_LENGTH, TO_INDEX = 0x20, 0x30, 0x80, 0x07
IF_EQUAL, IF_EQUAL_INDEX, IF_ABOVE, IF_BITS = 0x15, 0x1D, 0x25, 0x45
_RETURN, _EVERYTHING = 0x06, 0xFFFF_FFFF
ACCEPT, DROP = "accept", "drop"


class NetlinkStep(NamedTuple):
    """Instruction of a classic BPF program, which the kernel runs for each message: kernel.org, networking/filter.

    A comparison continues at the step with the label ``true`` or ``false``; empty is the next step.
    """

    code: int
    number: int = 0
    true: str = ""
    false: str = ""
    label: str = ""


class _Vector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


class _Header(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_void_p),
        ("name_length", ctypes.c_uint32),
        ("vectors", ctypes.c_void_p),
        ("vector_count", ctypes.c_size_t),
        ("control", ctypes.c_void_p),
        ("control_length", ctypes.c_size_t),
        ("flags", ctypes.c_int),
    )


class _Slot(ctypes.Structure):
    _fields_ = (("header", _Header), ("length", ctypes.c_uint))


class EventSocket:
    """Netlink socket that never waits. For one thread.

    ``overruns`` counts how often the kernel dropped events because too many waited.
    """

    def __init__(self, family: int, groups: int, size: int, program: Sequence[NetlinkStep] = ()) -> None:
        """``size``: bytes of the longest message. Raises OSError if the socket is not permitted or not available."""
        self.overruns = 0
        self._socket = socket.socket(
            socket.AF_NETLINK, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK, family
        )
        try:
            if program:
                self.attach(program)
            try:
                self._socket.setsockopt(socket.SOL_SOCKET, _RECEIVE_BUFFER_FORCE, _BUFFER)
            except OSError:
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
            self._socket.bind((0, groups))
            self._receive = ctypes.CDLL(None, use_errno=True).recvmmsg
        except (OSError, AttributeError) as error:
            self._socket.close()
            raise error if isinstance(error, OSError) else OSError(errno.ENOSYS, "recvmmsg is not there") from error
        self.stride = -(-size // 8) * 8
        self.buffer = bytearray(self.stride * _TOGETHER)
        self._memory = (ctypes.c_char * len(self.buffer)).from_buffer(self.buffer)
        base = ctypes.addressof(self._memory)
        self._vectors = (_Vector * _TOGETHER)(
            *(_Vector(base + at * self.stride, self.stride) for at in range(_TOGETHER))
        )
        vectors = ctypes.addressof(self._vectors)
        self._slots = (_Slot * _TOGETHER)()
        for at, slot in enumerate(self._slots):
            slot.header.vectors = vectors + at * ctypes.sizeof(_Vector)
            slot.header.vector_count = 1

    def attach(self, program: Sequence[NetlinkStep]) -> None:
        """Let the kernel drop the messages that the program does not accept."""
        code = _assemble(program)
        memory = ctypes.create_string_buffer(code)
        length = len(code) // _INSTRUCTION.size
        self._socket.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, struct.pack("HP", length, ctypes.addressof(memory)))

    def fileno(self) -> int:
        """Return the descriptor, which is readable while events wait."""
        return self._socket.fileno()

    def send(self, kind: int, payload: bytes, flags: int = REQUEST) -> None:
        """Send one message to the kernel. Raises OSError."""
        port = self._socket.getsockname()[0]
        self._socket.send(_MESSAGE.pack(HEADER + len(payload), kind, flags, 1, port) + payload)

    def receive(self) -> int:
        """Read the waiting messages, at most 256, into ``buffer``, ``stride`` bytes apart. Return their number."""
        count = self._receive(self.fileno(), self._slots, _TOGETHER, socket.MSG_DONTWAIT, None)
        if count >= 0:
            return int(count)
        code = ctypes.get_errno()
        if code == errno.ENOBUFS:
            self.overruns += 1
            return self.receive()
        if code in {errno.EAGAIN, errno.EINTR}:
            return 0
        raise OSError(code, os.strerror(code))

    def measure(self, at: int) -> int:
        """Return the length of a message."""
        return int(self._slots[at].length)

    def read_messages(self) -> Iterator[bytes]:
        """Yield the waiting messages, for answers. Raises OSError if one is an error."""
        for at in range(self.receive()):
            message = bytes(self.buffer[at * self.stride : at * self.stride + self.measure(at)])
            kind = _MESSAGE.unpack_from(message)[1]
            if kind == _ERROR:
                (code,) = struct.unpack_from("=i", message, HEADER)
                if code:
                    raise OSError(-code, os.strerror(-code))
            elif kind != _DONE or len(message) > HEADER:
                yield message

    def close(self) -> None:
        """Close the socket."""
        with suppress(OSError):
            self._socket.close()


def _assemble(program: Sequence[NetlinkStep]) -> bytes:
    """Assemble the program as ``struct sock_filter``, with an end for accepted and one for dropped messages."""
    steps = [*program, NetlinkStep(_RETURN, _EVERYTHING, label=ACCEPT), NetlinkStep(_RETURN, 0, label=DROP)]
    places = {step.label: at for at, step in enumerate(steps) if step.label}

    def jump(at: int, label: str) -> int:
        return places[label] - at - 1 if label else 0

    return b"".join(
        _INSTRUCTION.pack(step.code, jump(at, step.true), jump(at, step.false), step.number)
        for at, step in enumerate(steps)
    )


def attribute(kind: int, value: bytes) -> bytes:
    """Build a padded attribute of a message."""
    made = _ATTRIBUTE.pack(_ATTRIBUTE.size + len(value), kind) + value
    return made + bytes(-len(made) % 4)


def parse_attributes(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Parse the attributes of a message: the kind of each, the position of its value, and the value."""
    at = 0
    while at + _ATTRIBUTE.size <= len(data):
        length, kind = _ATTRIBUTE.unpack_from(data, at)
        if length < _ATTRIBUTE.size:
            return
        yield kind, at + _ATTRIBUTE.size, data[at + _ATTRIBUTE.size : at + length]
        at += -(-length // 4) * 4
