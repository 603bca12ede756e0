"""Shippers of a server: create and delete them, and run each in its own thread."""

import logging
import secrets
import threading
from collections.abc import Sequence
from contextlib import suppress

from jobmeter.access.principal import Scope
from jobmeter.errors import ConflictError, InvalidRequestError, JobmeterError, LimitExceededError, NotFoundError
from jobmeter.model.series import check_project
from jobmeter.model.shipper import Shipper
from jobmeter.model.time import SECOND, Clock
from jobmeter.registry.base import Registry
from jobmeter.ship import events
from jobmeter.ship.outbox import ShippingOutbox, compute_number
from jobmeter.ship.pump import Pump
from jobmeter.ship.settings import Sinks
from jobmeter.ship.sink import Origin
from jobmeter.store.base import Store

_log = logging.getLogger("jobmeter.ship")
MOST = 64
"""Most shippers of a server: each has a thread."""
_POLL_SECONDS = 1.0
_RETRY_SECONDS = 5.0
_MOST_NAME = 256


def compute_lag(shipper: Shipper, now_ms: int) -> float:
    """Wait of the oldest unshipped line in seconds; 0 without waiting lines."""
    if not shipper.waiting or shipper.oldest is None:
        return 0.0
    return max(0, now_ms - shipper.oldest) / SECOND


def find_project(scope: Scope) -> str:
    """Project whose lines a shipper of that scope ships; empty for every project."""
    return "" if scope.projects is None else next(iter(scope.projects))


