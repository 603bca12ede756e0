"""Owners of devices: by the processes that compute on them, else by allocations or permissions of control groups."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Protocol

from jobmeter.collect.accelerators.device import Accelerator
from jobmeter.collect.accelerators.names import DeviceName, name_gpu
from jobmeter.collect.accelerators.visible import Partition, VisibleVariable, parse_ordinal
from jobmeter.collect.base import NodeIdentity, Owner
from jobmeter.collect.discover.member import Member, MembershipSource
from jobmeter.model.grouping import group_pairs
from jobmeter.model.job import AllocationSource
from jobmeter.model.record import AllocationRecord, JobRecord, Records


@dataclass(frozen=True, slots=True)
class DeviceSet:
    """Devices of one vendor on the node, the variables that name devices of a process, and the names of the devices.

    ``variables`` come most specific first. ``number`` returns the number on the node of a device by its index: a
    container shows only some of the node's devices.
    """

    devices: Sequence[Accelerator]
    variables: Sequence[VisibleVariable]
    name: DeviceName = name_gpu
    number: Callable[[int], int] = int

    def find_variable(self, member: Member) -> tuple[VisibleVariable, str] | None:
        """Return the most specific variable in the process's environment, with its value; None without any."""
        values = dict(member.devices)
        return next(((one, values[one.name]) for one in self.variables if one.name in values), None)

    def list_visible(self, member: Member, permitted: Sequence[int] | None = None) -> list[int]:
        """Return the numbers of the permitted devices in the process's environment, in its order.

        Relative numbers count from the first device that the process may open. If that is unknown, they are ignored
        inside a pod, and are the node's numbers elsewhere.
        """
        named = self.find_variable(member)
        if named is None:
            return []
        variable, text = named
        openable = [device for device in self.devices if permitted is None or device.index in permitted]
        if variable.within:
            openable = self._filter_by_variable(variable.within, member, openable)
        if variable.relative and permitted is None and member.source is MembershipSource.KUBERNETES:
            text = ",".join(entry for entry in text.split(",") if parse_ordinal(entry) is None)
        return (
            variable.parse(text, openable) if variable.relative else self._read_node_numbers(variable, text, openable)
        )

    def _read_node_numbers(self, variable: VisibleVariable, text: str, openable: Sequence[Accelerator]) -> list[int]:
        """Return the devices in a value that has the node's numbers."""
        numbered = [_number_device(device, self.number) for device in openable]
        indices = {one.index: device.index for one, device in zip(numbered, openable, strict=True)}
        return [indices[number] for number in variable.parse(text, numbered)]

    def _filter_by_variable(self, name: str, member: Member, openable: list[Accelerator]) -> list[Accelerator]:
        """Return the devices that another variable of the process names, in its order."""
        outer = next((one for one in self.variables if one.name == name), None)
        text = dict(member.devices).get(name)
        if outer is None or text is None:
            return openable
        by_index = {device.index: device for device in openable}
        return [by_index[index] for index in outer.parse(text, openable)]


@dataclass(slots=True)
class _NodeDevice:
    """Device by its number on the node."""

    index: int
    uuid: str
    part: Partition | None
    details: Mapping[str, str | int]


def _number_device(device: Accelerator, number: Callable[[int], int]) -> _NodeDevice:
    part = device.part and device.part._replace(parent=number(device.part.parent))
    return _NodeDevice(number(device.index), device.uuid, part, device.details)


@dataclass(frozen=True, slots=True)
class DeviceClaim:
    """Claim of a replica on a device; ``rank`` is the rank of the using process, if known."""

    owner: Owner
    rank: int | None
    source: AllocationSource


class DeviceAllocator(Protocol):
    """Source of allocations: the kubelet, or a scheduler's prolog."""

    source: AllocationSource

    def find_owners(self, devices: Sequence[Accelerator], now_ms: int) -> Mapping[int, Sequence[Owner]]:
        """Return the owners of each device number; empty if unknown."""
        ...


Permitted = Callable[[Member], Sequence[int] | None]
"""Function that returns the devices that a process's control group permits, in order; None if unknown."""


def return_no_devices(member: Member) -> Sequence[int] | None:  # noqa: ARG001 - the form of Permitted
    """Return None: the permitted devices are unknown."""
    return None


def collect_allocations(
    sources: Iterable[DeviceAllocator], devices: Sequence[Accelerator], now_ms: int
) -> dict[int, list[DeviceClaim]]:
    """Return the allocations of each device number by source, most trusted first."""
    found: dict[int, list[DeviceClaim]] = {}
    for source in sources:
        for index, owners in source.find_owners(devices, now_ms).items():
            found.setdefault(index, []).extend(DeviceClaim(owner, None, source.source) for owner in owners)
    return found


