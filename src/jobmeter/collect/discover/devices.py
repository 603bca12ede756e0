"""Who has which GPU: the processes that compute on it, and where there are none, what jobs were promised."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from jobmeter.collect.base import Owner, Place
from jobmeter.collect.discover.member import Member, Source
from jobmeter.model.job import AllocationSource
from jobmeter.model.record import AllocationRecord, JobRecord, Records


class Named(Protocol):
    """A device as far as its names go."""

    @property
    def index(self) -> int:
        """Its number on the node."""
        ...

    @property
    def uuid(self) -> str:
        """Its name everywhere."""
        ...


@dataclass(frozen=True, slots=True)
class Claim:
    """A replica has a device; ``rank`` is that of the process that uses it, where known."""

    owner: Owner
    rank: int | None
    source: AllocationSource


def device_name(index: int) -> str:
    """The name of a GPU of a node."""
    return f"gpu{index}"


def promised(member: Member, devices: Sequence[Named]) -> list[int]:
    """The numbers of the devices that the process's environment names, in its order.

    Numbers that CUDA was given inside of a pod count from that pod's first device, so they say nothing here.
    """
    if member.devices is None:
        return []
    variable, text = member.devices
    relative = variable == "CUDA_VISIBLE_DEVICES" and member.source is Source.KUBERNETES
    known = {device.index for device in devices}
    found: list[int] = []
    for word in text.split(","):
        name = word.strip()
        if name.isdigit():
            if not relative and int(name) in known:
                found.append(int(name))
        elif len(name) > len("GPU-"):
            found += [device.index for device in devices if device.uuid.startswith(name)]
    return found


def claims(
    devices: Sequence[Named], users: Mapping[int, Sequence[Member]], members: Iterable[Member]
) -> dict[int, list[Claim]]:
    """The claims on each device, by its number.

    ``users`` are the members that compute on a device now; a device that has some belongs to them alone. ``members``
    are all processes of jobs, for what their environments promise.
    """
    found: dict[int, dict[Owner, Claim]] = {device.index: {} for device in devices}
    for index, present in users.items():
        for member in present:
            _claim(found[index], member, AllocationSource.PROCESS)
    used = {index for index, present in users.items() if present}
    for member in members:
        names = promised(member, devices)
        if member.local_rank is not None and member.local_rank < len(names):
            names = [names[member.local_rank]]
        for index in names:
            if index not in used:
                _claim(found[index], member, AllocationSource.ENVIRONMENT)
    return {index: list(by_owner.values()) for index, by_owner in found.items()}


def _claim(by_owner: dict[Owner, Claim], member: Member, source: AllocationSource) -> None:
    known = by_owner.get(member.owner)
    if known is None or known.rank is None:
        by_owner[member.owner] = Claim(member.owner, member.process_rank, source)


class AllocationKeeper:
    """See ``RecordSource``: turns what is seen from look to look into intervals. One thread looks, another may ask."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._open: dict[tuple[Owner, int], tuple[int, Claim]] = {}
        self._news: list[tuple[Owner, AllocationRecord]] = []

    def look(self, now_ms: int, found: Mapping[int, Sequence[Claim]]) -> None:
        """Take in the claims of this moment, for those devices that could be asked."""
        present = {(claim.owner, index): claim for index, some in found.items() for claim in some}
        for key, claim in present.items():
            start, known = self._open.get(key, (now_ms, None))
            if known != claim:
                self._open[key] = (start, claim)
                self._tell(key[1], start, claim, None)
        for key in [key for key in self._open if key[1] in found and key not in present]:
            start, claim = self._open.pop(key)
            self._tell(key[1], start, claim, max(start, now_ms))

    def close(self, now_ms: int) -> None:
        """End every interval: the jobs are over."""
        self.look(now_ms, {index: [] for _, index in self._open})

    def records(self, now_ms: int) -> Records:  # noqa: ARG002 - every interval has its own times
        """See ``RecordSource.records``."""
        news, self._news = self._news, []
        by_job: dict[str, list[AllocationRecord]] = {}
        for owner, allocation in news:
            by_job.setdefault(owner.job, []).append(allocation)
        project = self._place.project or None
        return Records(jobs=[JobRecord(job_id=job, project=project, allocations=some) for job, some in by_job.items()])

    def _tell(self, index: int, start: int, claim: Claim, end: int | None) -> None:
        record = AllocationRecord(
            replica=claim.owner.replica,
            node=self._place.node,
            cluster=self._place.cluster,
            device=device_name(index),
            start=start,
            end=end,
            rank=claim.rank,
            source=claim.source.value,
        )
        self._news.append((claim.owner, record))
