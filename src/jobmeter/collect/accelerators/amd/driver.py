"""Driver of AMD's GPUs: the devices that /sys lists."""

from collections.abc import Sequence
from pathlib import Path

from jobmeter.collect import files
from jobmeter.collect.accelerators.amd.device import AmdDevice, Card
from jobmeter.collect.accelerators.amd.partition import AmdPartition
from jobmeter.collect.accelerators.amd.topology import ComputeTopology
from jobmeter.collect.accelerators.device import close_all, open_due, wait_for
from jobmeter.collect.accelerators.vendor import DriverProblem
from jobmeter.collect.machine import Machine
from jobmeter.model.device import normalize_pci_address
from jobmeter.model.time import Clock

_AMD = "0x1002"
_MOST_DEVICES = 256


class AmdDriver:
    """GPUs of the driver ``amdgpu``, by PCI address. One collection waits ``patience`` seconds for the devices.

    A device keeps its number until the set of addresses changes. A device that has disappeared is lost.
    """

    problem: DriverProblem | None = None
    """Always None: the kernel's files need no library."""

    def __init__(self, clock: Clock, machine: Machine, patience: float) -> None:
        self._clock = clock
        self._machine = machine
        self._patience = patience
        self._topology = ComputeTopology(machine)
        self._devices: list[AmdDevice] = []
        self._partitions: list[AmdPartition] = []

    def list_devices(self, now_ms: int | None = None) -> Sequence[AmdDevice]:
        """Return the GPUs, including those that have disappeared since the start, each before its partitions."""
        known = {device.pci: device for device in self._devices}
        cards = {card.pci: card for card in find_cards(self._machine)}
        if cards.keys() - known.keys():
            self._devices = []
            for index, pci in enumerate(sorted(known.keys() | cards.keys())):
                device = known.get(pci) or AmdDevice(index, self._clock, cards[pci], self._topology)
                device.index = index
                self._devices.append(device)
        deadline = self._clock.monotonic() + self._patience
        self._topology.begin_collection()
        for device in self._devices:
            device.begin_round(now_ms)
        open_due(self._devices, lambda device: device.attach, deadline, self._clock)
        self._find_partitions(deadline, now_ms)
        return [
            one for device in self._devices for one in (device, *(p for p in self._partitions if p.parent is device))
        ]

    def _find_partitions(self, deadline: float, now_ms: int | None) -> None:
        """List the partitions of every GPU. A GPU that does not answer keeps its known partitions."""
        asked = [one for one in self._devices if one.attached and one.begin(one.look_for_partitions)]
        wait_for(asked, deadline, self._clock)
        before = {(one.parent, one.place, one.node): one for one in self._partitions}
        self._partitions = []
        for device in self._devices:
            for place, node in enumerate(device.compute_nodes if device.is_partitioned else ()):
                found = before.pop((device, place, node), None)
                self._partitions.append(found or AmdPartition(device, place, node, self._clock))
        for one in self._partitions:
            one.adopt()
            one.begin_round(now_ms)
        for gone in before.values():
            gone.close()

    def close(self) -> bool:
        """Forget the files of the devices: none of them is open between two readings."""
        return close_all([*self._devices, *self._partitions])


def find_cards(machine: Machine) -> list[Card]:
    """Return AMD's GPUs by PCI address, without connectors and partitions."""
    found: dict[str, Card] = {}
    for path in sorted(Path(machine.sys, "class/drm").glob("card[0-9]*"))[:_MOST_DEVICES]:
        folder = path / "device"
        if path.name[4:].isdigit() and files.read_text(str(folder / "vendor")) == _AMD:
            pci = normalize_pci_address(_slot(folder))
            if pci:
                # A card that returns may have another number, and another card its number: the address is stable.
                found.setdefault(pci, Card(folder.resolve(), pci))
    return [found[pci] for pci in sorted(found)]


def _slot(folder: Path) -> str:
    """Return the address in the file ``uevent`` of a PCI device."""
    lines = files.read_text(str(folder / "uevent")).splitlines()
    return next((line.partition("=")[2] for line in lines if line.startswith("PCI_SLOT_NAME=")), "")
