"""Nonces of signed requests, so that a captured request cannot be replayed.

A request is identified by its key, its nonce and its date. Each is remembered while its date lies inside the accepted
window, in memory and in a small file that survives the process. Memory is bounded: when it is full, the oldest minute
is dropped and requests dated in it are refused as stale. Without a file, requests dated before the start are refused
for the same reason.
"""

import errno
import logging
import os
import struct
import threading
from collections.abc import Iterable
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

from jobmeter.errors import UnavailableError
from jobmeter.model.time import MINUTE, SECOND, Clock, floor_to

WINDOW_MS = 15 * MINUTE
"""Largest difference in milliseconds between a signed request's date and the server's clock."""
MOST = 1_000_000
"""Largest number of remembered requests, about 100 MB."""

_MAGIC = b"JMN1"
_HEAD = struct.Struct("<4sQ")
_ENTRY = struct.Struct("<Q8s")
_SPARE = 65_536
_RETRY_SECONDS = 10.0
_LOG = logging.getLogger(__name__)


class NonceMemory:
    """Recent requests. Thread-safe."""

    is_alone = True
    """True while ``first`` answers from memory, because no other server accepts requests."""

    def __init__(self, clock: Clock, file: Path | None = None, *, window_ms: int = WINDOW_MS, most: int = MOST) -> None:
        """``file`` is created if missing; one process at a time may use it.

        Raises UnavailableError when the file cannot be used.
        """
        self._clock = clock
        self._window_ms = window_ms
        self._most = most
        self._file = file
        self._descriptor = -1
        self._lock = threading.Lock()
        self._minutes: dict[int, set[bytes]] = {}
        self._count = self._written = 0
        self._retry_at = 0.0
        # A signed date has whole seconds, so a request in the second of the start is accepted.
        self._floor_ms = floor_to(clock.now_ms(), SECOND)
        try:
            if file is not None:
                self._load(file)
            self._rewrite()
        except OSError as error:
            raise UnavailableError(f"{file} cannot be used: {error.strerror}") from error

    def fresh(self, date_ms: int) -> bool:
        """True if a request of that date may be accepted: its nonces are still remembered."""
        return date_ms >= self._floor_ms and abs(self._clock.now_ms() - date_ms) <= self._window_ms

    def first(self, key: str, nonce: str, date_ms: int) -> bool:
        """Remember a (key, nonce, date). True if it is new."""
        digest = digest_of(key, nonce)
        minute = date_ms // MINUTE
        with self._lock:
            contains = self._minutes.setdefault(minute, set())
            if digest in contains:
                return False
            contains.add(digest)
            self._count += 1
            self._write(minute, digest)
            if self._count > self._most:
                self._forget()
            return True

    def contains(self, key: str, nonce: str, date_ms: int) -> bool:
        """True if ``first`` was called with these values before."""
        digest = digest_of(key, nonce)
        with self._lock:
            return digest in self._minutes.get(date_ms // MINUTE, ())

    def entries(self) -> list[tuple[int, bytes]]:
        """List the remembered requests whose dates lie in the window: minute and digest."""
        expired = self._expired_minute()
        with self._lock:
            return [(minute, digest) for minute, some in self._minutes.items() if minute >= expired for digest in some]

    def adopt(self, entries: Iterable[tuple[int, bytes]], floor_ms: int) -> None:
        """Remember requests that other servers accepted, in memory only. Earlier dates than the floor are refused."""
        with self._lock:
            for minute, digest in entries:
                some = self._minutes.setdefault(minute, set())
                self._count += digest not in some
                some.add(digest)
            self._floor_ms = max(self._floor_ms, floor_ms)
            if self._count > self._most:
                self._forget()

    def close(self) -> None:
        """Close the file; later requests are remembered only in memory."""
        with self._lock:
            self._file = None
            self._release(-1)

    def _expired_minute(self) -> int:
        return (self._clock.now_ms() - self._window_ms) // MINUTE

    def _forget(self) -> None:
        expired = self._expired_minute()
        for minute in sorted(self._minutes):
            if minute >= expired and self._count <= self._most:
                break
            self._count -= len(self._minutes.pop(minute))
            self._floor_ms = max(self._floor_ms, (minute + 1) * MINUTE)

    def _write(self, minute: int, digest: bytes) -> None:
        try:
            if self._descriptor >= 0 and self._written <= 2 * self._count + _SPARE:
                self._append(minute, digest)
            elif self._file is not None and self._clock.monotonic() >= self._retry_at:
                self._forget()
                self._rewrite()
        except OSError as error:
            # A full disk must not stop readers: continue in memory. The mark makes the next start discard the file.
            _LOG.warning("%s cannot be written: %s", self._file, error)
            self._retry_at = self._clock.monotonic() + _RETRY_SECONDS
            self._release(-1)
            if self._file is not None:
                with suppress(OSError):
                    self._file.replace(_mark(self._file))

    def _append(self, minute: int, digest: bytes) -> None:
        _write_all(self._descriptor, _ENTRY.pack(minute, digest))
        self._written += 1

    def _load(self, file: Path) -> None:
        # The file is incomplete after a failed write, or has another format.
        data = file.read_bytes() if file.exists() else _HEAD.pack(_MAGIC, 0)
        if _mark(file).exists() or len(data) < _HEAD.size or not data.startswith(_MAGIC):
            return
        self._floor_ms = _HEAD.unpack_from(data)[1]
        # A half-written last entry, left by a crash, is ignored.
        whole = len(data) - (len(data) - _HEAD.size) % _ENTRY.size
        expired = self._expired_minute()
        for minute, digest in _ENTRY.iter_unpack(data[_HEAD.size : whole]):
            if minute >= expired:
                self._minutes.setdefault(minute, set()).add(digest)
        self._count = sum(len(contains) for contains in self._minutes.values())

    def _rewrite(self) -> None:
        if self._file is None:
            return
        part = self._file.with_name(f"{self._file.name}.part")
        part.unlink(missing_ok=True)
        descriptor = os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND, 0o600)
        try:
            entries = [_ENTRY.pack(minute, digest) for minute, contains in self._minutes.items() for digest in contains]
            _write_all(descriptor, _HEAD.pack(_MAGIC, self._floor_ms) + b"".join(entries))
            part.replace(self._file)
            _mark(self._file).unlink(missing_ok=True)
        except OSError:
            os.close(descriptor)
            raise
        self._release(descriptor)
        self._written = self._count

    def _release(self, successor: int) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = successor


def digest_of(key: str, nonce: str) -> bytes:
    """Return the 8 bytes by which a key and its nonce are remembered."""
    return blake2b(f"{key}\x1f{nonce}".encode(), digest_size=8).digest()


def _write_all(descriptor: int, data: bytes) -> None:
    if os.write(descriptor, data) != len(data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _mark(file: Path) -> Path:
    return file.with_name(f"{file.name}.incomplete")
