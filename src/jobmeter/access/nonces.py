"""Nonces of signed requests, so that a captured request cannot be replayed.

A request is identified by its key, its nonce and its date. Each is remembered while its date lies inside the accepted
window, in memory and in a small file that survives the process. Memory is bounded: when it is full, the oldest minute
is dropped and requests dated in it are refused as stale. Without a file, requests dated before the start are refused
for the same reason.
"""

import errno
import logging
import os
import socket
import struct
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

from jobmeter.errors import JobmeterError, UnavailableError
from jobmeter.model.time import MINUTE, SECOND, Clock, floor_to
from jobmeter.registry.batched import Batched
from jobmeter.registry.signatures import Signature, SignatureTable

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
    """True while ``remember`` answers from memory, because no other server accepts requests."""

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

    def is_fresh(self, date_ms: int) -> bool:
        """True if a request of that date may be accepted: its nonces are still remembered."""
        return date_ms >= self._floor_ms and abs(self._clock.now_ms() - date_ms) <= self._window_ms

    def remember(self, key: str, nonce: str, date_ms: int) -> bool:
        """Remember a (key, nonce, date). True if it is new."""
        digest = compute_digest(key, nonce)
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
        """True if ``remember`` was called with these values before."""
        digest = compute_digest(key, nonce)
        with self._lock:
            return digest in self._minutes.get(date_ms // MINUTE, ())

    def list_entries(self) -> list[tuple[int, bytes]]:
        """List the remembered requests whose dates lie in the window: minute and digest."""
        expired = self._expire_minute()
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

    def _expire_minute(self) -> int:
        return (self._clock.now_ms() - self._window_ms) // MINUTE

    def _forget(self) -> None:
        expired = self._expire_minute()
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
        expired = self._expire_minute()
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


def compute_digest(key: str, nonce: str) -> bytes:
    """Return the 8 bytes by which a key and its nonce are remembered."""
    return blake2b(f"{key}\x1f{nonce}".encode(), digest_size=8).digest()


def _write_all(descriptor: int, data: bytes) -> None:
    if os.write(descriptor, data) != len(data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _mark(file: Path) -> Path:
    return file.with_name(f"{file.name}.incomplete")


_log = logging.getLogger(__name__)
_CHUNK = 20_000
_FORGET_SECONDS = 60.0
_RETRY_AFTER_MS = 1_000


class SharedNonces(NonceMemory):
    """Nonces that one server or several servers accept. See ``jobmeter.registry.signatures``.

    While other servers accept requests, ``remember`` asks the registry, in one batch with all waiting calls. It raises
    UnavailableError if the registry does not answer.
    """

    def __init__(
        self,
        clock: Clock,
        file: Path,
        table: SignatureTable,
        check: Callable[[], None],
        *,
        most: int = MOST,
    ) -> None:
        """``check`` raises UnavailableError while another server may be alone.

        Other servers may accept requests before ``use_alone`` is called.
        """
        super().__init__(clock, file, most=most)
        self.is_alone = False
        self._table = table
        self._check = check
        self._server = f"{socket.gethostname()}:{file.absolute()}"
        self._wants_alone = False
        self._is_synchronized = False
        self._synchronizing = threading.Lock()
        self._changing = threading.Lock()  # guards ``is_alone``; never held during a call of the registry
        self._accept: Batched[Signature, bool] = Batched(self._accepted)
        self._forget_at = clock.monotonic() + _FORGET_SECONDS

    def use_alone(self, alone: bool) -> None:
        """Answer from memory while no other server accepts requests. See ``EngineUse.watch``."""
        with self._changing:
            self._wants_alone = alone
            self._is_synchronized = self.is_alone == alone and self._is_synchronized
            self.is_alone = self.is_alone and alone
        try:
            self._synchronize()
        except JobmeterError as error:
            _log.warning("accepted signatures are not shared with other servers yet: %s", error.message)

    def remember(self, key: str, nonce: str, date_ms: int) -> bool:
        """Remember a (key, nonce, date) on all servers. True if it is new. Raises UnavailableError."""
        found = self._from_memory(key, nonce, date_ms)
        if found is None and not self._is_synchronized:
            self._synchronize()
            found = self._from_memory(key, nonce, date_ms)
        if found is not None:
            return found
        if not self._accept(
            Signature(date_ms // MINUTE, int.from_bytes(compute_digest(key, nonce), "big", signed=True))
        ):
            return False
        return self.is_fresh(date_ms)  # the registry may have raised the floor

    def close(self) -> None:
        """Insert the remembered signatures into the registry, and close the file."""
        if self.is_alone:
            with suppress(JobmeterError):  # then the next server accepts only dates after its start
                self._hand_over()
        super().close()

    def _from_memory(self, key: str, nonce: str, date_ms: int) -> bool | None:
        with self._changing:
            return super().remember(key, nonce, date_ms) if self.is_alone else None

    def _synchronize(self) -> None:
        """Take the accepted signatures over from the registry, or hand them over to it. Raises UnavailableError."""
        with self._synchronizing:
            wanted = self._wants_alone
            if self._is_synchronized:
                return
            if wanted:
                found = self._table.take_ownership(self._server, self._clock.now_ms(), self._expire_minute())
                entries = [(one.minute, one.digest.to_bytes(8, "big", signed=True)) for one in found.signatures]
                self.adopt(entries, found.floor_ms)
            else:
                self._hand_over()
            with self._changing:
                if self._wants_alone == wanted:
                    self.is_alone = wanted
                    self._is_synchronized = True

    def _hand_over(self) -> None:
        """Insert the remembered signatures into the registry."""
        own = [Signature(minute, int.from_bytes(digest, "big", signed=True)) for minute, digest in self.list_entries()]
        for start in range(0, len(own), _CHUNK):
            self._insert(own[start : start + _CHUNK])
        self._table.disown(self._server)

    def _accepted(self, signatures: Sequence[Signature]) -> list[bool]:
        """Return for each signature whether it is new."""
        new = self._insert(signatures)
        if self._clock.monotonic() >= self._forget_at:
            self._forget_at = self._clock.monotonic() + _FORGET_SECONDS
            self._table.forget(self._expire_minute(), self._most)
        results = []
        for one in signatures:
            results.append(one in new)
            new.discard(one)
        return results

    def _insert(self, signatures: Sequence[Signature]) -> set[Signature]:
        """Insert signatures and return the new ones. Take the ownership away from a server that has ended."""
        found = self._table.accept(signatures, self._server)
        if found is None:
            self._check()
            self._table.take_over(self._server, self._clock.now_ms())
            found = self._table.accept(signatures, self._server)
        if found is None:
            raise UnavailableError("another server remembers the accepted signatures, try again", _RETRY_AFTER_MS)
        self.adopt((), found.floor_ms)
        return set(found.signatures)
