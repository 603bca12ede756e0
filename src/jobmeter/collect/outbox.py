"""Frames that the server has not acknowledged: on disk, or in memory while the disk fails."""

import logging
from collections import deque
from collections.abc import Iterator
from threading import Event, Lock

from jobmeter.collect.spool import Batch, Spool, SpoolPosition
from jobmeter.wire.native.encode import count_samples
from jobmeter.wire.native.frame import Frame, read_frame
from jobmeter.wire.native.logs import read_line_times

_log = logging.getLogger(__name__)


class Outbox:
    """Queue between the loop and the delivery, oldest frames first. Thread-safe.

    Without ``spool`` everything is in memory, at most ``memory_bytes``; beyond that the oldest frame is dropped and
    counted.
    """

    def __init__(self, spool: Spool | None, memory_bytes: int = 8 * 2**20) -> None:
        self._spool = spool
        self._memory: deque[bytes] = deque()
        self._memory_bytes = memory_bytes
        self._bytes = 0
        self._taken = 0
        self._dropped = 0
        self._dropped_lines = 0
        self._losses = 0
        self._failing = False
        self._lock = Lock()
        self.filled = Event()
        """Set when a frame was added."""

    @property
    def dropped(self) -> dict[str, int]:
        """Samples dropped so far, by reason."""
        counts = dict(self._spool.dropped) if self._spool else {}
        return {**counts, "memory.full": self._dropped}

    @property
    def dropped_lines(self) -> int:
        """Log lines dropped so far."""
        return self._dropped_lines + (self._spool.dropped_lines if self._spool else 0)

    @property
    def losses(self) -> int:
        """Number of times that frames of any kind were dropped."""
        return self._losses + (self._spool.losses if self._spool else 0)

    @property
    def size(self) -> int:
        """Bytes that wait."""
        return self._bytes + (self._spool.size if self._spool else 0)

    @property
    def capacity(self) -> int:
        """Approximate bytes that may wait before the oldest are dropped."""
        return self._spool.max_bytes if self._spool else self._memory_bytes

    @property
    def damaged(self) -> int:
        """Bytes on disk that could not be read."""
        return self._spool.damaged if self._spool else 0

    def put(self, frame: bytes, *, urgent: bool = True) -> bool:
        """Store a frame until it is delivered. True if it is on disk.

        A frame that is not ``urgent`` is sent with the next urgent one, or at a flush.
        """
        on_disk = self._append_to_spool(frame)
        if not on_disk:
            with self._lock:
                self._memory.append(frame)
                self._bytes += len(frame)
                while self._bytes > self._memory_bytes and len(self._memory) > 1:
                    self._drop(self._memory.popleft())
        if urgent:
            self.filled.set()
        return on_disk

    def peek(self, max_bytes: int, max_frames: int = 2**31) -> Batch | None:
        """Return the oldest frames: those on disk, then those in memory. See ``Spool.peek``."""
        batch = self._spool.peek(max_bytes, max_frames) if self._spool else None
        if batch is not None:
            return batch
        with self._lock:
            body, frames = b"", 0
            for frame in self._memory:
                if frames == max_frames or (frames and len(body) + len(frame) > max_bytes):
                    break
                body, frames = body + frame, frames + 1
            return Batch(body, frames, SpoolPosition(-1, self._taken + frames)) if frames else None

    def list_stored(self) -> Iterator[Frame]:
        """Yield the frames that wait on disk; see ``Spool.list_waiting``."""
        return self._spool.list_waiting() if self._spool else iter(())

    def release(self, end: SpoolPosition) -> None:
        """Remove delivered frames; see ``Spool.release``."""
        if end.segment >= 0 and self._spool:
            self._spool.release(end)
            return
        with self._lock:
            while self._memory and self._taken < end.offset:
                self._forget(self._memory.popleft())

    def set_aside(self, batch: Batch, reason: str) -> None:
        """Quarantine frames on disk, see ``Spool.set_aside``; frames in memory are dropped."""
        if batch.end.segment >= 0 and self._spool:
            self._spool.set_aside(batch, reason)
            return
        with self._lock:
            while self._memory and self._taken < batch.end.offset:
                self._drop(self._memory.popleft())

    def close(self) -> None:
        """Close the folder; frames on disk stay there."""
        if self._spool:
            self._spool.close()

    def _append_to_spool(self, frame: bytes) -> bool:
        if self._spool is None:
            return False
        try:
            self._spool.append(frame)
        except OSError as error:
            if not self._failing:
                _log.warning("the spool %s cannot be written (%s): using memory", self._spool.directory, error)
            self._failing = True
            return False
        self._failing = False
        return True

    def _forget(self, frame: bytes) -> None:
        self._bytes -= len(frame)
        self._taken += 1

    def _drop(self, frame: bytes) -> None:
        self._forget(frame)
        self._losses += 1
        found = read_frame(frame)
        if found:
            self._dropped += count_samples(found[0])
            self._dropped_lines += len(read_line_times(found[0]))
