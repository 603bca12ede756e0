"""Nonces of requests to several servers: in memory while a server is alone, else in the registry."""

import logging
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from jobmeter.access.nonces import MOST, WINDOW_MS, NonceMemory, digest_of
from jobmeter.errors import JobmeterError, UnavailableError
from jobmeter.model.time import MINUTE, Clock
from jobmeter.registry.batched import Batched
from jobmeter.registry.signatures import Signature, SignatureTable

_log = logging.getLogger(__name__)
_CHUNK = 20_000
_FORGET_SECONDS = 60.0
_RETRY_AFTER_MS = 1_000


class SharedNonces(NonceMemory):
    """Nonces that one server or several servers accept. See ``jobmeter.registry.signatures``.

    Among others ``first`` asks the registry, together with all other calls that wait, and raises UnavailableError if
    the registry does not answer.
    """

    def __init__(
        self,
        clock: Clock,
        file: Path,
        table: SignatureTable,
        check: Callable[[], None],
        *,
        window_ms: int = WINDOW_MS,
        most: int = MOST,
    ) -> None:
        """``check`` raises UnavailableError while another server may be alone.

        Other servers may accept requests before ``use_alone`` is called.
        """
        super().__init__(clock, file, window_ms=window_ms, most=most)
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

    def first(self, key: str, nonce: str, date_ms: int) -> bool:
        """Remember a (key, nonce, date) on all servers. True if it is new. Raises UnavailableError."""
        found = self._from_memory(key, nonce, date_ms)
        if found is None and not self._is_synchronized:
            self._synchronize()
            found = self._from_memory(key, nonce, date_ms)
        if found is not None:
            return found
        if not self._accept(Signature(date_ms // MINUTE, int.from_bytes(digest_of(key, nonce), "big", signed=True))):
            return False
        return self.fresh(date_ms)  # the registry may have raised the floor

    def close(self) -> None:
        """Insert the remembered signatures into the registry, and close the file."""
        if self.is_alone:
            with suppress(JobmeterError):  # then the next server accepts only dates after its start
                self._hand_over()
        super().close()

    def _from_memory(self, key: str, nonce: str, date_ms: int) -> bool | None:
        with self._changing:
            return super().first(key, nonce, date_ms) if self.is_alone else None

    def _synchronize(self) -> None:
        """Bring the registry and the memory to the wanted state. Raises UnavailableError if the registry is away."""
        with self._synchronizing:
            wanted = self._wants_alone
            if self._is_synchronized:
                return
            if wanted:
                found = self._table.own(self._server, self._clock.now_ms(), self._expired_minute())
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
        own = [Signature(minute, int.from_bytes(digest, "big", signed=True)) for minute, digest in self.entries()]
        for start in range(0, len(own), _CHUNK):
            self._insert(own[start : start + _CHUNK])
        self._table.disown(self._server)

    def _accepted(self, signatures: Sequence[Signature]) -> list[bool]:
        """Return for each signature whether it is new."""
        new = self._insert(signatures)
        if self._clock.monotonic() >= self._forget_at:
            self._forget_at = self._clock.monotonic() + _FORGET_SECONDS
            self._table.forget(self._expired_minute(), self._most)
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
