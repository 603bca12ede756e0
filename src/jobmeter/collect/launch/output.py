"""Output of the replicas. Every byte is passed through, and recorded.

A stream to a terminal gets a pseudo-terminal, so that programs still draw progress bars and colours. Any other stream
gets a pipe. The controlling terminal and standard input stay the real ones, so that job control and keys work as usual.
"""

import errno
import fcntl
import logging
import os
import select
import selectors
import struct
import termios
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Thread

STREAMS = {"stdout": 1, "stderr": 2}
"""Recorded streams, by their original descriptor."""

_CHUNK = 65_536
_QUIET_SECONDS = 0.1
_LEFT_BYTES = 2**20

Sink = Callable[[str, str, bytes], None]
"""Function that gets the replica, the stream and the bytes."""

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Channel:
    """Stream of one replica: the replica's end (-1 after its start), and this process's end."""

    replica: str
    stream: str
    theirs: int
    ours: int


class CommandOutput:
    """Streams of all replicas. ``open`` comes before each start, ``start`` after the last one, ``finish`` at the end.

    A thread passes the bytes on, in order of arrival, and then calls ``sink``. Streams to different places have a
    thread each, so that a blocked one blocks no other. When the destination is closed, the replicas see a closed pipe,
    as without Jobmeter.
    """

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._channels: list[_Channel] = []
        self._threads: list[Thread] = []
        self._wakers: list[int] = []

    def open(self, replica: str) -> dict[str, int]:
        """Return descriptors for the streams of a replica that is about to be started, by stream."""
        theirs: dict[str, int] = {}
        for stream, target in STREAMS.items():
            try:
                channel = _Channel(replica, stream, *_ends(target))
            except OSError as error:
                _log.debug("%s is not taken: %s", stream, error)
                continue
            self._channels.append(channel)
            theirs[stream] = channel.theirs
        return theirs

    def start(self) -> None:
        """Begin to pass on the replicas' output."""
        self._hand_over()
        places: dict[tuple[int, int], list[_Channel]] = {}
        for channel in self._channels:
            place = os.fstat(STREAMS[channel.stream])
            places.setdefault((place.st_dev, place.st_ino), []).append(channel)
        for own in places.values():
            waker, woken = os.pipe()
            self._wakers.append(woken)
            thread = Thread(target=self._pass_on, args=(own, waker), name="output", daemon=True)
            self._threads.append(thread)
            thread.start()

    def resize(self) -> None:
        """Give the replicas' terminals the size of the real one."""
        for channel in self._channels:
            if channel.ours >= 0 and os.isatty(channel.ours):
                _copy_size(STREAMS[channel.stream], channel.ours)

    def finish(self, wait: Callable[[], bool]) -> None:
        """Return when all output of ended replicas has been passed on, or ``wait`` returns False.

        ``wait`` is called repeatedly. Remaining processes of the command are not awaited.
        """
        self._hand_over()
        for woken in self._wakers:
            os.close(woken)
        self._wakers.clear()
        while any(thread.is_alive() for thread in self._threads):
            if not wait():
                return

    def _hand_over(self) -> None:
        for channel in self._channels:
            if channel.theirs >= 0:
                os.close(channel.theirs)
                channel.theirs = -1

    def _pass_on(self, channels: Sequence[_Channel], waker: int) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(waker, selectors.EVENT_READ)
            for channel in channels:
                selector.register(channel.ours, selectors.EVENT_READ, channel)
            left: int | None = None  # bytes that may still come from remaining processes
            while len(selector.get_map()) > (1 if left is None else 0):
                ready = selector.select(None if left is None else _QUIET_SECONDS)
                if left is not None and (not ready or left < 0):
                    break
                for key, _ in ready:
                    if key.data is None:
                        selector.unregister(waker)
                        left = _LEFT_BYTES * len(channels)
                        continue
                    count = self._move(key.data, selector)
                    left = None if left is None else left - count
        os.close(waker)
        for channel in channels:
            self._close(channel)

    def _move(self, channel: _Channel, selector: selectors.BaseSelector) -> int:
        """Pass on the available bytes. Return their number."""
        data = _read(channel.ours)
        if data:
            open_still = _write(STREAMS[channel.stream], data)
            self._sink(channel.replica, channel.stream, data)
        else:
            open_still = False
        if not open_still:
            selector.unregister(channel.ours)
            self._close(channel)
        return len(data)

    @staticmethod
    def _close(channel: _Channel) -> None:
        if channel.ours >= 0:
            os.close(channel.ours)
            channel.ours = -1


def _ends(target: int) -> tuple[int, int]:
    """Return new descriptors to write to and to read from. Raises OSError if ``target`` is closed."""
    os.fstat(target)
    if not os.isatty(target):
        ours, theirs = os.pipe()
        return theirs, ours
    ours, theirs = os.openpty()
    attributes = termios.tcgetattr(target)
    # The real terminal converts line ends.
    attributes[1] &= ~termios.OPOST
    termios.tcsetattr(theirs, termios.TCSANOW, attributes)
    _copy_size(target, ours)
    return theirs, ours


def _copy_size(source: int, target: int) -> None:
    try:
        size = fcntl.ioctl(source, termios.TIOCGWINSZ, struct.pack("HHHH", 0, 0, 0, 0))
        fcntl.ioctl(target, termios.TIOCSWINSZ, size)
    except OSError as error:
        _log.debug("the size of the terminal is unknown: %s", error)


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, _CHUNK)
    except OSError as error:
        if error.errno != errno.EIO:  # the other end of a pseudo-terminal is closed
            _log.debug("output cannot be read: %s", error)
        return b""


def _write(descriptor: int, data: bytes) -> bool:
    """Write everything. False if the reader has closed its end."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(descriptor, view) :]
        except BlockingIOError:
            select.select([], [descriptor], [])
        except OSError as error:
            _log.debug("output cannot be passed on: %s", error)
            return False
    return True
