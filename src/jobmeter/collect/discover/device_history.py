"""History of the devices of a node: a card that was replaced is another device under the same name."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from jobmeter.collect.state_file import StateFile

MOST = 256
"""Most devices that are remembered. The least recent is forgotten first."""


class _Stay(msgspec.Struct):
    """Device under a name, with its first and its last time there (epoch ms)."""

    device: str
    uuid: str
    facts: dict[str, Any]
    since: int
    until: int


class DeviceHistory:
    """Devices that were on the node, by name and UUID, over restarts of the agent.

    A device without a UUID could not be opened. It is left out, and the device under its name stays the present one.
    """

    def __init__(self, state: Path | None = None) -> None:
        """``state`` is the folder of the agent's state; None: the history ends with the agent."""
        self._file = StateFile(state and state / "devices.json", msgspec.json.Decoder(list[_Stay]))
        self._stays = (self._file.load() or [])[:MOST]

    def update(self, now_ms: int, devices: Iterable[Mapping[str, Any]]) -> tuple[dict[str, int], list[dict[str, Any]]]:
        """Update with the present devices as the node's record describes them.

        Return the time since which each of them has been under its name, and the former devices, latest first.
        """
        newest = {stay.device: stay for stay in sorted(self._stays, key=lambda one: one.until)}
        present: dict[str, _Stay] = {}
        unknown: set[str] = set()
        for one in devices:
            name, uuid = one["device"], one["uuid"]
            stay = newest.get(name)
            if not uuid:
                unknown.add(name)
                continue
            facts = {key: one[key] for key in ("name", "serial", "pci") if one.get(key)}
            if stay is None or stay.uuid != uuid:
                stay = _Stay(name, uuid, facts, now_ms, now_ms)
                self._stays.append(stay)
            stay.facts, stay.until = facts, max(now_ms, stay.since)
            present[name] = stay
        self._stays = sorted(self._stays, key=lambda one: one.until)[-MOST:]
        left = {id(stay) for stay in present.values()} | {id(newest[name]) for name in unknown & newest.keys()}
        former = [
            {"device": stay.device, "uuid": stay.uuid, **stay.facts, "since": stay.since, "until": stay.until}
            for stay in reversed(self._stays)
            if id(stay) not in left
        ]
        return {name: stay.since for name, stay in present.items()}, former

    def save(self) -> None:
        """Write the state."""
        self._file.save(self._stays)
