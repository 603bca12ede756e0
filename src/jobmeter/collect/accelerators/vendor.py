"""Contract of a vendor of accelerators: its driver, its devices, and everything else that differs between vendors."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from jobmeter.collect import files
from jobmeter.collect.accelerators.visible import Numbered, Partition, VisibleVariable
from jobmeter.collect.machine import Machine
from jobmeter.model.device import DeviceState, pci_address
from jobmeter.model.event import Level
from jobmeter.model.time import Clock


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
    """Lost device: no call succeeds before it is opened again, because it fell off the bus or its driver ended."""


class DeviceProcess(NamedTuple):
    """Process with a context on a device; ``memory`` in bytes, absent if the driver does not give it.

    ``shared``: it computes through another process, under whose number its work may be counted (NVIDIA's MPS server).
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


class Device(Protocol):
    """Device of the node. ``index`` is its number among the devices of its vendor."""

    @property
    def index(self) -> int:
        """Number among the vendor's devices on the node."""
        ...

    @property
    def minor(self) -> int | None:
        """Number of its file, None if unknown: ``/dev/nvidia2`` is 2."""
        ...

    @property
    def uuid(self) -> str:
        """Globally unique name, independent of the order."""
        ...

    @property
    def name(self) -> str:
        """Product name."""
        ...

    @property
    def pci(self) -> str:
        """Its address on the bus as ``model.device.pci_address`` has it, by which kernels name it; empty: unknown."""
        ...

    @property
    def part(self) -> Partition | None:
        """Place of a partition in the whole device; None for a whole device."""
        ...

    @property
    def state(self) -> DeviceState:
        """State of the measurement: measured, or the reason why not."""
        ...

    @property
    def details(self) -> Mapping[str, str | int]:
        """Further known facts for the node's record: ``vendor``, ``serial``, ``driver``, ``memory`` in bytes.

        Also ``parent`` and ``slices`` of a partition: the UUID of the whole device, and the slices that compute.
        """
        ...


class Accelerator(Device, Protocol):
    """Device that is measured. Any call to the driver may raise NotSupportedError or DeviceLostError.

    Calls may block for ever: ``begin`` runs them in the device's own thread (``ThreadedDevice``).
    """

    @property
    def reason(self) -> str:
        """Reason why it is not measured, in the words of the driver; empty if it is."""
        ...

    @property
    def attached(self) -> bool:
        """True while there is a handle to call it with."""
        ...

    @property
    def busy(self) -> bool:
        """True while work in its thread has not returned."""
        ...

    def begin(self, work: Callable[[], object]) -> bool:
        """Start work in the device's thread. False while earlier work has not returned."""
        ...

    def finish(self, seconds: float) -> Any:  # noqa: ANN401 - of whatever the work was
        """Return the result of the work. Raises TimeoutError after ``seconds``, else the error of the work."""
        ...

    def give_up(self, error: NotSupportedError) -> None:
        """Note that every call of a collection failed, the last one so: it is opened again after a while."""
        ...

    def events(self) -> Sequence[DeviceEvent]:
        """Return the events of the device since the last call, without a call of the driver."""
        ...

    def processes(self) -> Sequence[DeviceProcess]:
        """Return the processes that compute on it."""
        ...

    def process_utilization(self) -> Mapping[int, float] | None:
        """Percent of time, by process number, in which its kernels ran since the last call; idle processes are absent.

        The first call returns no data, because it has no start time.
        """
        ...

    def ended_uses(self, pids: Collection[int]) -> Sequence[EndedUse]:
        """Return the use by these processes if they have ended. Empty if the driver does not remember them."""
        ...


D = TypeVar("D", bound=Accelerator)
D_co = TypeVar("D_co", bound=Accelerator, covariant=True)


class DeviceProblem(Protocol):
    """Reason why a driver cannot be used, and the state of its devices for this reason."""

    @property
    def text(self) -> str:
        """Reason in the words of the driver."""
        ...

    @property
    def state(self) -> DeviceState:
        """State of a device that cannot be opened or read for this reason."""
        ...


class Driver(Protocol[D_co]):
    """Driver of a vendor's devices on this node. For one thread."""

    @property
    def problem(self) -> DeviceProblem | None:
        """Reason why the driver cannot be used; None while it can."""
        ...

    def devices(self, now_ms: int | None = None) -> Sequence[D_co]:
        """Return the devices, including those that cannot be opened; empty without a driver.

        Opens at the first call. A failed opening is retried after growing pauses up to a minute; without ``now_ms`` at
        every call.
        """
        ...

    def close(self) -> bool:
        """Close every file of the driver. The next call of ``devices`` opens it again.

        False if a call has not returned: its files stay open, and the next call of ``close`` tries again.
        """
        ...


class Measure(NamedTuple, Generic[D]):
    """Call of a driver: the metrics that it may give, and what reads them in the catalogue's units."""

    metrics: tuple[str, ...]
    read: Callable[[D], Mapping[str, float]]


class DeviceHealth(NamedTuple):
    """Errors of a device that a check on request finds: values by name, errors and warnings as phrases."""

    values: dict[str, float]
    errors: Sequence[str]
    warnings: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Vendor(Generic[D]):
    """Vendor of accelerators: everything in which a vendor differs from the others.

    ``name`` is unique and names its collector. ``title`` and ``noun`` are for people: ``NVIDIA`` and ``GPU``.
    ``source`` gives its devices: ``NVML``. ``prefix`` begins the names of its metrics and devices: ``gpu``.

    ``open`` gets the clock, the machine, and the seconds that one collection waits for the driver. It returns at once;
    a call of the driver that may hang is made by ``Driver.devices``.

    ``measures`` are read at every collection, ``slow_measures`` once a minute. ``check`` reads the errors of a device.

    ``device_numbers`` are the minor numbers of the devices' character devices by major number; without any, the files
    of the devices have them (``character_numbers``). ``device_files`` is the beginning of the names of these files in
    /dev; a number follows. ``driver_folder`` is in /proc while the driver is loaded; empty if it has none there.
    ``pci_driver`` is the name of the kernel's driver, under which /sys lists the addresses of all devices of the node.
    ``unit_devices`` are the names by which a unit of systemd gives access to them (``DeviceAllow``).

    ``domain`` ends the names of Kubernetes' resource and of its driver: ``nvidia.com``. ``resource_kinds`` are regular
    expressions for its resources besides ``gpu`` and ``npu``. ``uuid_of_id`` returns the UUID or the PCI
    address in an id of its device plug-in. ``id_of_part`` returns the id of a partition if the id is not the UUID.
    ``number_of_id`` gets a resource, an id and the devices, and returns the device number in the id, if there is one.

    ``variables`` name devices of a process, most specific first. ``uuid_prefix`` begins every UUID.

    ``advice`` says what to do about a state of its devices, ``help`` about any other; both follow a semicolon.
    ``recovery`` is a sentence for events about devices with errors.
    """

    name: str
    title: str
    noun: str
    source: str
    prefix: str
    open: Callable[[Clock, Machine, float], Driver[D]]
    measures: Sequence[Measure[D]]
    slow_measures: Sequence[Measure[D]]
    check: Callable[[D], DeviceHealth]
    device_numbers: Mapping[int, range]
    device_files: str
    driver_folder: str = ""
    pci_driver: str = ""
    unit_devices: Sequence[str]
    domain: str
    resource_kinds: Sequence[str] = ()
    uuid_of_id: Callable[[str], str] = str
    id_of_part: Callable[[Partition], str] = str
    number_of_id: Callable[[str, str, Sequence[Numbered]], int | None] = lambda *_: None
    variables: Sequence[VisibleVariable]
    uuid_prefix: str
    advice: Mapping[DeviceState, str]
    help: str
    recovery: str

    @property
    def metrics(self) -> Sequence[str]:
        """Catalogue names that its measures may give."""
        return [metric for measure in (*self.measures, *self.slow_measures) for metric in measure.metrics]

    def files(self, machine: Machine) -> list[Path]:
        """Return the files of its devices in /dev."""
        names = self.device_files.removeprefix("/dev/")
        found = Path(machine.dev).glob(f"{names}[0-9]*")
        return [path for path in sorted(found) if path.relative_to(machine.dev).as_posix()[len(names) :].isdigit()]

    def character_numbers(self, machine: Machine) -> Mapping[int, range]:
        """Return the minor numbers of the devices by major number, from their files in /dev: the kernel chose them."""
        if self.device_numbers:
            return self.device_numbers
        majors = {files.major_number(str(path)) for path in self.files(machine)}
        return {major: range(2**20) for major in majors if major}

    def addresses(self, machine: Machine) -> list[str]:
        """Return the PCI addresses of all its devices on the node, in order; empty if /sys does not list them.

        A container sees them too, whichever devices it may open.
        """
        if not self.pci_driver:
            return []
        listed = Path(machine.sys, "bus/pci/drivers", self.pci_driver).glob("*:*")
        return sorted({address for path in listed if (address := pci_address(path.name))})

    def is_present(self, machine: Machine) -> bool:
        """True if the machine has its devices or its driver. Reads files alone."""
        loaded = bool(self.driver_folder) and Path(machine.proc, self.driver_folder).is_dir()
        return loaded or bool(self.files(machine)) or bool(self.addresses(machine))
