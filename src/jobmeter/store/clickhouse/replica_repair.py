"""Makes replicas complete that lack rows, beside traffic.

Passes compare the slices of a complete replica and of the other one, and copy what differs (``slice_copy``). When
little is left, statements that change data wait, until a pass finds no difference and the replica counts as complete.
"""

import logging
import threading
from collections.abc import Iterable
from contextlib import ExitStack, closing

from jobmeter.errors import JobmeterError, UnavailableError
from jobmeter.model.time import Clock
from jobmeter.store.clickhouse.failures import translate_failures
from jobmeter.store.clickhouse.moved_tables import TABLES, EngineTables, TableSlices
from jobmeter.store.clickhouse.nodes import SILENCE_SECONDS
from jobmeter.store.clickhouse.pool import Pool, connect
from jobmeter.store.clickhouse.replicas import ReplicaSet
from jobmeter.store.clickhouse.slice_copy import SliceCopy
from jobmeter.store.clickhouse.target import Place, format_place

_log = logging.getLogger(__name__)
REPAIR_SECONDS = 1.0
"""Seconds between two searches for replicas to repair."""
_AGAIN_SECONDS = 10.0
"""Seconds between two attempts to repair one replica."""
_STOP_SECONDS = 10.0
"""Longest wait for the end of a comparison or copy that runs when the store is closed."""
_PAUSE_SECONDS = 20.0
"""Longest time for which statements wait for the end of a repair."""
_OTHER_TABLES = (TableSlices("progress", "0"), TableSlices("servers", "0"))
_REPLICATED = (*(table for table in TABLES if table.table != "progress"), *_OTHER_TABLES)
_RUNNING = "SELECT count() FROM system.processes WHERE current_database = {database:String} AND query_kind != 'Select'"


class ReplicaRepair:
    """Repairs the replicas of a set on a thread, one at a time."""

    def __init__(self, replicas: ReplicaSet, clock: Clock) -> None:
        self._replicas = replicas
        self._clock = clock
        self._over = threading.Event()
        self._not_before: dict[Place, float] = {}
        self._said: dict[Place, str] = {}
        self._thread = threading.Thread(target=self._run, name="jobmeter-replica-repair", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread. The next start continues a repair that ends early."""
        self._over.set()
        if self._thread.ident is not None:
            self._thread.join(_STOP_SECONDS)

    def _run(self) -> None:
        while not self._over.wait(REPAIR_SECONDS):
            for place in self._replicas.list_stale():
                if self._not_before.get(place, 0.0) > self._clock.monotonic():
                    continue
                try:
                    self._repair(place)
                except JobmeterError as error:
                    self._say(place, error.message)
                except Exception:  # noqa: BLE001 - without this thread no replica would become complete
                    _log.exception("%s cannot be repaired", format_place(place))
                else:
                    self._said.pop(place, None)
                    continue
                self._not_before[place] = self._clock.monotonic() + _AGAIN_SECONDS

    def _say(self, place: Place, message: str) -> None:
        """Log a message once."""
        if not self._over.is_set() and self._said.get(place) != message:
            self._said[place] = message
            _log.warning("%s is not complete yet: %s", format_place(place), message)

    def _repair(self, place: Place) -> None:
        replicas = self._replicas
        began = self._clock.monotonic()
        replica_id = replicas.prepare_schema(place)
        source = next(iter(replicas.list_readable()), None)
        if source is None or not replicas.is_up(source):
            raise UnavailableError("no replica that has all data answers")
        with ExitStack() as stack:
            here, there = (
                EngineTables(stack.enter_context(closing(self._pool(one))), replicas.target.with_server(one))
                for one in (source, place)
            )
            waiting = [place]
            copying = SliceCopy(here, there, self._clock, lambda: self._require_idle(waiting), _REPLICATED)
            self._run_steps(copying.passes(), place, None)
            with replicas.statements.lock_exclusive():
                if source not in replicas.list_readable():
                    raise UnavailableError(f"{format_place(source)}, from which it gets rows, lacks rows itself")
                copying.is_quiet = True
                waiting.append(source)  # where a former leader may still run a statement
                self._run_steps(copying.copy_until_equal(), place, self._clock.monotonic() + _PAUSE_SECONDS)
                self._require_running()
                replicas.include(place, replica_id)
        took = self._clock.monotonic() - began
        _log.info("%s has all data: %d rows were copied to it in %.1f s", format_place(place), copying.copied, took)

    def _pool(self, place: Place) -> Pool:
        return Pool(self._replicas.target.with_server(place), 1, silence_seconds=SILENCE_SECONDS)

    def _run_steps(self, steps: Iterable[object], place: Place, deadline: float | None) -> None:
        for _ in steps:
            self._require_running()
            if not self._replicas.is_up(place) or not self._replicas.may_repair():
                raise UnavailableError("the repair ended early")
            if deadline is not None and self._clock.monotonic() > deadline:
                raise UnavailableError("rows arrive faster than they are copied")

    def _require_running(self) -> None:
        if self._over.is_set():
            raise UnavailableError("the store is closed")

    def _require_idle(self, places: Iterable[Place]) -> None:
        """Raise UnavailableError while a statement from before the repair runs on some replicas.

        A server that was frozen goes on with the statements that it had received.
        """
        for target in map(self._replicas.target.with_server, places):
            with translate_failures("list its statements"), closing(connect(target, None, SILENCE_SECONDS)) as client:
                (row,) = client.query(_RUNNING, parameters={"database": target.database}).result_rows
            if int(row[0]):
                raise UnavailableError(f"{target.name} still runs statements from before")
