"""Device of a vendor: the answers of its driver, in a thread of its own. A call that hangs delays this device alone."""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from jobmeter.collect.backoff import Backoff
from jobmeter.collect.call_thread import CallThread
from jobmeter.model.device import DeviceState
from jobmeter.model.event import Level
from jobmeter.model.time import SECOND, Clock

if TYPE_CHECKING:
    from jobmeter.collect.accelerators.visible import Partition

HANGS_SECONDS = 10.0
"""Time in seconds after which a call counts as hanging. A call to a working device takes less than a second."""
SLOW_SECONDS = 30.0
"""Time limit in seconds for opening a device or a driver, which may start each device first."""
_MOST_EVENTS = 64
LATE_COLLECTIONS = 3
"""Consecutive collections with late calls after which a device counts as hanging, if ``HANGS_SECONDS`` have passed."""


class NotSupportedError(Exception):
    """Value that the device, its driver or our rights do not provide now. It is absent, never 0.

    ``lasting``: the device never gives this value; else the next call may. ``state`` is the device's state if all its
    calls fail for this reason.
    """

    def __init__(self, text: str, *, lasting: bool = False, state: DeviceState = DeviceState.LOST) -> None:
        super().__init__(text)
        self.lasting = lasting
        self.state = state


class DeviceLostError(Exception):
    """Lost device. Every call fails until it is opened again: it fell off the bus, or its driver ended."""


class DeviceProcess(NamedTuple):
    """Process with a context on a device; ``memory`` in bytes, absent if the driver does not give it.

    ``shared``: it computes through NVIDIA's MPS server, under whose number its work may be counted.
    """

    pid: int
    memory: int | None
    shared: bool = False


class EndedUse(NamedTuple):
    """Use of a device by a process that has ended.

    ``began`` is the time at which it opened the device, in seconds since the epoch. ``seconds`` is the time for which
    the device was open, and ``busy`` the percent of this time in which kernels ran, None if unknown.
    """

    pid: int
    began: float
    seconds: float
    busy: float | None


class DeviceEvent(NamedTuple):
    """Event that a driver reports about a device. ``text`` follows the device's name in the message.

    ``age_ms`` is the time since the report in milliseconds.
    """

    reason: str
    level: Level
    text: str
    age_ms: int = 0