def determine_claims(
    devices: DeviceSet,
    users: Mapping[int, Sequence[Member]],
    members: Sequence[Member],
    given: Mapping[int, Sequence[DeviceClaim]] | None = None,
    permitted: Permitted = return_no_devices,
) -> dict[int, list[DeviceClaim]]:
    """Determine the claims on each device number.

    ``users`` are the members that compute on a device now; a device with users belongs only to them. ``members`` are
    all processes of jobs: their environments name devices, and their control groups permit devices. ``given`` are
    allocations by the kubelet or a prolog, which take precedence. Only an allocation or a user claims a device with
    partitions, because the partitions compute.
    """
    found: dict[int, dict[Owner, DeviceClaim]] = {device.index: {} for device in devices.devices}
    for index, present in users.items():
        for member in present:
            _claim(found[index], member, AllocationSource.PROCESS)
    used = {index for index, present in users.items() if present}
    for index, some in (given or {}).items():
        for claim in some:
            found[index].setdefault(claim.owner, claim)
            used.add(index)
    divided = {device.part.parent for device in devices.devices if device.part is not None}
    free = {index: by_owner for index, by_owner in found.items() if index not in used | divided}
    _claim_visible(devices, free, members, permitted)
    whole = {device.index for device in devices.devices if device.part is None}
    _claim_permitted(whole, free, members, permitted)
    return {index: list(by_owner.values()) for index, by_owner in found.items()}


def _claim_visible(
    devices: DeviceSet, free: Mapping[int, dict[Owner, DeviceClaim]], members: Iterable[Member], permitted: Permitted
) -> None:
    for member in members:
        allowed = permitted(member)
        names = devices.list_visible(member, allowed)
        if member.local_rank is not None and member.local_rank < len(names):
            names = [names[member.local_rank]]
        source = AllocationSource.ENVIRONMENT if allowed is None else AllocationSource.CGROUP
        for index in names:
            if index in free:
                _claim(free[index], member, source)


def _claim_permitted(
    whole: AbstractSet[int],
    free: Mapping[int, dict[Owner, DeviceClaim]],
    members: Iterable[Member],
    permitted: Permitted,
) -> None:
    """Add claims on devices that a group permits and no environment names.

    A group that permits all devices is ignored. Partitions are left out, because groups list whole devices.
    """
    left = [index for index, by_owner in free.items() if not by_owner and index in whole]
    named = {owner for by_owner in free.values() for owner in by_owner}
    for member in members:
        allowed = whole & {*(permitted(member) or ())}
        if len(allowed) < len(whole) or member.owner not in named:
            for index in left:
                if index in allowed:
                    free[index].setdefault(member.owner, DeviceClaim(member.owner, None, AllocationSource.CGROUP))


def _claim(by_owner: dict[Owner, DeviceClaim], member: Member, source: AllocationSource) -> None:
    claim = by_owner.get(member.owner)
    if claim is None or claim.rank is None:
        by_owner[member.owner] = DeviceClaim(member.owner, member.process_rank, source)


class AllocationTracker:
    """Record source that turns successive claims into intervals. One thread updates, another may read."""

    def __init__(self, place: NodeIdentity, device_name: DeviceName) -> None:
        self._place = place
        self._device_name = device_name
        self._open: dict[tuple[Owner, str], tuple[int, DeviceClaim]] = {}
        self._news: list[tuple[Owner, AllocationRecord]] = []

    def update(self, now_ms: int, found: Mapping[int, Sequence[DeviceClaim]]) -> None:
        """Update with the current claims on all devices. A device that has disappeared has no claims.

        Intervals belong to names, because the driver renumbers the other devices when one disappears.
        """
        present = {(claim.owner, self._device_name(index)): claim for index, some in found.items() for claim in some}
        for key, claim in present.items():
            start, before = self._open.get(key, (now_ms, None))
            if before != claim:
                self._open[key] = (start, claim)
                self._report(key[1], start, claim, None)
        for key in [key for key in self._open if key not in present]:
            start, claim = self._open.pop(key)
            self._report(key[1], start, claim, max(start, now_ms))

    @property
    def holders(self) -> dict[str, list[Owner]]:
        """Replicas that have each device now, by the device's name."""
        return group_pairs((device, owner) for owner, device in list(self._open))

    def close(self, now_ms: int) -> None:
        """End every interval: the jobs are over."""
        self.update(now_ms, {})

    def take_records(self, now_ms: int) -> Records:  # noqa: ARG002 - every interval has its own times
        """Return the allocations since the last call."""
        news, self._news = self._news, []
        by_job = group_pairs((owner.job, allocation) for owner, allocation in news)
        project = self._place.project or None
        return Records(jobs=[JobRecord(job_id=job, project=project, allocations=some) for job, some in by_job.items()])

    def _report(self, device: str, start: int, claim: DeviceClaim, end: int | None) -> None:
        record = AllocationRecord(
            replica=claim.owner.replica,
            node=self._place.node,
            cluster=self._place.cluster,
            device=device,
            start=start,
            end=end,
            rank=claim.rank,
            source=claim.source.value,
        )
        self._news.append((claim.owner, record))