class Shipping:
    """Creates, lists, deletes and runs shippers. Thread-safe."""

    def __init__(self, store: Store, registry: Registry, clock: Clock, sinks: Sinks, outbox: ShippingOutbox) -> None:
        self._store = store
        self._registry = registry
        self._clock = clock
        self._sinks = sinks
        self._lock = threading.Lock()
        self._threads: dict[str, _Worker] = {}
        self._stopped = threading.Event()
        self._looking: threading.Thread | None = None
        outbox.arrived = self._wake

    def create(self, project: str, resource_group: str, sink_project: str, logstore: str, actor: str = "") -> Shipper:
        """Create a shipper for the lines of a resource group, unless it exists.

        ``actor`` is the id of the caller's key. Lines that reach another server of the same registry within a second
        may not be shipped yet. Raises InvalidRequestError naming the field, NotFoundError (kind ``sink``) if the
        settings have no such sink, ConflictError if the group's lines go to another sink, LimitExceededError for too
        many shippers.
        """
        for field, value in (("resource_group", resource_group), ("project", sink_project), ("logstore", logstore)):
            if not value or len(value) > _MOST_NAME or not value.isprintable():
                raise InvalidRequestError(f"{field} must have 1 to {_MOST_NAME} printable characters", field)
        if project:
            check_project(project)
        self._sinks.find(sink_project, logstore)
        there = self.list_shippers()
        for shipper in there:
            if (shipper.project, shipper.resource_group) == (project, resource_group):
                if (shipper.sink_project, shipper.logstore) == (sink_project, logstore):
                    return shipper
                raise ConflictError(
                    f"the logs of {resource_group} go to {shipper.sink_project}/{shipper.logstore}: "
                    "delete that shipper first"
                )
        if len(there) >= MOST:
            raise LimitExceededError(f"a server may have at most {MOST} log shippers", "resource_group")
        made = Shipper(
            id=secrets.token_hex(8),
            project=project,
            resource_group=resource_group,
            sink_project=sink_project,
            logstore=logstore,
            created=self._clock.now_ms(),
            updated=self._clock.now_ms(),
        )
        self._registry.shippers.add(made)
        self._registry.memory.forget_groups()
        _log.info("shipper %s ships the logs of %s to %s/%s", made.id, resource_group, sink_project, logstore)
        events.record_creation(self._registry, self._clock.now_ms(), made, actor)
        return made

    def list_shippers(self) -> Sequence[Shipper]:
        """List every shipper, by creation."""
        return self._registry.shippers.list_shippers()

    def delete(self, shipper: Shipper, actor: str = "") -> Shipper:
        """Delete a shipper and its waiting lines. Returns its last state. ``actor`` as in ``create``.

        Raises NotFoundError if it is already deleted.
        """
        gone = self._registry.shippers.remove(shipper.id)
        self._registry.memory.forget_groups()
        if gone is None:
            raise NotFoundError(f"there is no shipper {shipper.id}", "shipper", shipper.id)
        self._stop(shipper.id)
        self._store.outbox.trim(compute_number(shipper), None)
        _log.info("shipper %s was deleted; %d lines had not been shipped", gone.id, gone.waiting)
        events.record_deletion(self._registry, self._clock.now_ms(), gone, actor)
        return gone

    def start(self) -> None:
        """Begin to ship."""
        self._looking = threading.Thread(target=self._poll, name="jobmeter-shipping", daemon=True)
        self._looking.start()

    def stop(self) -> None:
        """Stop shipping after the current steps. Waiting lines are shipped after the next start."""
        self._stopped.set()
        if self._looking is not None:
            self._looking.join()
        for shipper_id in list(self._threads):
            self._stop(shipper_id)

    def _poll(self) -> None:
        while not self._stopped.is_set():
            try:
                self._adjust()
            except JobmeterError as error:
                _log.warning("the shippers cannot be read: %s", error.message)
            except Exception:  # noqa: BLE001 - a bug in one round must not end all that follow
                _log.exception("the shippers cannot be read")
            self._stopped.wait(_POLL_SECONDS)

    def _adjust(self) -> None:
        """Start a thread for each new shipper, and stop the threads of deleted ones."""
        wanted = {shipper.id: shipper for shipper in self.list_shippers()}
        for shipper_id in [one for one in self._threads if one not in wanted]:
            self._stop(shipper_id)
        with self._lock:
            for shipper_id, shipper in wanted.items():
                if shipper_id not in self._threads and not self._stopped.is_set():
                    self._threads[shipper_id] = worker = _Worker(self._pump(shipper))
                    worker.start()

    def _pump(self, shipper: Shipper) -> Pump:
        origin = Origin(shipper.id, shipper.sink_project, shipper.logstore)
        return Pump(shipper, lambda: self._sinks.open(origin), self._store, self._registry, self._clock)

    def _stop(self, shipper_id: str) -> None:
        with self._lock:
            worker = self._threads.pop(shipper_id, None)
        if worker is not None:
            worker.stop()

    def _wake(self, shipper_id: str) -> None:
        with self._lock:
            worker = self._threads.get(shipper_id)
        if worker is not None:
            worker.wake()


class _Worker(threading.Thread):
    """Thread that runs one pump until ``stop``."""

    def __init__(self, pump: Pump) -> None:
        super().__init__(name="jobmeter-shipper", daemon=True)
        self._pump = pump
        self._changed = threading.Condition()
        self._stopped = self._woken = False

    def run(self) -> None:
        """Ship waiting lines, step by step, until ``stop``."""
        while not self._stopped:
            seconds, failing = self._take_step()
            with self._changed:
                if not failing:
                    self._changed.wait_for(lambda: self._stopped or self._woken, seconds)
                else:  # new lines do not shorten the wait for a failed sink
                    self._changed.wait_for(lambda: self._stopped, seconds)
                self._woken = False
        with suppress(JobmeterError):  # the lease expires
            self._pump.close()

    def _take_step(self) -> tuple[float, bool]:
        try:
            return self._pump.step(), self._pump.failing
        except JobmeterError as error:
            _log.warning("shipper %s: %s", self._pump.shipper.id, error.message)
        except Exception:  # noqa: BLE001 - a bug in one step must not end all that follow
            _log.exception("shipper %s failed", self._pump.shipper.id)
        return _RETRY_SECONDS, True

    def wake(self) -> None:
        """Wake the thread when lines arrive."""
        with self._changed:
            self._woken = True
            self._changed.notify_all()

    def stop(self) -> None:
        """Stop after the current step."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        self.join()
