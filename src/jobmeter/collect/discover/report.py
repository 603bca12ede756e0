"""The records that an agent sends: the jobs that it found on its node, and the node itself."""

import os
import platform
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from jobmeter import __version__
from jobmeter.collect import files
from jobmeter.collect.base import Owner, Place
from jobmeter.collect.discover.devices import device_name
from jobmeter.collect.discover.member import Member
from jobmeter.collect.discover.table import Process
from jobmeter.model.job import JobState
from jobmeter.model.record import JobRecord, NodeRecord, Records, ReplicaRecord

_GRACE_MS = 60_000
"""A replica without a process for this long has ended: between two steps of a job there may be none."""
_AGAIN_MS = 3_600_000
"""How often a node describes itself anew."""


@dataclass(slots=True)
class _Seen:
    member: Member
    start_ms: int
    last_ms: int


class JobReporter:
    """See ``RecordSource``. Says once that a replica has started here, and once that it has ended.

    Whether a job goes on elsewhere a node does not know: its state is left to whoever does. How a replica ended here it
    has not seen either, for it is not its parent: that one is Unknown from its end on.
    """

    def __init__(
        self, place: Place, processes: Callable[[], Iterable[Process]], epoch_ms: Callable[[int], int]
    ) -> None:
        """``epoch_ms`` gives the epoch milliseconds of so many milliseconds after the start of the machine."""
        self._place = place
        self._processes = processes
        self._epoch_ms = epoch_ms
        self._ticks = os.sysconf("SC_CLK_TCK")
        self._seen: dict[Owner, _Seen] = {}

    def records(self, now_ms: int) -> Records:
        """See ``RecordSource.records``."""
        fresh: dict[Owner, _Seen] = {}
        for process in self._processes():
            member = process.member
            if member.measured:
                continue
            start = min(self._epoch_ms(process.stat.key.start * 1000 // self._ticks), now_ms)
            known = self._seen.get(member.owner) or fresh.setdefault(member.owner, _Seen(member, start, now_ms))
            known.last_ms = now_ms
            known.start_ms = min(known.start_ms, start)
        self._seen.update(fresh)
        over = [owner for owner, seen in self._seen.items() if not 0 <= now_ms - seen.last_ms <= _GRACE_MS]
        ended = [(owner, self._seen.pop(owner)) for owner in over]
        jobs = [self._job(owner, seen, None) for owner, seen in fresh.items()]
        jobs += [self._job(owner, seen, max(seen.start_ms, seen.last_ms)) for owner, seen in ended]
        return Records(jobs=jobs)

    def _job(self, owner: Owner, seen: _Seen, end: int | None) -> JobRecord:
        member = seen.member
        replica = ReplicaRecord(
            name=owner.replica,
            attempt=owner.attempt,
            rank=member.rank,
            cluster=self._place.cluster,
            node=self._place.node,
            pod_id=member.pod_id,
            state=None if end is None else JobState.UNKNOWN,
            start=seen.start_ms,
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


class Described(Protocol):
    """A device as a node's description names it."""

    @property
    def index(self) -> int:
        """Its number on the node."""
        ...

    @property
    def uuid(self) -> str:
        """Its name everywhere."""
        ...

    @property
    def name(self) -> str:
        """The product."""
        ...


class NodeReporter:
    """See ``RecordSource``. Describes the node at the start, every hour, and when its devices change."""

    def __init__(self, place: Place, devices: Callable[[], Sequence[Described]], proc_root: str = "/proc") -> None:
        self._place = place
        self._devices = devices
        self._proc = proc_root
        self._told: dict[str, Any] = {}
        self._told_ms = 0

    def records(self, now_ms: int) -> Records:
        """See ``RecordSource.records``."""
        info = self._info()
        if info == self._told and 0 <= now_ms - self._told_ms < _AGAIN_MS:
            return Records()
        self._told, self._told_ms = info, now_ms
        place = self._place
        node = NodeRecord(name=place.node, cluster=place.cluster, resource_group=place.resource_group, info=info)
        return Records(nodes=[node])

    def _info(self) -> dict[str, Any]:
        memory = (files.read_pairs(f"{self._proc}/meminfo") or {}).get(b"MemTotal")
        info: dict[str, Any] = {
            "kernel": platform.release(),
            "architecture": platform.machine(),
            "cores": os.cpu_count(),
            "memory": None if memory is None else memory * 1024,
            "agent": __version__,
            "devices": [
                {"device": device_name(device.index), "name": device.name, "uuid": device.uuid}
                for device in self._devices()
            ],
        }
        return {name: value for name, value in info.items() if value not in (None, [])}
