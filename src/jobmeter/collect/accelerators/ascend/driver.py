"""Driver of Ascend NPUs: the library, and a device for each chip."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from jobmeter.collect import files
from jobmeter.collect.accelerators.ascend.device import AscendDevice
from jobmeter.collect.accelerators.ascend.library import LIBRARY, Chip, Dcmi, DcmiError, load
from jobmeter.collect.accelerators.ascend.network import NetworkReader
from jobmeter.collect.accelerators.device import SLOW_SECONDS, close_all, open_due
from jobmeter.collect.accelerators.vendor import DriverProblem
from jobmeter.collect.backoff import Backoff
from jobmeter.collect.call_thread import CallThread
from jobmeter.collect.machine import Machine
from jobmeter.model.device import DeviceState
from jobmeter.model.time import MINUTE, Clock

if TYPE_CHECKING:
    import ctypes

FILES = "davinci"


class _Opened(NamedTuple):
    dcmi: Dcmi
    chips: Sequence[Chip]


class AscendDriver:
    """NPUs of DCMI, by physical number. One collection waits ``patience`` seconds for the devices.

    A device that disappears from DCMI's list is lost. Calls that may block run in threads.
    """

    def __init__(
        self,
        clock: Clock,
        machine: Machine,
        patience: float,
        load: "Callable[[], ctypes.CDLL | None]" = load,
        network: NetworkReader | None = None,
    ) -> None:
        self.problem: DriverProblem | None = None
        self._clock, self._machine, self._patience, self._load = clock, machine, patience, load
        self._network = network or NetworkReader(clock)
        self._calls: CallThread[_Opened | DriverProblem] = CallThread("dcmi")
        self._began: float | None = None
        self._listed_ms: int | None = None
        self._dcmi: Dcmi | None = None
        self._chips: dict[int, Chip] = {}
        self._devices: dict[int, AscendDevice] = {}
        self._retry = Backoff()

    def list_devices(self, now_ms: int | None = None) -> Sequence[AscendDevice]:
        """Return the NPUs, including those that cannot be opened."""
        deadline = self._clock.monotonic() + self._patience
        self._retry.tick(now_ms)
        present = files.list_numbers(self._machine.dev, FILES)
        for device in self._devices.values():
            device.begin_round(now_ms)
        if self._began is None and self._is_due(now_ms) and (present or self._devices):
            self._calls.begin(partial(_open, self._load, self._dcmi))
            self._began, self._listed_ms = self._clock.monotonic(), now_ms
        if self._began is not None:
            self._finish_open(present, deadline)
        self._attach(deadline)
        self._network.update(sorted(number for number, one in self._devices.items() if one.attached))
        return [self._devices[number] for number in sorted(self._devices)]

    def close(self) -> bool:
        """Drop the library. DCMI has no call that closes its files."""
        quiet = close_all(self._devices.values()) and not self._calls.busy
        self._network.close()
        if quiet:
            self._calls.close()
            self._dcmi, self._began, self._listed_ms = None, None, None
        return quiet

    def _is_due(self, now_ms: int | None) -> bool:
        """Return True if the library has to be opened, or, once a minute, if its list has to be read again."""
        if self._dcmi is None:
            return self._retry.due
        return now_ms is None or self._listed_ms is None or not 0 <= now_ms - self._listed_ms < MINUTE

    def _finish_open(self, present: Sequence[int], deadline: float) -> None:
        if not self._calls.wait(deadline - self._clock.monotonic()):
            if self._clock.monotonic() - (self._began or 0.0) >= SLOW_SECONDS:
                self._fail(DriverProblem("dcmi_init does not return", DeviceState.HANGS), present)
            return
        self._began = None
        found = self._calls.get_result()
        if isinstance(found, DriverProblem):
            self._retry.note_failure()
            self._fail(found, present)
            return
        self._retry.note_success()
        self.problem, self._dcmi = None, found.dcmi
        self._chips = {chip.number: chip for chip in found.chips}
        self._fill(self._chips)

    def _fail(self, problem: DriverProblem, present: Sequence[int]) -> None:
        self.problem, self._dcmi = problem, None
        self._fill(present)
        for device in self._devices.values():
            device.note_failure(problem.state, problem.text)

    def _fill(self, numbers: "Sequence[int] | dict[int, Chip]") -> None:
        for number in numbers:
            if number not in self._devices:
                device = self._devices[number] = AscendDevice(number, self._clock, self._machine)
                device.network = partial(self._network.take_values, number)

    def _attach(self, deadline: float) -> None:
        """Open the devices that are not open, all at once."""
        dcmi = self._dcmi
        if dcmi is None:
            return
        for number, device in self._devices.items():
            if number not in self._chips and not device.busy:
                device.note_failure(DeviceState.LOST, "DCMI does not list it")
        listed = [device for number, device in self._devices.items() if number in self._chips]
        open_due(listed, lambda one: partial(one.attach, dcmi, self._chips[one.index]), deadline, self._clock)


def _open(load: "Callable[[], ctypes.CDLL | None]", dcmi: Dcmi | None) -> _Opened | DriverProblem:
    """Open the library, unless it is open, and list its chips."""
    if dcmi is None:
        library = load()
        if library is None:
            return DriverProblem(f"{LIBRARY} cannot be found", DeviceState.LIBRARY_MISSING)
        try:
            dcmi = Dcmi(library)
        except DcmiError as error:
            return DriverProblem(f"DCMI cannot be opened: {error}", error.state)
    return _Opened(dcmi, dcmi.list_chips())
