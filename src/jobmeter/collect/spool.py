"""Frames on disk that wait for the server.

A spool is a folder of append-only segment files. Each is a sequence of frames as they go over the wire. Appended frames
survive the death of the process at any moment; a partial frame is truncated at the next start. A segment is deleted
once the server has acknowledged all of it. After a restart a partly acknowledged segment is sent again as a whole,
which the server counts once.
"""

import fcntl
import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

from jobmeter.collect.files import make_folder
from jobmeter.errors import ConflictError, InvalidRequestError
from jobmeter.wire.native.encode import count_samples
from jobmeter.wire.native.frame import MAGIC, Frame, read_frame
from jobmeter.wire.native.logs import read_line_times

_SUFFIX = ".frames"
_MOST_REJECTED = 64
"""Most refused bodies that are stored for inspection. The oldest are dropped first."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, order=True)
class SpoolPosition:
    """Position between two frames: a segment's number and a byte in it."""

    segment: int
    offset: int


@dataclass(frozen=True, slots=True)
class Batch:
    """Whole frames, oldest first, and the position after them."""

    body: bytes
    frames: int
    end: SpoolPosition


class Spool:
    """Bounded queue of frames in a folder that one process uses at a time. Thread-safe.

    ``dropped`` counts lost samples by reason: ``spool.full`` (the oldest, beyond the bound) and ``refused``
    (quarantined). ``dropped_lines`` counts log lines, ``losses`` the drops of frames of any kind, ``damaged`` the
    unreadable bytes.
    """

    def __init__(self, directory: Path, max_bytes: int = 256 * 2**20, segment_bytes: int = 2**20) -> None:
        """Open the folder, created if missing. Its file ``lock`` has the number of this process.

        Raises ConflictError if another process has it open.
        """
        make_folder(directory)
        self.directory = directory
        self.dropped: dict[str, int] = {"spool.full": 0, "refused": 0}
        self.dropped_lines = 0
        self.losses = 0
        self.damaged = 0
        self.max_bytes = max_bytes
        self._segment_bytes = segment_bytes
        self._lock = Lock()
        self._guard = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._guard, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._guard)
            raise ConflictError(f"another process uses the spool {directory}") from error
        os.ftruncate(self._guard, 0)
        os.write(self._guard, b"%d\n" % os.getpid())
        self._sizes = self._recover()
        self._read = SpoolPosition(min(self._sizes, default=0), 0)
        self._next = max(self._sizes, default=0) + 1
        self._active: int | None = None
        self._descriptor = -1

    @property
    def size(self) -> int:
        """Bytes that wait."""
        with self._lock:
            done = self._read.offset if self._read.segment in self._sizes else 0
            return sum(self._sizes.values()) - done

    def append(self, frame: bytes) -> None:
        """Store a frame. Raises OSError if the disk fails; then no part of it is stored."""
        with self._lock:
            self._make_room(len(frame))
            if self._active is None or self._sizes[self._active] >= self._segment_bytes:
                active = self._start_segment()
            else:
                active = self._active
            before = self._sizes[active]
            try:
                _write_all(self._descriptor, frame)
            except OSError:
                os.ftruncate(self._descriptor, before)
                raise
            self._sizes[active] = before + len(frame)

    def peek(self, max_bytes: int, max_frames: int = 2**31) -> Batch | None:
        """Return the oldest frames that fit ``max_bytes``, at least one; None without waiting frames."""
        with self._lock:
            while (segment := min(self._sizes, default=None)) is not None:
                start = self._read.offset if self._read.segment == segment else 0
                batch = self._read_frames(segment, start, max_bytes, max_frames)
                if batch is not None:
                    return batch
                self._remove(segment)
            return None

    def release(self, end: SpoolPosition) -> None:
        """Delete everything before ``end``, which the server has acknowledged."""
        with self._lock:
            for segment in [number for number in self._sizes if number < end.segment]:
                self._remove(segment)
            if self._sizes.get(end.segment) == end.offset:
                self._remove(end.segment)
            self._read = max(self._read, end)

    def set_aside(self, batch: Batch, reason: str) -> None:
        """Quarantine refused frames in the folder ``rejected``, and count them."""
        folder = self.directory / "rejected"
        with self._lock:
            self.losses += 1
            self._count(batch.body, "refused")
            try:
                folder.mkdir(exist_ok=True, mode=0o700)
                name = f"{batch.end.segment:012d}-{batch.end.offset:09d}"
                (folder / f"{name}{_SUFFIX}").write_bytes(batch.body)
                (folder / f"{name}.txt").write_text(reason + "\n", errors="backslashreplace")
                for old in sorted(folder.glob(f"*{_SUFFIX}"))[:-_MOST_REJECTED]:
                    old.unlink()
                    old.with_suffix(".txt").unlink(missing_ok=True)
            except OSError as error:
                _log.warning("a refused body could not be quarantined: %s", error)
        self.release(batch.end)

    def adopt(self, directory: Path) -> bool:
        """Take over the older frames of another spool, before the first ``append``.

        Returns False while another process uses it.
        """
        try:
            other = Spool(directory, self.max_bytes, self._segment_bytes)
        except (ConflictError, OSError):
            return False
        with self._lock:
            for segment, size in sorted(other.list_segments().items()):
                (directory / f"{segment:012d}{_SUFFIX}").rename(self._make_path(self._next))
                self._sizes[self._next] = size
                self._next += 1
        other.close()
        other.remove_folder()
        return True

    def list_waiting(self) -> Iterator[Frame]:
        """Yield the waiting frames, oldest first. Frames that are released meanwhile are skipped."""
        for segment in sorted(self.list_segments()):
            try:
                body = self._make_path(segment).read_bytes()
            except OSError:
                continue
            yield from _frames_of(body[self._read.offset if self._read.segment == segment else 0 :])

    def list_segments(self) -> dict[int, int]:
        """Return the bytes of each segment, by number."""
        return dict(self._sizes)

    def remove_folder(self) -> None:
        """Remove the folder of a closed spool, unless frames are left in it."""
        try:
            if not any(path.suffix == _SUFFIX for path in self.directory.rglob("*")):
                for path in self.directory.iterdir():
                    path.unlink()
                self.directory.rmdir()
        except OSError as error:
            _log.debug("the spool %s stays: %s", self.directory, error)

    def close(self) -> None:
        """Release the folder to other processes. Waiting frames stay."""
        with self._lock:
            self._finish_segment()
            os.close(self._guard)

    def _make_path(self, segment: int) -> Path:
        return self.directory / f"{segment:012d}{_SUFFIX}"

    def _recover(self) -> dict[int, int]:
        """Return the existing segments. A partial frame at the end of the last one is truncated."""
        found = sorted(path for path in self.directory.glob(f"*{_SUFFIX}") if path.stem.isdigit())
        sizes = {int(path.stem): path.stat().st_size for path in found}
        if found:
            last = int(found[-1].stem)
            whole = _measure_whole_frames(found[-1].read_bytes())
            if whole < sizes[last]:
                _log.warning("the last %d bytes of %s are a partial frame: truncated", sizes[last] - whole, found[-1])
                os.truncate(found[-1], whole)
                sizes[last] = whole
        for segment in [number for number, size in sizes.items() if size == 0]:
            self._make_path(segment).unlink()
            del sizes[segment]
        return sizes

    def _start_segment(self) -> int:
        self._finish_segment()
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_EXCL | os.O_CLOEXEC
        self._descriptor = os.open(self._make_path(self._next), flags, 0o600)
        self._active = self._next
        self._sizes[self._next] = 0
        self._next += 1
        return self._active

    def _finish_segment(self) -> None:
        if self._active is not None:
            os.close(self._descriptor)
            self._active = None

    def _remove(self, segment: int) -> None:
        if segment == self._active:
            self._finish_segment()
        del self._sizes[segment]
        self._make_path(segment).unlink(missing_ok=True)

    def _make_room(self, needed: int) -> None:
        while self._sizes and sum(self._sizes.values()) + needed > self.max_bytes:
            segment = min(self._sizes)
            start = self._read.offset if self._read.segment == segment else 0
            self.losses += 1
            try:
                self._count(self._make_path(segment).read_bytes()[start:], "spool.full")
            except OSError as error:
                _log.warning("a segment of the spool cannot be counted: %s", error)
            self._remove(segment)

    def _count(self, body: bytes, reason: str) -> None:
        for frame in _frames_of(body):
            self.dropped[reason] += count_samples(frame)
            self.dropped_lines += len(read_line_times(frame))

    def _read_frames(self, segment: int, start: int, max_bytes: int, max_frames: int) -> Batch | None:
        """Return the next frames of one segment; None without a whole frame left in it."""
        data = memoryview(self._make_path(segment).read_bytes())[: self._sizes[segment]]
        at = _find_next_frame(data, start)
        if at is None:
            self.damaged += len(data) - start
            return None
        self.damaged += at - start
        end, frames = at, 0
        while frames < max_frames:
            following = _end_of_frame(data, end)
            if following is None or (frames and following - at > max_bytes):
                break
            end, frames = following, frames + 1
        return Batch(bytes(data[at:end]), frames, SpoolPosition(segment, end))


