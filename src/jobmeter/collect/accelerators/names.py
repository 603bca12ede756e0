"""Names of devices on a node: ``gpu0``, and ``amd0`` where another vendor has ``gpu0``."""

from collections.abc import Callable, Mapping, Sequence
from itertools import count
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Generic

import msgspec

from jobmeter.collect.accelerators.device import Accelerator
from jobmeter.collect.accelerators.vendor import D, Vendor
from jobmeter.collect.machine import Machine
from jobmeter.collect.state_file import StateFile

if TYPE_CHECKING:
    from jobmeter.collect.accelerators.visible import Partition

DeviceName = Callable[[int], str]
"""Function that returns the name of a vendor's device by its number."""


def name_gpu(index: int) -> str:
    """Return the name of a device on a node with one vendor of GPUs."""
    return f"gpu{index}"


class DeviceNames:
    """Names of the devices of several vendors, unique on the node. For several threads.

    A vendor's prefix names its devices, unless a vendor before it has the same prefix and is present on the machine.
    Then the vendor's own name takes the place of the prefix. The choice is made once, at the first name.
    """

    def __init__(self, vendors: tuple[Vendor[Any], ...], machine: Machine, state: Path | None = None) -> None:
        """``state`` is the folder in which the places of devices outlive the agent; None: they end with the agent."""
        self.vendors = vendors
        self.machine = machine
        self._lock = Lock()
        self._file = StateFile(state and state / "device-places.json", msgspec.json.Decoder(dict[str, dict[str, str]]))
        self._places = self._file.load() or {}
        self._chosen: dict[str, str] = {}

    def get_vendor_names(self, vendor: Vendor[D]) -> "VendorNames[D]":
        """Return the names of a vendor's devices."""
        return VendorNames(self, vendor)

    def list_places(self, vendor: Vendor[Any], devices: Mapping[str, str]) -> list[str]:
        """Return the PCI addresses by which a vendor's devices are numbered, and store them; see ``assign_places``."""
        with self._lock:
            before = self._places.get(vendor.name, {})
            self._places[vendor.name] = found = assign_places(before, devices, vendor.list_addresses(self.machine))
            self._file.save(self._places)
        return sorted(found)

    def choose_prefix(self, vendor: Vendor[Any]) -> str:
        """Return the text that precedes the number of each device of a vendor."""
        with self._lock:
            if vendor.name not in self._chosen:
                before = self.vendors[: self.vendors.index(vendor)]
                taken = vendor.prefix in self._chosen.values() or any(
                    other.prefix == vendor.prefix and other.is_present(self.machine) for other in before
                )
                self._chosen[vendor.name] = vendor.name if taken else vendor.prefix
            return self._chosen[vendor.name]


def number_devices(devices: Sequence[tuple[int, str]], addresses: Sequence[str]) -> dict[int, int]:
    """Return the number on the node of each device: its index where the process sees all devices of the node.

    ``devices`` are indices and PCI addresses. ``addresses`` are the node's PCI addresses, in order; empty if unknown.
    """
    if len(addresses) <= len(devices):
        return {index: index for index, _ in devices}
    places = {address: number for number, address in enumerate(addresses)}
    after = count(len(addresses))
    return {index: places.pop(pci) if pci in places else next(after) for index, pci in devices}


def assign_places(before: Mapping[str, str], devices: Mapping[str, str], addresses: Sequence[str]) -> dict[str, str]:
    """Return the UUID of the device at each PCI address of the node, empty if unknown.

    ``before`` is the last result: a removed address still counts, so that the devices after it keep their names. If no
    address is left or a device has moved, removed addresses do not count, because the buses have other numbers then.
    ``devices`` are the UUIDs of the present devices by address. ``addresses`` are the addresses that /sys lists.
    """
    present = {*addresses} or {*devices}
    places = {uuid: address for address, uuid in before.items() if uuid}
    moved = any(places.get(uuid, address) != address for address, uuid in devices.items())
    kept = {} if moved or not present & before.keys() else before
    return {address: devices.get(address) or kept.get(address, "") for address in {*kept, *present}}


class VendorNames(Generic[D]):
    """Names of the devices of one vendor."""

    def __init__(self, names: DeviceNames, vendor: Vendor[D]) -> None:
        self._names = names
        self.vendor = vendor
        self._numbers: Mapping[int, int] = {}
        self._parts: dict[int, Partition] = {}
        self._placed: tuple[tuple[int, str, str], ...] = ()

    def __call__(self, index: int) -> str:
        """Return the name of a device by its number among those that the driver shows."""
        part = self._parts.get(index)
        if part is None:
            return f"{self._names.choose_prefix(self.vendor)}{self.get_number(index)}"
        return f"{self(part.parent)}:{part.instance}{f':{part.place}' if part.place else ''}"

    def get_number(self, index: int) -> int:
        """Return the number on the node of a device, by its number among the devices that the driver shows."""
        return self._numbers.get(index, index)

    def assign_places(self, devices: Sequence[Accelerator]) -> None:
        """Name devices by the order of all PCI addresses of the node, also in a container with some of the devices.

        A vendor without a ``pci_driver`` numbers its devices for the node already. A device at an unknown address gets
        a number after all others. The name of a partition has its instance behind the name of its device: ``gpu0:3``.
        """
        # Partitions that are gone are named once more, at the end of their allocations.
        self._parts |= {device.index: device.part for device in devices if device.part is not None}
        placed = tuple((device.index, device.pci, device.uuid) for device in devices if device.part is None)
        if self.vendor.pci_driver and placed and placed != self._placed:
            places = self._names.list_places(self.vendor, {pci: uuid for _, pci, uuid in placed if pci})
            self._numbers = number_devices([(index, pci) for index, pci, _ in placed], places)
            self._placed = placed

    def are_plain(self) -> bool:
        """Return True for the names ``gpu0`` and so on: then Slurm's numbers of GPUs are those in the names."""
        return self._names.choose_prefix(self.vendor) == name_gpu(0)[:-1]
