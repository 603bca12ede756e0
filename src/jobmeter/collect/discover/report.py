"""Records that an agent sends: the jobs found on its node, and the node itself."""

import os
import platform
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jobmeter import __version__
from jobmeter.collect import files
from jobmeter.collect.accelerators.device import Accelerator
from jobmeter.collect.base import NodeIdentity, Owner
from jobmeter.collect.discover.device_history import DeviceHistory
from jobmeter.collect.discover.member import Member, Process
from jobmeter.model.device import DeviceState
from jobmeter.model.job import JobState
from jobmeter.model.record import JobRecord, NodeRecord, Records, ReplicaRecord

_GRACE_MS = 60_000
"""Time in milliseconds without a process after which a replica has ended: between two steps of a job there may be none.
"""
_AGAIN_MS = 3_600_000
"""Interval in milliseconds at which a node describes itself again."""

_MACHINE_MS = 60_000
"""Interval in milliseconds at which the files about the machine itself are read."""


@dataclass(slots=True)
class _Sighting:
    member: Member
    start_ms: int
    last_ms: int


class JobReporter:
    """Record source: the start and the end of each replica on this node, once.

    The state of the job is unknown, because it may run elsewhere. So is the exit status of a replica, because the agent
    is not its parent.
    """

    def __init__(
        self, place: NodeIdentity, processes: Callable[[], Iterable[Process]], epoch_ms: Callable[[int], int]
    ) -> None:
        """``epoch_ms`` converts milliseconds since the boot to epoch milliseconds."""
        self._place = place
        self._processes = processes
        self._epoch_ms = epoch_ms
        self._ticks = os.sysconf("SC_CLK_TCK")
        self._sightings: dict[Owner, _Sighting] = {}

    def take_records(self, now_ms: int) -> Records:
        """Return the records since the last call."""
        fresh: dict[Owner, _Sighting] = {}
        for process in self._processes():
            member = process.member
            if member.measured:
                continue
            start = min(self._epoch_ms(process.stat.key.start * 1000 // self._ticks), now_ms)
            sighting = self._sightings.get(member.owner) or fresh.setdefault(
                member.owner, _Sighting(member, start, now_ms)
            )
            if sighting.member.rank is None and member.rank is not None:
                # A launcher that matches a rule comes before its ranks and has no rank.
                sighting.member = member
                fresh[member.owner] = sighting
            sighting.last_ms = now_ms
            sighting.start_ms = min(sighting.start_ms, start)
        self._sightings.update(fresh)
        over = [owner for owner, sighting in self._sightings.items() if not 0 <= now_ms - sighting.last_ms <= _GRACE_MS]
        ended = [(owner, self._sightings.pop(owner)) for owner in over]
        jobs = [self._make_job(owner, sighting, None) for owner, sighting in fresh.items()]
        jobs += [self._make_job(owner, sighting, max(sighting.start_ms, sighting.last_ms)) for owner, sighting in ended]
        return Records(jobs=jobs)

    def _make_job(self, owner: Owner, sighting: _Sighting, end: int | None) -> JobRecord:
        member = sighting.member
        replica = ReplicaRecord(
            name=owner.replica,
            attempt=owner.attempt,
            rank=member.rank,
            cluster=self._place.cluster,
            node=self._place.node,
            pod_id=member.pod_id,
            state=None if end is None else JobState.UNKNOWN,
            start=sighting.start_ms,
            end=end,
        )
        return JobRecord(
            job_id=owner.job,
            project=self._place.project or None,
            name=member.name or None,
            type=member.kind or None,
            user=member.user or None,
            replicas=[replica],
        )


@dataclass(slots=True, eq=False)
class NodeReporter:
    """Record source: the description of the node, at the start, every hour, and when its devices change."""

    place: NodeIdentity
    devices: Callable[[], Mapping[str, Accelerator]]
    """Function that returns the devices by name."""
    proc_root: str = "/proc"
    interval_ms: int | None = None
    """Interval of the agent, by which the server detects a silent agent."""
    state: Path | None = None
    """Folder that stores the history of devices."""
    _history: DeviceHistory = field(init=False)
    _sent: dict[str, Any] = field(default_factory=dict)
    _sent_ms: int = 0
    _machine: dict[str, Any] = field(default_factory=dict)
    _read_ms: int = -_MACHINE_MS

    def __post_init__(self) -> None:
        """Load the history."""
        self._history = DeviceHistory(self.state)

    def take_records(self, now_ms: int) -> Records:
        """Return the node's record if it is due."""
        info = self._describe(now_ms)
        if info == self._sent and 0 <= now_ms - self._sent_ms < _AGAIN_MS:
            return Records()
        self._history.save()
        self._sent, self._sent_ms = info, now_ms
        place = self.place
        node = NodeRecord(name=place.node, cluster=place.cluster, resource_group=place.resource_group, info=info)
        return Records(nodes=[node])

    def _describe(self, now_ms: int) -> dict[str, Any]:
        devices = [_describe_device(name, device) for name, device in self.devices().items()]
        since, former = self._history.update(now_ms, devices)
        if not 0 <= now_ms - self._read_ms < _MACHINE_MS:
            self._machine, self._read_ms = _describe_machine(self.proc_root), now_ms
        info: dict[str, Any] = {
            **self._machine,
            "agent": __version__,
            "interval_ms": self.interval_ms,
            "devices": [
                {**one, **({"since": since[one["device"]]} if one["device"] in since else {})} for one in devices
            ],
            "former_devices": former,
        }
        return {name: value for name, value in info.items() if value not in (None, [], "")}


def _describe_machine(proc_root: str) -> dict[str, Any]:
    """Describe the machine for the node's record; None for unknown facts."""
    memory = (files.read_pairs(f"{proc_root}/meminfo") or {}).get(b"MemTotal")
    booted = (files.read_pairs(f"{proc_root}/stat") or {}).get(b"btime")
    return {
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "cores": os.cpu_count(),
        "memory": None if memory is None else memory * 1024,
        "boot_id": files.read_boot_id(proc_root),
        "booted": None if booted is None else booted * 1000,
    }


def _describe_device(device_name: str, device: Accelerator) -> dict[str, Any]:
    """Describe a device for the node's record, with its state if it is not measured."""
    state = "" if device.state is DeviceState.MEASURED else str(device.state)
    known = {"pci": device.pci, "state": state, **device.details}
    named = {"device": device_name, "name": device.name, "uuid": device.uuid}
    return {**named, **{name: value for name, value in known.items() if value not in (None, "")}}
