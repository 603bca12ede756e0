"""Shards of a store: engines that may be away, or not be open yet."""

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Protocol, TypeVar

from jobmeter.errors import UnavailableError
from jobmeter.store.base import Store
from jobmeter.store.shards.away import get_missing_shards
from jobmeter.store.statement_lock import StatementLock

_log = logging.getLogger(__name__)
_Found = TypeVar("_Found")
_Part = TypeVar("_Part")
_THREADS = 16
"""Calls of one shard at a time that also ask other shards."""
_RETRY_AFTER_MS = 2_000


class ShardEngine(Store, Protocol):
    """The engine of one shard."""

    def is_answering(self) -> bool:
        """Return False while it certainly cannot be read: none of its servers with all data answers."""
        ...

    def cancel_move(self) -> str:
        """Let servers use the engine again after a move. Return the name of the other store; empty without a move."""
        ...


class Shard:
    """A shard, with threads of its own: a shard that is away delays no call of another one."""

    def __init__(self, number: int, count: int, opening: Callable[[], ShardEngine]) -> None:
        """``number`` counts from 1. ``opening`` opens the engine."""
        self.name = f"shard {number} of {count} of the telemetry store"
        self._opening = opening
        self._engine: ShardEngine | None = None
        self._reason = ""
        self._threads = ThreadPoolExecutor(_THREADS, f"jobmeter-shard-{number}")

    @property
    def engine(self) -> ShardEngine | None:
        """The open engine, None before it could be opened."""
        return self._engine

    @property
    def is_up(self) -> bool:
        """True unless it certainly cannot be read."""
        return self._engine is not None and self._engine.is_answering()

    def open(self) -> ShardEngine:
        """Open the engine. Raises what its constructor raises, and logs a new reason why it cannot be opened."""
        try:
            self._engine = engine = self._opening()
        except UnavailableError as error:
            if error.message != self._reason:
                self._reason = error.message
                _log.warning("%s is not open yet: %s", self.name, error.message)
            raise
        return engine

    def call(self, work: Callable[[ShardEngine], _Found], *, journaled: bool = False) -> _Found:
        """Call a function with the engine and return its result. Raises UnavailableError that names the shard.

        A ``journaled`` call may succeed while the servers of the shard are away; others fail at once then.
        """
        with self._reached(journaled=journaled) as engine:
            return work(engine)

    def stream(self, work: Callable[[ShardEngine], Iterator[_Found]]) -> Iterator[_Found]:
        """Call a function with the engine and yield its results. Raises UnavailableError that names the shard."""
        with self._reached() as engine:
            yield from work(engine)

    def begin(self, work: Callable[[ShardEngine], _Found], *, journaled: bool = False) -> "Future[_Found]":
        """Call a function with the engine on a thread."""
        return self._threads.submit(self.call, work, journaled=journaled)

    @contextmanager
    def _reached(self, *, journaled: bool = False) -> Iterator[ShardEngine]:
        engine = self._engine
        if engine is None or not (journaled or engine.is_answering()):
            raise self._unavailable("its servers do not answer", None)
        try:
            yield engine
        except UnavailableError as error:
            raise self._unavailable(error.message, error.retry_after_ms) from error

    def _unavailable(self, message: str, retry_after_ms: int | None) -> UnavailableError:
        return UnavailableError(f"{self.name}: {message}", retry_after_ms or _RETRY_AFTER_MS, is_partial=True)

    def close(self) -> None:
        """Close the engine, after the calls that run."""
        self._threads.shutdown()
        if self._engine is not None:
            self._engine.close()


def ask_some(
    shards: Sequence[Shard], parts: Mapping[int, _Part], work: Callable[[ShardEngine, _Part], _Found]
) -> dict[int, _Found]:
    """Run a function that reads. Where answers may lack rows (``may_lack``), shards that are away are left out."""
    missing = get_missing_shards()
    if missing is not None:
        here = {number: part for number, part in parts.items() if shards[number].is_up}
        if here and all(missing.leave_out(number) for number in parts.keys() - here.keys()):
            parts = here
    return ask_all(shards, parts, work)


def ask_all(
    shards: Sequence[Shard],
    parts: Mapping[int, _Part],
    work: Callable[[ShardEngine, _Part], _Found],
    *,
    journaled: bool = False,
) -> dict[int, _Found]:
    """Run a function for each of some shards with its part, at the same time. Return the results by shard.

    Raises the error of the first shard that failed, after all calls have ended.
    """
    works = {number: partial(_call, work, part) for number, part in parts.items()}
    if len(works) == 1:
        ((number, only),) = works.items()
        return {number: shards[number].call(only, journaled=journaled)}
    futures = {number: shards[number].begin(one, journaled=journaled) for number, one in works.items()}
    for future in futures.values():
        future.exception()
    return {number: future.result() for number, future in futures.items()}


def _call(work: Callable[[ShardEngine, _Part], _Found], part: _Part, engine: ShardEngine) -> _Found:
    return work(engine, part)


class ShardSet:
    """The shards of a store. Rows are on the first ``count`` of them; the others get rows, or lost them."""

    def __init__(self, shards: Sequence[Shard], count: int) -> None:
        self.shards = shards
        self.count = count
        self._lock = StatementLock()

    @contextmanager
    def keep_placement(self) -> Iterator[int]:
        """Return the number of shards that have rows. It does not change during the block. Do not nest blocks."""
        with self._lock.lock_shared():
            yield self.count

    def change(self, count: int, work: Callable[[], None], seconds: float) -> None:
        """Change the number of shards that have rows, and run a function before any call uses the new number.

        Raises UnavailableError, and changes nothing, if running calls take longer than some seconds. An error of the
        function leaves the new number.
        """
        with self._lock.lock_exclusive(seconds):
            self.count = count
            work()


class ShardOpening:
    """Opens the shards that were away at the start, on a thread."""

    SECONDS = 2.0
    """Seconds between two attempts."""

    def __init__(self, shards: Sequence[Shard], opened: Callable[[Shard], None]) -> None:
        self._shards = list(shards)
        self._opened = opened
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="jobmeter-shard-opening", daemon=True)
        if self._shards:
            self._thread.start()

    def _run(self) -> None:
        while self._shards and not self._over.wait(self.SECONDS):
            for shard in list(self._shards):
                try:
                    shard.open()
                    self._opened(shard)
                except UnavailableError:
                    continue
                except Exception:  # noqa: BLE001 - the other shards must still be opened
                    _log.exception("%s cannot be opened", shard.name)
                    continue
                _log.info("%s answers", shard.name)
                self._shards.remove(shard)

    def stop(self) -> None:
        """End the thread."""
        self._over.set()
        if self._thread.ident is not None:
            self._thread.join()
