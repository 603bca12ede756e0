"""Group commit: requests that arrive while an append runs share the next one, and its one sync to disk."""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Generic, TypeVar

from jobmeter.errors import JobmeterError, ThrottledError, UnavailableError
from jobmeter.model.batch import SampleBatch
from jobmeter.model.log import LogLine
from jobmeter.model.retention import Retention
from jobmeter.model.roster import SeriesList
from jobmeter.store.base import Store

_LOG = logging.getLogger(__name__)
_ROW_BYTES = 20
_SERIES_BYTES = 600
_NUMBER_BYTES = 24
"""Of a series that is known by its number, and its keys; the series itself is shared by all batches."""
_LINE_BYTES = 250
_RETRY_AFTER_MS = 1_000
_IDLE_SECONDS = 1.0
_GATHER_SECONDS = 0.002


T = TypeVar("T")


@dataclass(slots=True, eq=False)
class _Member(Generic[T]):
    content: T
    retention: Retention
    cost: int
    rows: int
    done: "Future[None] | asyncio.Future[None]"


class GroupCommit(Generic[T]):
    """One thread that keeps whatever has gathered, in the order of arrival.

    ``keep`` is called in that thread with what arrived; when it fails, all its senders fail. ``measure`` gives the
    memory (bytes) and the rows of something. ``queue_bytes`` bounds what may wait (a request that finds the queue empty
    is always taken), ``group_rows`` what one call may hold. ``idle`` is called when nothing came for a second, and at
    the end, and again while it says that there is more to do. ``what`` names it in messages.
    """

    def __init__(
        self,
        keep: Callable[[Sequence[T], Retention], None],
        measure: Callable[[T], tuple[int, int]],
        idle: Callable[[], bool],
        *,
        what: str,
        queue_bytes: int,
        group_rows: int,
    ) -> None:
        self._keep = keep
        self._measure = measure
        self._idle = idle
        self._what = what
        self._queue_bytes = queue_bytes
        self._group_rows = group_rows
        self._waiting: deque[_Member[T]] = deque()
        self._waiting_bytes = 0
        self._awaited = 1
        self._closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name=f"jobmeter-commit-{what}", daemon=True)
        self._thread.start()

    @property
    def waiting_bytes(self) -> int:
        """About how much memory the requests take that wait to be kept."""
        return self._waiting_bytes

    def admit(self, content: T) -> None:
        """Raise ThrottledError when the queue has no room for it now, UnavailableError after ``close``."""
        with self._changed:
            self._check(self._measure(content)[0])

    def append(self, content: T, retention: Retention) -> None:
        """Keep something; returns when it is durable.

        Raises ThrottledError when the queue is full, and what the store raised when it failed: then nothing of it may
        be taken as kept.
        """
        self.submit(content, retention).result()

    def submit(self, content: T, retention: Retention) -> Future[None]:
        """As ``append``, without waiting: what is given is done when it is durable, or has what the store raised.

        Raises ThrottledError when the queue is full.
        """
        done = Future[None]()
        self._put(_Member(content, retention, *self._measure(content), done))
        return done

    def begin(self, content: T, retention: Retention) -> "asyncio.Future[None]":
        """As ``submit``, for the event loop that runs. Raises ThrottledError when the queue is full."""
        done = asyncio.get_running_loop().create_future()
        self._put(_Member(content, retention, *self._measure(content), done))
        return done

    def close(self) -> None:
        """Refuse what comes from now on, keep what waits, and end the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _put(self, member: _Member[T]) -> None:
        with self._changed:
            self._check(member.cost)
            self._waiting.append(member)
            self._waiting_bytes += member.cost
            if len(self._waiting) == 1 or len(self._waiting) >= self._awaited:
                self._changed.notify()

    def _check(self, cost: int) -> None:
        if self._closed:
            raise UnavailableError("the server is shutting down")
        if self._waiting and self._waiting_bytes + cost > self._queue_bytes:
            raise ThrottledError(f"more {self._what} arrive than can be written now", _RETRY_AFTER_MS)

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._waiting and not self._closed:
                    self._changed.wait(_IDLE_SECONDS)
                self._gather()
                group = self._take()
                ended = self._closed and not group
            if group:
                self._commit(group)
                self._awaited = len(group) + len(self._waiting)
            else:
                self._rest()
            if ended:
                return

    def _gather(self) -> None:
        """Wait a moment for as many as there were the last time, in the group and behind it.

        Who was told is likely to send again: groups that take turns become one that costs half as much.
        """
        if 0 < len(self._waiting) < self._awaited and not self._closed:
            self._changed.wait(_GATHER_SECONDS)

    def _take(self) -> list[_Member[T]]:
        group: list[_Member[T]] = []
        rows = 0
        while self._waiting:
            head = self._waiting[0]
            if group and (rows + head.rows > self._group_rows or head.retention != group[0].retention):
                break
            group.append(self._waiting.popleft())
            self._waiting_bytes -= head.cost
            rows += head.rows
        return group

    def _commit(self, group: list[_Member[T]]) -> None:
        try:
            self._keep([member.content for member in group], group[0].retention)
        except Exception as error:  # noqa: BLE001  # every member waits for an answer, whatever went wrong
            _tell([member.done for member in group], error)
        else:
            _tell([member.done for member in group], None)

    def _rest(self) -> None:
        try:
            while self._idle() and (self._closed or not self._waiting):
                pass
        except JobmeterError as error:
            _LOG.warning("what the registry was to hear waits: %s", error.message)


def _tell(waiting: Sequence["Future[None] | asyncio.Future[None]"], error: Exception | None) -> None:
    """Let those who wait go on. An event loop is woken once for all of its own: each time costs more than the rest."""
    loops: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}
    for one in waiting:
        if isinstance(one, Future):
            _settle(one, error)
        else:
            loops.setdefault(one.get_loop(), []).append(one)
    for loop, own in loops.items():
        # A loop that is closed has nobody left who waits.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(_settle_all, own, error)


def _settle_all(waiting: Sequence["asyncio.Future[None]"], error: Exception | None) -> None:
    for one in waiting:
        if not one.done():
            _settle(one, error)


def _settle(one: "Future[None] | asyncio.Future[None]", error: Exception | None) -> None:
    if error is None:
        one.set_result(None)
    else:
        one.set_exception(error)


class Committer(GroupCommit[SampleBatch]):
    """Appends batches, in each of which a series is listed once.

    ``kept`` is called with the batches that the store has kept, before their senders are told; they fail when it fails.
    """

    def __init__(
        self,
        store: Store,
        kept: Callable[[Sequence[SampleBatch]], None],
        idle: Callable[[], bool],
        *,
        queue_bytes: int = 256 * 2**20,
        group_rows: int = 2_000_000,
    ) -> None:
        def keep(batches: Sequence[SampleBatch], retention: Retention) -> None:
            store.append_all(batches, retention)
            kept(batches)

        super().__init__(keep, _of_batch, idle, what="samples", queue_bytes=queue_bytes, group_rows=group_rows)


class LogCommitter(GroupCommit[Sequence[LogLine]]):
    """Appends log lines; ``kept`` as for ``Committer``."""

    def __init__(
        self,
        store: Store,
        kept: Callable[[Sequence[LogLine]], None],
        *,
        queue_bytes: int = 128 * 2**20,
        group_rows: int = 200_000,
    ) -> None:
        def keep(parts: Sequence[Sequence[LogLine]], retention: Retention) -> None:
            lines = [line for part in parts for line in part]
            store.append_logs(lines, retention)
            kept(lines)

        super().__init__(keep, _of_lines, _nothing, what="log lines", queue_bytes=queue_bytes, group_rows=group_rows)


def _of_batch(batch: SampleBatch) -> tuple[int, int]:
    series = _NUMBER_BYTES if isinstance(batch.series, SeriesList) else _SERIES_BYTES
    return _ROW_BYTES * len(batch) + series * len(batch.series), len(batch)


def _of_lines(lines: Sequence[LogLine]) -> tuple[int, int]:
    return sum(len(line.text) + _LINE_BYTES for line in lines), len(lines)


def _nothing() -> bool:
    """There is nothing to do while nothing comes."""
    return False
