"""Collects metrics of NVIDIA GPUs and attributes them to jobs."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from jobmeter.collect.base import Owner, Place, Samples
from jobmeter.collect.discover.devices import (
    AllocationTracker,
    Claim,
    DeviceAllocator,
    Permitted,
    allocations_by_source,
    claims,
    device_name,
    no_device_list,
)
from jobmeter.collect.discover.disagree import DisagreementWatch, disagreements
from jobmeter.collect.discover.member import Member
from jobmeter.collect.discover.permitted import DeviceGroups
from jobmeter.collect.nvidia.api import DeviceLostError, DeviceProcess, NotSupportedError, Nvml, NvmlDevice
from jobmeter.collect.nvidia.measures import MEASURES, SLOW_MEASURES
from jobmeter.model.sample import Sample

T = TypeVar("T")

_SLOW_MS = 60_000
_PROCESS_METRICS = ("gpu.process.memory.usage", "gpu.process.utilization")

_log = logging.getLogger(__name__)


class NvidiaCollector:
    """See ``Collector``.

    A whole-device metric is measured for the job when exactly one job has the device, and for its replica when exactly
    one replica has it. A device of several jobs, or one that a process without a job uses, is measured without a job;
    the share of each replica's processes is measured for the replica. ``member_of`` gives the job of a process,
    ``members`` all processes of jobs. ``alone`` is for ``jobmeter run``: metrics without a job are left to the node's
    agent. ``allocated`` are the sources of allocations, most trusted first; ``groups`` reads what control groups
    permit.
    """

    name = "nvidia"
    metrics = (
        *(metric for measure in (*MEASURES, *SLOW_MEASURES) for metric in measure.metrics),
        *_PROCESS_METRICS,
    )

    def __init__(
        self,
        place: Place,
        nvml: Nvml,
        member_of: Callable[[int], Member | None],
        members: Callable[[], Iterable[Member]],
        *,
        alone: bool = False,
        allocated: Sequence[DeviceAllocator] = (),
        groups: DeviceGroups | None = None,
    ) -> None:
        self.allocations = AllocationTracker(place)
        self.disagreements = DisagreementWatch(place)
        self.devices: Sequence[NvmlDevice] = ()
        """The devices of the last look."""
        self._place = place
        self._nvml = nvml
        self._member_of = member_of
        self._members = members
        self._alone = alone
        self._allocated = allocated
        self._groups = groups
        self._slow_ms: int | None = None
        self._lost: set[int] = set()

    def collect(self, now_ms: int) -> Samples:
        """See ``Collector.collect``. A value that a device does not give is absent; a lost device stops no other."""
        self.devices = devices = self._nvml.devices()
        if not devices:
            return []
        slow = self._slow_ms is None or not 0 <= now_ms - self._slow_ms < _SLOW_MS
        if slow:
            self._slow_ms = now_ms
        processes = {device.index: self._read(device, device.processes) for device in devices}
        users = {
            index: [(process, self._member_of(process.pid)) for process in some]
            for index, some in processes.items()
            if some is not None
        }
        owned = self._claims(devices, users, now_ms)
        samples: Samples = []
        for device in devices:
            present = users.get(device.index, [])
            foreign = any(member is None or member.measured for _, member in present)
            owner = None if foreign else _single(owned.get(device.index, []))
            if owner is not None or not self._alone:
                samples += self._whole(device, owner, now_ms, slow=slow)
            samples += self._by_replica(device, present, now_ms)
        return samples

    def _claims(
        self,
        devices: Sequence[NvmlDevice],
        users: Mapping[int, Sequence[tuple[DeviceProcess, Member | None]]],
        now_ms: int,
    ) -> dict[int, list[Claim]]:
        working = {
            index: [member for _, member in some if member and not member.measured] for index, some in users.items()
        }
        members = [member for member in self._members() if not member.measured]
        given = allocations_by_source(self._allocated, devices, now_ms)
        groups = self._groups
        permitted: Permitted = partial(groups.permitted, devices=devices, now_ms=now_ms) if groups else no_device_list
        found = claims(devices, working, members, given, permitted)
        self.allocations.update(now_ms, {index: some for index, some in found.items() if index in users})
        self.disagreements.update(now_ms, disagreements(devices, working, given, members, permitted))
        return found

    def _whole(self, device: NvmlDevice, owner: Owner | None, now_ms: int, *, slow: bool) -> Samples:
        name = device_name(device.index)
        values: dict[str, float] = {}
        for measure in (*MEASURES, *(SLOW_MEASURES if slow else ())):
            values.update(self._read(device, partial(measure.read, device)) or {})
        return [Sample(self._place.of_device(metric, name, owner), now_ms, value) for metric, value in values.items()]

    def _by_replica(
        self, device: NvmlDevice, present: Sequence[tuple[DeviceProcess, Member | None]], now_ms: int
    ) -> Samples:
        mine = [(process, member.owner) for process, member in present if member and not member.measured]
        if not mine:
            return []
        memory: dict[Owner, float] = {}
        for process, owner in mine:
            if process.memory is not None:
                memory[owner] = memory.get(owner, 0.0) + process.memory
        shares = self._read(device, device.process_utilization) or {}
        busy: dict[Owner, float] = {}
        for process, owner in mine:
            if process.pid in shares:
                busy[owner] = min(busy.get(owner, 0.0) + shares[process.pid] * 0.01, 1.0)
        name = device_name(device.index)
        return [
            Sample(self._place.of_device(metric, name, owner), now_ms, value)
            for metric, values in zip(_PROCESS_METRICS, (memory, busy), strict=True)
            for owner, value in values.items()
        ]

    def _read(self, device: NvmlDevice, question: Callable[[], T]) -> T | None:
        """The answer of one call; None when the device does not give it."""
        try:
            answer = question()
        except NotSupportedError:
            return None
        except DeviceLostError as error:
            if device.index not in self._lost:
                _log.warning("%s does not answer any more: %s", device_name(device.index), error)
            self._lost.add(device.index)
            return None
        self._lost.discard(device.index)
        return answer


def _single(claims_of_device: Sequence[Claim]) -> Owner | None:
    """The owner of the device; without a replica when several of one job share it; None for several jobs."""
    owners = {claim.owner for claim in claims_of_device}
    if len(owners) == 1:
        return next(iter(owners))
    jobs = {owner.job for owner in owners}
    return Owner(next(iter(jobs)), "", max(owner.attempt for owner in owners)) if len(jobs) == 1 else None