class Accelerator:
    """Base of a vendor's device: identity, thread and state.

    Calls of the driver may block for ever: ``begin`` runs them in the device's own thread. Every call may raise
    NotSupportedError or DeviceLostError. ``retry`` limits how often an unreadable device is opened again. The subclass
    opens it in that thread and calls ``note_answer`` after each successful call.
    """

    def __init__(self, index: int, clock: Clock, thread: str) -> None:
        """``index`` is its number among the vendor's devices of the node; ``thread`` begins the name of the thread."""
        self.index = index
        self.uuid = ""
        """Globally unique name, independent of the order."""
        self.minor: int | None = None
        """Number of its file, None if unknown: ``/dev/nvidia2`` is 2."""
        self.name = ""
        """Product name, empty if unknown."""
        self.pci = ""
        """PCI address as ``normalize_pci_address`` writes it and the kernel's messages name it; empty if unknown."""
        self.reason = ""
        """Reason why it is not measured, in the driver's words; empty while it is measured."""
        self.part: Partition | None = None
        """Place of a partition in the whole device; None for a whole device."""
        self.details: Mapping[str, str | int] = {}
        """Further facts for the node's record: ``vendor``, ``serial``, ``driver``, ``memory`` in bytes.

        A partition also has ``parent``, the UUID of the whole device, and ``slices``, the number of slices that
        compute.
        """
        self.retry = Backoff()
        self._open = False
        self._clock = clock
        self._calls: CallThread[Any] = CallThread(f"{thread}{index}")
        self._began = 0.0
        self._late, self._late_since, self._missed = 0, 0.0, False
        self._state = DeviceState.MEASURED
        self._events: deque[tuple[float, DeviceEvent]] = deque(maxlen=_MOST_EVENTS)

    @property
    def state(self) -> DeviceState:
        """State as of the last calls; ``HANGS`` while a call does not return, or all return too late."""
        now, limit = self._clock.monotonic(), HANGS_SECONDS if self.attached else SLOW_SECONDS
        hangs = self.busy and now - self._began >= limit
        late = self._missed and self._late + 1 >= LATE_COLLECTIONS and now - self._late_since >= HANGS_SECONDS
        return DeviceState.HANGS if hangs or late else self._state

    @property
    def attached(self) -> bool:
        """True while it is open for calls."""
        return self._open

    @property
    def busy(self) -> bool:
        """True while work in its thread has not returned."""
        return self._calls.busy

    def begin_round(self, now_ms: int | None) -> None:
        """Begin a collection at that time; None: without a time."""
        self.retry.tick(now_ms)
        self._late, self._missed = self._late + 1 if self._missed else 0, False

    def begin(self, work: Callable[[], object]) -> bool:
        """Start work in the device's thread. False while earlier work has not returned."""
        if not self._calls.begin(work):
            return False
        self._began = self._clock.monotonic()
        return True

    def finish(self, seconds: float) -> Any:  # noqa: ANN401 - of whatever the work was
        """Return the result of the work. Raises TimeoutError after ``seconds``, else the error of the work."""
        if not self._calls.wait(seconds):
            if self.attached and not self._missed:
                self._missed = True
                self._late_since = self._late_since if self._late else self._clock.monotonic()
            raise TimeoutError(f"device {self.index} has not answered yet")
        return self._calls.get_result()

    def add_event(self, reason: str, level: Level, text: str) -> None:
        """Add an event of the device, from any thread. Beyond the bound the oldest events are dropped."""
        self._events.append((self._clock.monotonic(), DeviceEvent(reason, level, text)))

    def take_events(self) -> list[DeviceEvent]:
        """Return the events since the last call, without a call of the driver."""
        now, found = self._clock.monotonic(), [self._events.popleft() for _ in range(len(self._events))]
        return [event._replace(age_ms=int((now - at) * SECOND)) for at, event in found]

    def list_processes(self) -> Sequence[DeviceProcess]:
        """Return the processes that compute on it."""
        raise NotImplementedError

    def process_utilization(self) -> Mapping[int, float] | None:
        """Return the percent of time, by process number, in which its kernels ran since the last call.

        Idle processes are absent. The first call returns None, because it has no start time. Raises NotSupportedError
        if the driver gives no shares.
        """
        raise NotSupportedError("the driver gives no share of time", lasting=True)

    def list_ended_uses(self, pids: Collection[int]) -> Sequence[EndedUse]:  # noqa: ARG002 - of drivers that remember them
        """Return the use by these processes if they have ended; empty if the driver does not remember them."""
        return ()

    def answer(self, found: Mapping[str, float | None]) -> dict[str, float]:
        """Return the known values of a reading, and note that it has succeeded if there are any."""
        values = {name: float(value) for name, value in found.items() if value is not None}
        if values:
            self.note_answer()
        return values

    def note_answer(self) -> None:
        """Note that a call has succeeded."""
        if self._state is not DeviceState.MEASURED:
            self._state, self.reason = DeviceState.MEASURED, ""
        self.retry.note_success()

    def note_failure(self, state: DeviceState, reason: str) -> None:
        """Note that the device can no longer be read, and drop its handle."""
        self._state, self.reason = state, reason
        self.detach()

    def give_up(self, error: NotSupportedError) -> None:
        """Give the device up for a while after all calls of a collection failed."""
        self.lose(str(error), error.state)

    def lose(self, reason: str, state: DeviceState = DeviceState.LOST) -> None:
        """Drop the device's handle, and open the device again later."""
        self.note_failure(state, reason)
        self.retry.note_failure()

    def detach(self) -> None:
        """Drop the handle and its data."""
        self._open = False

    def close(self) -> None:
        """End the device's thread."""
        self._calls.close()


T = TypeVar("T", bound=Accelerator)


def open_due(devices: Iterable[T], work: Callable[[T], Callable[[], object]], deadline: float, clock: Clock) -> None:
    """Open all devices without a handle whose retry is due, in parallel. Waits until ``deadline`` on ``clock``.

    ``work`` returns the call that opens a device.
    """
    wait_for([one for one in devices if not one.attached and one.retry.due and one.begin(work(one))], deadline, clock)


def wait_for(devices: Iterable[Accelerator], deadline: float, clock: Clock) -> None:
    """Wait for the running calls until ``deadline``. Raises the error of a call; a late call goes on."""
    for device in devices:
        with suppress(TimeoutError):
            device.finish(deadline - clock.monotonic())


def close_all(devices: Iterable[Accelerator]) -> bool:
    """End the devices' threads and drop their handles. A device with a running call keeps its handle; then False."""
    is_quiet = True
    for device in devices:
        device.close()
        if device.busy:
            is_quiet = False
        else:
            device.detach()
    return is_quiet
