"""Group commit: requests that arrive during a commit share the next one, and its single sync to disk.

This is the only queue between a request and the disk. It lies above the store rather than inside its journal, because
the group also shares the other steps. Descriptors, marks of late hours and rows of the window are written before the
sync. The registry is updated after it.
"""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from time import monotonic
from typing import Generic, TypeVar

import msgspec

from jobmeter.errors import JobmeterError, ThrottledError, UnavailableError
from jobmeter.model.batch import SampleBatch
from jobmeter.model.log import LogLine
from jobmeter.model.log_batch import LogBatch
from jobmeter.model.retention import Retention
from jobmeter.model.series_table import SeriesList
from jobmeter.model.span import Span
from jobmeter.store.base import Store

_LOG = logging.getLogger(__name__)
_ROW_BYTES = 20
_SERIES_BYTES = 600
_NUMBER_BYTES = 24
"""Bytes of a series identified by its number, and its keys. All batches share the series itself."""
_LINE_BYTES = 250
_SPAN_BYTES = 4_000
_RETRY_AFTER_MS = 1_000
_IDLE_SECONDS = 1.0
_SHORTEST_GATHER, _LONGEST_GATHER = 0.002, 0.02
"""Bounds in seconds of the wait for further requests; between them it is as long as the last commit."""


T = TypeVar("T")


class _Waiting(msgspec.Struct, Generic[T], eq=False):
    content: T
    retention: Retention
    cost: int
    rows: int
    done: "Future[None] | asyncio.Future[None]"


class GroupCommit(Generic[T]):
    """Commits everything that is waiting, in the order of arrival, in one thread.

    ``commit`` is called in that thread with the waiting contents, and returns when they are durable. If it fails, all
    their futures fail. If it fails because a part of the store is unavailable, each content is committed alone.
    ``measure`` returns the memory (bytes) and the rows of a content. ``queue_bytes`` bounds the queue; an empty queue
    accepts a content of any size. ``group_rows`` bounds one call. ``idle`` is called after a second without requests,
    at the end, and again while it returns True. ``what`` names the contents in messages.
    """

    def __init__(
        self,
        commit: Callable[[Sequence[T], Retention], None],
        measure: Callable[[T], tuple[int, int]],
        idle: Callable[[], bool] = lambda: False,
        *,
        what: str,
        queue_bytes: int,
        group_rows: int,
    ) -> None:
        self._commit = commit
        self._measure = measure
        self._idle = idle
        self._what = what
        self.queue_bytes = queue_bytes
        self._group_rows = group_rows
        self._waiting: deque[_Waiting[T]] = deque()
        self._waiting_bytes = 0
        self._awaited = 1
        self._patience = _SHORTEST_GATHER
        self._closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name=f"jobmeter-commit-{what}", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Number of requests that wait for their commit."""
        return len(self._waiting)

    @property
    def waiting_bytes(self) -> int:
        """Bytes of the requests that wait for their commit, about."""
        return self._waiting_bytes

    def check_room(self, content: T) -> None:
        """Raise ThrottledError if the queue has no room for the content now, UnavailableError after ``close``."""
        with self._changed:
            self._check(self._measure(content)[0])

    def append(self, content: T, retention: Retention) -> Future[None]:
        """Queue the content. Return a future that is done when it is durable, or that has the store's error.

        After an error no part of the content may be assumed durable. Raises as ``check_room``.
        """
        done = Future[None]()
        self._put(_Waiting(content, retention, *self._measure(content), done))
        return done

    def append_from_loop(self, content: T, retention: Retention) -> "asyncio.Future[None]":
        """Queue the content from the thread of an event loop, which is woken once for a whole group. See ``append``."""
        done = asyncio.get_running_loop().create_future()
        self._put(_Waiting(content, retention, *self._measure(content), done))
        return done

    def close(self) -> None:
        """Reject new requests, commit the waiting ones, and end the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _put(self, member: _Waiting[T]) -> None:
        with self._changed:
            self._check(member.cost)
            self._waiting.append(member)
            self._waiting_bytes += member.cost
            if len(self._waiting) == 1 or len(self._waiting) >= self._awaited:
                self._changed.notify()

    def _check(self, cost: int) -> None:
        if self._closed:
            raise UnavailableError("the server is shutting down")
        if self._waiting and self._waiting_bytes + cost > self.queue_bytes:
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
                began = monotonic()
                self._commit_group(group)
                self._patience = min(max(monotonic() - began, _SHORTEST_GATHER), _LONGEST_GATHER)
                self._awaited = len(group) + len(self._waiting)
            else:
                self._do_idle_work()
            if ended:
                return

    def _gather(self) -> None:
        """Wait briefly for as many requests as the last group and its queue had.

        Acknowledged senders are likely to send again: two alternating groups become one group at half the cost. The
        wait is at most as long as the last commit, because a longer one would cost more time than it saves.
        """
        if 0 < len(self._waiting) < self._awaited and not self._closed:
            self._changed.wait(self._patience)

    def _take(self) -> list[_Waiting[T]]:
        group: list[_Waiting[T]] = []
        rows = 0
        while self._waiting:
            head = self._waiting[0]
            if group and (rows + head.rows > self._group_rows or head.retention != group[0].retention):
                break
            group.append(self._waiting.popleft())
            self._waiting_bytes -= head.cost
            rows += head.rows
        return group

    def _commit_group(self, group: list[_Waiting[T]]) -> None:
        failure: Exception | None = None
        try:
            self._commit([member.content for member in group], group[0].retention)
        except UnavailableError as error:
            if error.is_partial and len(group) > 1:
                for member in group:  # only the members that need the missing part fail
                    self._commit_group([member])
                return
            failure = error
        except Exception as error:  # noqa: BLE001  # every member waits for an answer, whatever went wrong
            failure = error
        _resolve([member.done for member in group], failure)

    def _do_idle_work(self) -> None:
        try:
            while self._idle() and (self._closed or not self._waiting):
                pass
        except JobmeterError as error:
            _LOG.warning("the report to the registry waits: %s", error.message)
        except Exception:  # noqa: BLE001 - without this thread every later request would wait for ever
            _LOG.exception("the report to the registry waits")


