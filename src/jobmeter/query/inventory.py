"""Devices in nodes' records. The field is unchecked: clients may write anything."""

from collections.abc import Iterable, Mapping
from typing import Any

from jobmeter.model.device import normalize_pci_address
from jobmeter.model.job import Node

UNKNOWN = ""
"""Type of a device that no record names."""


def list_device_types(info: Mapping[str, Any]) -> list[str]:
    """List the type of each device of a node. Partitions count in place of their device, because jobs have them."""
    divided = find_divided_devices(info)
    return [name for device, name in _devices(info) if not device or device not in divided]


def list_named_devices(info: Mapping[str, Any]) -> list[str]:
    """List the names of a node's devices, if named."""
    return [device for device, _ in _devices(info) if device]


def find_divided_devices(info: Mapping[str, Any]) -> set[str]:
    """Return the names of the devices that have partitions: jobs have these instead."""
    parents = {str(one["parent"]) for one in _read_devices(info) if one.get("parent")}
    return {str(one.get("device", "")) for one in _read_devices(info) if str(one.get("uuid", "")) in parents}


def map_device_addresses(info: Mapping[str, Any]) -> dict[str, str]:
    """Return the names of a node's devices by PCI address, as far as its agent reports addresses."""
    listed = _read_devices(info)
    found = ((normalize_pci_address(str(one.get("pci", ""))), str(one.get("device", ""))) for one in listed)
    return {address: device for address, device in found if address and device}


def map_device_states(info: Mapping[str, Any]) -> dict[str, str]:
    """Return by device name why the node's agent cannot measure a device. Measured devices are left out."""
    return {str(one.get("device", "")): str(one["state"]) for one in _read_devices(info) if one.get("state")}


def _read_devices(info: Mapping[str, Any]) -> list[dict[str, Any]]:
    stated = info.get("devices")
    return [one for one in stated if isinstance(one, dict)] if isinstance(stated, list) else []


class Inventory:
    """Device types of some nodes. Nodes are found by name: a name in several clusters is ambiguous."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        self._by_device: dict[tuple[str, str], set[str]] = {}
        self._by_node: dict[str, set[str]] = {}
        for node in nodes:
            for device, name in _devices(node.info):
                self._by_device.setdefault((node.name, device), set()).add(name)
                self._by_node.setdefault(node.name, set()).add(name)

    def find_type(self, node: str, device: str) -> str:
        """Return the type of a device; for a device missing in the record, the node's only type."""
        return _find_only(self._by_device.get((node, device), ())) or self.find_common_type(node)

    def find_common_type(self, *nodes: str) -> str:
        """Return the type that all devices of those nodes have; ``UNKNOWN`` if they differ or have no type."""
        return _find_only({name for node in nodes for name in self._by_node.get(node, ())})


def _find_only(names: Iterable[str]) -> str:
    found = set(names)
    return found.pop() if len(found) == 1 else UNKNOWN


def _devices(info: Mapping[str, Any]) -> list[tuple[str, str]]:
    """List (device, type) of each device. A device that its agent could not open gets the only type of the others."""
    stated = info.get("devices")
    devices = stated if isinstance(stated, list) else []
    found = [
        (str(one.get("device", "")), str(one.get("name", UNKNOWN))) if isinstance(one, dict) else ("", str(one))
        for one in devices
    ]
    only = _find_only({name for _, name in found} - {UNKNOWN})
    return [(device, name or only) for device, name in found]
