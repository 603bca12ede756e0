"""Contract of a vendor of accelerators: its driver, its devices, and everything else that differs between vendors."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, NamedTuple, Protocol, TypeVar

from jobmeter.collect import files
from jobmeter.collect.accelerators.device import Accelerator
from jobmeter.collect.accelerators.visible import Numbered, Partition, VisibleVariable
from jobmeter.collect.machine import Machine
from jobmeter.model.device import DeviceState, normalize_pci_address
from jobmeter.model.time import Clock

D = TypeVar("D", bound=Accelerator)
D_co = TypeVar("D_co", bound=Accelerator, covariant=True)


@dataclass(frozen=True)
class DriverProblem:
    """Reason why a driver cannot be used, in its words, and the state of its devices for this reason."""

    text: str
    state: DeviceState


class Driver(Protocol[D_co]):
    """Driver of a vendor's devices on this node. For one thread."""

    @property
    def problem(self) -> DriverProblem | None:
        """Reason why the driver cannot be used; None while it can."""
        ...

    def list_devices(self, now_ms: int | None = None) -> Sequence[D_co]:
        """Return the devices, including those that cannot be opened; empty without a driver.

        The first call opens the driver. A failed opening is retried after growing pauses of up to a minute; without
        ``now_ms``, at every call.
        """
        ...

    def close(self) -> bool:
        """Close every file of the driver. The next call of ``list_devices`` opens it again.

        Returns False if a call has not returned: its files stay open, and the next call of ``close`` tries again.
        """
        ...


class Measure(NamedTuple, Generic[D]):
    """Call of a driver: the metrics that it may give, and the function that reads them in the catalogue's units."""

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

    ``open`` gets the clock, the machine, and the seconds that one collection waits for the driver. It returns at once:
    ``Driver.list_devices`` makes the calls that may hang.

    ``measures`` are read at every collection, ``slow_measures`` once a minute. ``check`` reads the errors of a device.

    ``device_numbers`` are the minor numbers of the devices' character devices by major number. If it is empty, the
    files of the devices have the numbers. ``device_files`` is the beginning of the names of these files in /dev; a
    number follows. ``driver_folder`` is in /proc while the driver is loaded; empty if it has none there. ``pci_driver``
    is the name of the kernel's driver, under which /sys lists the addresses of all devices of the node.
    ``unit_devices`` are the names by which a unit of systemd gives access to them (``DeviceAllow``).

    ``domain`` ends the names of Kubernetes' resource and of its driver: ``nvidia.com``. ``resource_kinds`` are regular
    expressions for its resources besides ``gpu`` and ``npu``. ``uuid_of_id`` returns the UUID or the PCI address in an
    id of its device plug-in. ``id_of_part`` returns the id of a partition if the id is not the UUID. ``number_of_id``
    returns the device number in an id, if there is one; its arguments are a resource, an id and the devices.

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

    def list_files(self, machine: Machine) -> list[Path]:
        """Return the files of its devices in /dev."""
        start = Path(machine.dev, self.device_files.removeprefix("/dev/"))
        return [Path(f"{start}{number}") for number in files.list_numbers(start.parent, start.name)]

    def find_character_numbers(self, machine: Machine) -> Mapping[int, range]:
        """Return the minor numbers of the devices by major number, from their files in /dev: the kernel chose them."""
        if self.device_numbers:
            return self.device_numbers
        majors = {files.read_major_number(str(path)) for path in self.list_files(machine)}
        return {major: range(2**20) for major in majors if major}

    def list_addresses(self, machine: Machine) -> list[str]:
        """Return the PCI addresses of all its devices on the node, in order; empty if /sys does not list them.

        A container sees them too, whichever devices it may open.
        """
        if not self.pci_driver:
            return []
        listed = Path(machine.sys, "bus/pci/drivers", self.pci_driver).glob("*:*")
        return sorted({address for path in listed if (address := normalize_pci_address(path.name))})

    def is_present(self, machine: Machine) -> bool:
        """Return True if the machine has its devices or its driver. Reads files alone."""
        loaded = bool(self.driver_folder) and Path(machine.proc, self.driver_folder).is_dir()
        return loaded or bool(self.list_files(machine)) or bool(self.list_addresses(machine))