def _resolve(waiting: Sequence["Future[None] | asyncio.Future[None]"], error: Exception | None) -> None:
    """Resolve futures. Each event loop is woken once for all its futures: waking costs more than the rest."""
    loops: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}
    for one in waiting:
        if isinstance(one, Future):
            _set(one, error)
        else:
            loops.setdefault(one.get_loop(), []).append(one)
    for loop, own in loops.items():
        # No caller waits on a closed loop.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(_set_all, own, error)


def _set_all(waiting: Sequence["asyncio.Future[None]"], error: Exception | None) -> None:
    for one in waiting:
        if not one.done():
            _set(one, error)


def _set(one: "Future[None] | asyncio.Future[None]", error: Exception | None) -> None:
    if error is None:
        one.set_result(None)
    else:
        one.set_exception(error)


class SampleCommitter(GroupCommit[SampleBatch]):
    """Appends batches, in each of which a series is listed once.

    ``observe`` is called with the durable batches before their futures are resolved. If it fails, the futures fail.
    """

    def __init__(
        self,
        store: Store,
        observe: Callable[[Sequence[SampleBatch]], None],
        idle: Callable[[], bool],
        *,
        queue_bytes: int = 256 * 2**20,
    ) -> None:
        def commit(batches: Sequence[SampleBatch], retention: Retention) -> None:
            store.append_all(batches, retention)
            observe(batches)

        super().__init__(commit, _measure_batch, idle, what="samples", queue_bytes=queue_bytes, group_rows=2_000_000)


class LogCommitter(GroupCommit[Sequence[LogLine]]):
    """Appends log lines; ``observe`` as for ``SampleCommitter``.

    ``forward`` gets the lines before they are acknowledged, in the order of arrival. If it fails, they fail. While a
    caller holds ``paused``, no line is written and new lines wait.
    """

    def __init__(
        self,
        store: Store,
        observe: Callable[[Sequence[LogLine]], None],
        forward: Callable[[Sequence[LogLine], Retention], None] | None = None,
        *,
        queue_bytes: int = 128 * 2**20,
    ) -> None:
        self.paused = threading.Lock()

        def commit(parts: Sequence[Sequence[LogLine]], retention: Retention) -> None:
            lines = LogBatch.concatenate([LogBatch.from_lines(part) for part in parts])
            with self.paused:
                if forward is not None:
                    forward(lines, retention)
                store.logs.append(lines, retention)
                observe(lines)

        super().__init__(commit, _measure_lines, what="log lines", queue_bytes=queue_bytes, group_rows=200_000)


class SpanCommitter(GroupCommit[Sequence[Span]]):
    """Appends spans; ``observe`` as for ``SampleCommitter``."""

    def __init__(self, store: Store, observe: Callable[[Sequence[Span]], None]) -> None:
        def commit(parts: Sequence[Sequence[Span]], retention: Retention) -> None:
            spans = [span for part in parts for span in part]
            store.spans.append(spans, retention)
            observe(spans)

        super().__init__(commit, _measure_spans, what="spans", queue_bytes=128 * 2**20, group_rows=100_000)


def _measure_batch(batch: SampleBatch) -> tuple[int, int]:
    series = _NUMBER_BYTES if isinstance(batch.series, SeriesList) else _SERIES_BYTES
    return _ROW_BYTES * len(batch) + series * len(batch.series), len(batch)


def _measure_lines(lines: Sequence[LogLine]) -> tuple[int, int]:
    batch = LogBatch.from_lines(lines)
    return batch.characters + _LINE_BYTES * len(batch), len(batch)


def _measure_spans(spans: Sequence[Span]) -> tuple[int, int]:
    # Their texts belong to request bodies, whose memory is already counted.
    return _SPAN_BYTES * len(spans), len(spans)
