"""Names of devices on a node: ``gpu0``, and ``amd0`` where another vendor has ``gpu0``."""

from collections.abc import Callable, Mapping, Sequence
from itertools import count
from threading import Lock
from typing import TYPE_CHECKING, Any, Generic

from jobmeter.collect.accelerators.vendor import D, Device, Vendor
from jobmeter.collect.machine import Machine

if TYPE_CHECKING:
    from jobmeter.collect.accelerators.visible import Partition

DeviceName = Callable[[int], str]
"""Function that returns the name of a vendor's device by its number."""


def gpu_name(index: int) -> str:
    """Return the name of a device on a node with one vendor of GPUs."""
    return f"gpu{index}"


class DeviceNames:
    """Names of the devices of several vendors, unique on the node. For several threads.

    A vendor's prefix names its devices, unless a vendor before it has the same prefix and is present on the machine.
    Then the vendor's own name takes the place of the prefix. The choice is made once, at the first name.
    """

    def __init__(self, vendors: tuple[Vendor[Any], ...], machine: Machine) -> None:
        self._vendors = vendors
        self._machine = machine
        self._lock = Lock()
        self._chosen: dict[str, str] = {}

    def of(self, vendor: Vendor[D]) -> "VendorNames[D]":
        """Return the names of a vendor's devices."""
        return VendorNames(self, vendor)

    def addresses(self, vendor: Vendor[Any]) -> list[str]:
        """Return the PCI addresses of all devices of a vendor on the node."""
        return vendor.addresses(self._machine)

    def prefix(self, vendor: Vendor[Any]) -> str:
        """Return the text that precedes the number of each device of a vendor."""
        with self._lock:
            if vendor.name not in self._chosen:
                before = self._vendors[: self._vendors.index(vendor)]
                taken = vendor.prefix in self._chosen.values() or any(
                    other.prefix == vendor.prefix and other.is_present(self._machine) for other in before
                )
                self._chosen[vendor.name] = vendor.name if taken else vendor.prefix
            return self._chosen[vendor.name]


def node_numbers(devices: Sequence[tuple[int, str]], addresses: Sequence[str]) -> dict[int, int]:
    """Return the number on the node of each device: its index where the process sees all devices of the node.

    ``devices`` are indices and PCI addresses. ``addresses`` are the node's PCI addresses, in order; empty if unknown.
    """
    if len(addresses) <= len(devices):
        return {index: index for index, _ in devices}
    places = {address: number for number, address in enumerate(addresses)}
    after = count(len(addresses))
    return {index: places.pop(pci) if pci in places else next(after) for index, pci in devices}


class VendorNames(Generic[D]):
    """Names of the devices of one vendor."""

    def __init__(self, names: DeviceNames, vendor: Vendor[D]) -> None:
        self._names = names
        self.vendor = vendor
        self._numbers: Mapping[int, int] = {}
        self._parts: dict[int, Partition] = {}
        self._placed: tuple[tuple[int, str], ...] = ()
        self._addresses: list[str] = []

    def __call__(self, index: int) -> str:
        """Return the name of a device by its number among those that the driver shows."""
        part = self._parts.get(index)
        if part is None:
            return f"{self._names.prefix(self.vendor)}{self._numbers.get(index, index)}"
        return f"{self(part.parent)}:{part.instance}{f':{part.place}' if part.place else ''}"

    def place(self, devices: Sequence[Device]) -> None:
        """Name devices by the order of their PCI addresses among all of the node, also in a container with a few.

        A device whose place is unknown gets a number after all others. A partition has the name of its device, and its
        instance: ``gpu0:3``.
        """
        # Partitions that are gone are named once more, at the end of their allocations.
        self._parts |= {device.index: device.part for device in devices if device.part is not None}
        placed = tuple((device.index, device.pci) for device in devices if device.part is None)
        if placed != self._placed:
            # An address that is gone still counts, so that the devices after it keep their names.
            self._addresses = sorted({*self._addresses, *self._names.addresses(self.vendor)})
            self._numbers = node_numbers(placed, self._addresses)
            self._placed = placed

    def are_plain(self) -> bool:
        """True if the devices are ``gpu0`` and so on: then Slurm's numbers of GPUs on the node are theirs."""
        return self._names.prefix(self.vendor) == gpu_name(0)[:-1]
