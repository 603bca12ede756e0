"""Work that a leader does for its followers: it stores their batches together, and runs their commands."""

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec

from jobmeter.errors import JobmeterError
from jobmeter.model.batch import SampleBatch
from jobmeter.model.retention import Retention
from jobmeter.store.clickhouse.peer_messages import Failure, LeaderCommand

_log = logging.getLogger(__name__)
_THREADS = 32
"""Most commands that run at a time. Some wait for minutes, and a changed record must not wait for them."""
AppendAll = Callable[[Sequence[SampleBatch], Retention], None]
LeaderCommands = Mapping[str, Callable[[LeaderCommand], int | None]]
"""Commands by name."""


class _Waiting(msgspec.Struct, eq=False):
    batches: Sequence[SampleBatch]
    retention: Retention
    done: Callable[[Failure | None], None]


class PeerWork:
    """Batches that wait are stored together, so that they share a sync."""

    def __init__(self, append_all: AppendAll, commands: LeaderCommands) -> None:
        self._append_all = append_all
        self._commands = commands
        self._changed = threading.Condition()
        self._waiting: deque[_Waiting] = deque()
        self._closed = False
        self._pool = ThreadPoolExecutor(_THREADS, "jobmeter-peer-command")
        self._thread = threading.Thread(target=self._run, name="jobmeter-peer-commit", daemon=True)
        self._thread.start()

    def append(
        self, batches: Sequence[SampleBatch], retention: Retention, done: Callable[[Failure | None], None]
    ) -> None:
        """Store batches, then call ``done``."""
        with self._changed:
            self._waiting.append(_Waiting(batches, retention, done))
            self._changed.notify()

    def run(self, command: LeaderCommand, done: Callable[[int, Failure | None], None]) -> None:
        """Run a command, then call ``done`` with its result."""

        def work() -> None:
            value, failure = 0, None
            try:
                value = self._commands[command.name](command) or 0
            except Exception as error:  # noqa: BLE001 - the other server waits for an answer
                failure = describe_failure(error)
            done(value, failure)

        self._pool.submit(work)

    def close(self) -> None:
        """End the threads."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()
        self._pool.shutdown()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closed)
                if self._closed:
                    return
                group = [self._waiting.popleft()]
                while self._waiting and self._waiting[0].retention == group[0].retention:
                    group.append(self._waiting.popleft())
            failure = None
            try:
                self._append_all([batch for one in group for batch in one.batches], group[0].retention)
            except Exception as error:  # noqa: BLE001 - the other servers wait for an answer
                failure = describe_failure(error)
            for one in group:
                one.done(failure)


def describe_failure(error: Exception) -> Failure:
    """Return an error for another server, which raises it again."""
    if isinstance(error, JobmeterError):
        return type(error).__name__, error.message, getattr(error, "retry_after_ms", None)
    _log.error("a request of another server failed", exc_info=error)
    return "UnavailableError", "the leading server failed: see its log", None