def _write_all(descriptor: int, data: bytes) -> None:
    written = os.write(descriptor, data)
    if written != len(data):
        raise OSError(f"the disk accepted {written} of {len(data)} bytes")


def _end_of_frame(data: bytes | memoryview, offset: int) -> int | None:
    """Return the end of the frame at ``offset``; None if it is incomplete or damaged."""
    try:
        found = read_frame(data, offset)
    except InvalidRequestError:
        return None
    return found[1] if found else None


def _find_next_frame(data: memoryview, offset: int) -> int | None:
    """Return the first position at or after ``offset`` where an undamaged frame begins."""
    whole = b""
    while 0 <= offset < len(data):
        if _end_of_frame(data, offset) is not None:
            return offset
        whole = whole or bytes(data)
        offset = whole.find(MAGIC, offset + 1)
    return None


def _measure_whole_frames(data: bytes) -> int:
    """Return the length of the data up to the last whole frame. Earlier damage is left for the reader to skip."""
    view, end, at = memoryview(data), 0, _find_next_frame(memoryview(data), 0)
    while at is not None:
        while (following := _end_of_frame(view, at)) is not None:
            at = end = following
        at = _find_next_frame(view, at)
    return end


def _frames_of(body: bytes) -> Iterator[Frame]:
    """Yield the frames of a body; damaged parts are skipped."""
    view = memoryview(body)
    at = _find_next_frame(view, 0)
    while at is not None:
        found = read_frame(view, at)
        if found is None:
            return
        yield found[0]
        at = _find_next_frame(view, found[1])
