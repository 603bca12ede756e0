"""Group commit: requests that arrive while an append runs share the next one, and its one sync to disk."""

import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field

from jobmeter.errors import JobmeterError, ThrottledError, UnavailableError
from jobmeter.ingest.join import join
from jobmeter.model.batch import SampleBatch
from jobmeter.model.retention import Retention
from jobmeter.store.base import Store

_LOG = logging.getLogger(__name__)
_ROW_BYTES = 20
_SERIES_BYTES = 600
_RETRY_AFTER_MS = 1_000
_IDLE_SECONDS = 1.0


@dataclass(slots=True, eq=False)
class _Member:
    batch: SampleBatch
    retention: Retention
    cost: int
    done: "Future[None]" = field(default_factory=Future)


class Committer:
    """One thread that appends to the store whatever has gathered, in the order of arrival.

    ``queue_bytes`` bounds what may wait (a request that finds the queue empty is always taken), ``group_rows`` what one
    append may hold. ``kept`` is called in that thread with every batch that the store has kept, before its senders are
    told; when it fails, they fail. ``idle`` is called when nothing came for a second, and at the end.
    """

    def __init__(
        self,
        store: Store,
        kept: Callable[[SampleBatch], None],
        idle: Callable[[], None],
        *,
        queue_bytes: int = 256 * 2**20,
        group_rows: int = 2_000_000,
    ) -> None:
        self._store = store
        self._kept = kept
        self._idle = idle
        self._queue_bytes = queue_bytes
        self._group_rows = group_rows
        self._waiting: deque[_Member] = deque()
        self._waiting_bytes = 0
        self._closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="jobmeter-commit", daemon=True)
        self._thread.start()

    @property
    def waiting_bytes(self) -> int:
        """About how much memory the requests take that wait for an append."""
        return self._waiting_bytes

    def admit(self, batch: SampleBatch) -> None:
        """Raise ThrottledError when the queue has no room for the batch now, UnavailableError after ``close``."""
        with self._changed:
            self._check(_cost(batch))

    def append(self, batch: SampleBatch, retention: Retention) -> None:
        """Keep a batch, in which each series is listed once; returns when it is durable.

        Raises ThrottledError when the queue is full, and what the store raised when it failed: then nothing of the
        batch may be taken as kept.
        """
        member = _Member(batch, retention, _cost(batch))
        with self._changed:
            self._check(member.cost)
            self._waiting.append(member)
            self._waiting_bytes += member.cost
            self._changed.notify()
        member.done.result()

    def close(self) -> None:
        """Refuse what comes from now on, keep what waits, and end the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _check(self, cost: int) -> None:
        if self._closed:
            raise UnavailableError("the server is shutting down")
        if self._waiting and self._waiting_bytes + cost > self._queue_bytes:
            raise ThrottledError("more samples arrive than can be written now", _RETRY_AFTER_MS)

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._waiting and not self._closed:
                    self._changed.wait(_IDLE_SECONDS)
                group = self._take()
                ended = self._closed and not group
            if group:
                self._commit(group)
            else:
                self._rest()
            if ended:
                return

    def _take(self) -> list[_Member]:
        group: list[_Member] = []
        rows = 0
        while self._waiting:
            head = self._waiting[0]
            if group and (rows + len(head.batch) > self._group_rows or head.retention != group[0].retention):
                break
            group.append(self._waiting.popleft())
            self._waiting_bytes -= head.cost
            rows += len(head.batch)
        return group

    def _commit(self, group: list[_Member]) -> None:
        try:
            batch = group[0].batch if len(group) == 1 else join([member.batch for member in group])
            self._store.append(batch, group[0].retention)
            self._kept(batch)
        except Exception as error:  # noqa: BLE001  # every member waits for an answer, whatever went wrong
            for member in group:
                member.done.set_exception(error)
            return
        for member in group:
            member.done.set_result(None)

    def _rest(self) -> None:
        try:
            self._idle()
        except JobmeterError as error:
            _LOG.warning("what the registry was to hear waits: %s", error.message)


def _cost(batch: SampleBatch) -> int:
    return _ROW_BYTES * len(batch) + _SERIES_BYTES * len(batch.series)
