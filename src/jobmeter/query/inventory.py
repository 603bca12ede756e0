"""Nodes as machines, and their devices. What a record says of devices is unchecked: a client may have written it."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from jobmeter.model.job import Node
from jobmeter.model.order import natural

UNKNOWN = ""
"""The type of a device of which no node says it."""


def device_types(info: Mapping[str, Any]) -> list[str]:
    """The type of each device of a node."""
    return [name for _, name in _devices(info)]


def named_devices(info: Mapping[str, Any]) -> list[str]:
    """The names of the devices of a node, as far as it names them."""
    return [device for device, _ in _devices(info) if device]


class Inventory:
    """The types of the devices of some nodes. Nodes are found by name: one that several clusters have is ambiguous."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        self._by_device: dict[tuple[str, str], set[str]] = {}
        self._by_node: dict[str, set[str]] = {}
        for node in nodes:
            for device, name in _devices(node.info):
                self._by_device.setdefault((node.name, device), set()).add(name)
                self._by_node.setdefault(node.name, set()).add(name)

    def type_of(self, node: str, device: str) -> str:
        """The type of a device; of one that the node does not list, the only type that the node has."""
        return _only(self._by_device.get((node, device), ())) or self.only_type(node)

    def only_type(self, *nodes: str) -> str:
        """The type that all devices of those nodes have; ``UNKNOWN`` where they differ or nobody says."""
        return _only({name for node in nodes for name in self._by_node.get(node, ())})


def machines(nodes: Iterable[Node]) -> list[Node]:
    """Each machine once, by cluster and name: several projects may have a record of it.

    The machine is as the newest record describes it that an agent made, and was heard of when any record was.
    """
    records: dict[tuple[str, str], list[Node]] = {}
    for node in nodes:
        records.setdefault((node.cluster, node.name), []).append(node)
    places = sorted(records, key=lambda place: (natural(place[0]), natural(place[1])))
    return [_machine(records[place]) for place in places]


def _machine(records: Sequence[Node]) -> Node:
    best = max(records, key=lambda one: (bool(one.info), one.last_seen or 0, one.project))
    first = min((one.first_seen for one in records if one.first_seen is not None), default=None)
    last = max((one.last_seen for one in records if one.last_seen is not None), default=None)
    group = best.resource_group or next((one.resource_group for one in records if one.resource_group), "")
    return replace(best, resource_group=group, first_seen=first, last_seen=last)


def _only(names: Iterable[str]) -> str:
    found = set(names)
    return found.pop() if len(found) == 1 else UNKNOWN


def _devices(info: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(device, type) of each device."""
    stated = info.get("devices")
    devices = stated if isinstance(stated, list) else []
    return [
        (str(one.get("device", "")), str(one.get("name", UNKNOWN))) if isinstance(one, dict) else ("", str(one))
        for one in devices
    ]
