"""Collect metrics of NVIDIA GPUs and attribute them to jobs."""

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
)
from jobmeter.collect.discover.disagree import DisagreementWatch, disagreements
from jobmeter.collect.discover.member import Member
from jobmeter.collect.discover.permitted import DeviceGroups
from jobmeter.collect.nvidia import codes
from jobmeter.collect.nvidia.api import DeviceLostError, DeviceProcess, NotSupportedError, Nvml, NvmlDevice
from jobmeter.collect.nvidia.measures import MEASURES, SLOW_MEASURES, Measure
from jobmeter.collect.nvidia.states import DeviceStates
from jobmeter.model.device import DeviceState
from jobmeter.model.sample import Sample
from jobmeter.model.time import SystemClock

T = TypeVar("T")

_SLOW_MS = 60_000
PATIENCE = 1.0
"""Seconds that each question of a look waits for the devices."""
_STATE = "gpu.state"
_MEMORY, _UTILIZATION = "gpu.process.memory.usage", "gpu.process.utilization"
_PROCESSES, _FOREIGN = "gpu.processes", "gpu.processes.foreign"

_log = logging.getLogger(__name__)


class NvidiaCollector:
    """Collector of NVIDIA GPUs.

    A whole-device metric belongs to a job if exactly one job has the device, and to its replica if exactly one replica
    has it. A device of several jobs, or one used by a process without a job, is measured without a job; the share of
    each replica's processes is measured for the replica. ``gpu.state`` is given for each replica that has the device.
    ``member_of`` returns the job of a process, ``members`` all processes of jobs. ``alone`` is for ``jobmeter run``:
    metrics without a job are left to the node's agent. ``allocated`` are the sources of allocations, most trusted
    first; ``groups`` reads the permissions of control groups. ``patience`` is the time limit in seconds of each of the
    two queries of a collection: a device that has not answered by then is skipped.
    """

    name = "nvidia"
    metrics = (
        *(metric for measure in (*MEASURES, *SLOW_MEASURES) for metric in measure.metrics),
        _MEMORY,
        _UTILIZATION,
        _PROCESSES,
        _FOREIGN,
        _STATE,
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
        patience: float = PATIENCE,
    ) -> None:
        self.allocations = AllocationTracker(place)
        self.disagreements = DisagreementWatch(place)
        self.states = DeviceStates(place, alone=alone)
        self.devices: Sequence[NvmlDevice] = ()
        """Devices of the last collection."""
        self._place = place
        self._nvml = nvml
        self._member_of = member_of
        self._members = members
        self._alone = alone
        self._allocated = allocated
        self._groups = groups
        self._clock = SystemClock()
        self._patience = patience
        self._slow_ms: dict[int, int] = {}
        self._working: dict[int, list[Member]] = {}
        self._present: set[int] = set()
        self._failed: set[int] = set()

    def collect(self, now_ms: int) -> Samples:
        """Read all devices. Unavailable values are absent.

        A device that is lost, not permitted or blocked does not stop the others.
        """
        self.devices = devices = self._nvml.devices(now_ms)
        users = {
            index: [(process, self._member_of(process.pid)) for process in processes]
            for index, processes in self._query(devices, _processes).items()
            if processes is not None
        }
        owned = self._claims(devices, users, now_ms)
        whole = self._owners(owned, users)
        mine = {
            index: own
            for index, present in users.items()
            if (own := [(process, member.owner) for process, member in present if member and not member.measured])
        }
        slow = {index for index in owned if not 0 <= now_ms - self._slow_ms.get(index, -_SLOW_MS) < _SLOW_MS}

        def read(device: NvmlDevice) -> tuple[Mapping[str, float], Mapping[int, float] | None]:
            measures = (*MEASURES, *SLOW_MEASURES) if device.index in slow else MEASURES
            values = _values(device, measures, answers=device.index in users) if device.index in whole else {}
            return values, _process_utilization(device) if device.index in mine else None

        samples: Samples = []
        wanted = [device for device in devices if device.index in whole or device.index in mine]
        for index, (values, shares) in self._query(wanted, read).items():
            if values and index in slow:
                self._slow_ms[index] = now_ms
            samples += [self._sample(metric, index, whole[index], now_ms, value) for metric, value in values.items()]
            busy = _busy(mine.get(index, ()), shares)
            samples += [self._sample(_UTILIZATION, index, owner, now_ms, value) for owner, value in busy.items()]
        for index in whole.keys() & users.keys():
            foreign = sum(member is None for _, member in users[index])
            samples.append(self._sample(_PROCESSES, index, whole[index], now_ms, float(len(users[index]))))
            samples.append(self._sample(_FOREIGN, index, whole[index], now_ms, float(foreign)))
        for index, present in mine.items():
            used = _memory(present)
            samples += [self._sample(_MEMORY, index, owner, now_ms, value) for owner, value in used.items()]
        return samples + self._states(devices, owned, now_ms)

    def _sample(self, metric: str, index: int, owner: Owner | None, now_ms: int, value: float) -> Sample:
        return Sample(self._place.of_device(metric, device_name(index), owner), now_ms, value)

    def _owners(
        self,
        owned: Mapping[int, Sequence[Claim]],
        users: Mapping[int, Sequence[tuple[DeviceProcess, Member | None]]],
    ) -> dict[int, Owner | None]:
        """Return the owner of each device measured as a whole, without devices left to the agent."""
        found: dict[int, Owner | None] = {}
        for index, some in owned.items():
            foreign = any(member is None or member.measured for _, member in users.get(index, ()))
            owner = None if foreign else _single(some)
            if owner is not None or not self._alone:
                found[index] = owner
        return found

    def _query(self, devices: Iterable[NvmlDevice], work: Callable[[NvmlDevice], T]) -> dict[int, T]:
        """Query all devices at once, within ``patience`` seconds. Returns the answers by device number.

        Lost, blocked and unexpectedly failing devices are left out.
        """
        deadline = self._clock.monotonic() + self._patience
        begun = [device for device in devices if device.attached and device.begin(partial(work, device))]
        found: dict[int, T] = {}
        for device in begun:
            try:
                found[device.index] = device.finish(deadline - self._clock.monotonic())
            except (DeviceLostError, TimeoutError):
                continue
            except Exception as error:  # noqa: BLE001 - one device may fail in any way and must not take others along
                if device.index not in self._failed:
                    self._failed.add(device.index)
                    _log.exception("%s cannot be read", device_name(device.index))
                device.give_up(NotSupportedError(f"{type(error).__name__}: {error}", codes.UNKNOWN))
        return found

    def _claims(
        self,
        devices: Sequence[NvmlDevice],
        users: Mapping[int, Sequence[tuple[DeviceProcess, Member | None]]],
        now_ms: int,
    ) -> dict[int, list[Claim]]:
        members = [member for member in self._members() if not member.measured]
        alive = {member.owner for member in members}
        working = {
            index: [member for _, member in some if member and not member.measured] for index, some in users.items()
        }
        for index in {device.index for device in devices} & self._working.keys():
            # The users of a device that does not answer are unknown: keep the previous ones while they live.
            working.setdefault(index, [member for member in self._working[index] if member.owner in alive])
        self._working = working
        given = allocations_by_source(self._allocated, devices, now_ms)
        permitted = self._permitted(devices, now_ms)
        found = claims(devices, working, members, given, permitted)
        # Nobody has a device that has disappeared.
        self.allocations.update(now_ms, {**{index: [] for index in self._present - found.keys()}, **found})
        self._present = set(found)
        self.disagreements.update(now_ms, disagreements(devices, working, given, members, permitted))
        return found

    def _permitted(self, devices: Sequence[NvmlDevice], now_ms: int) -> Permitted:
        """Return the devices that a process may open by its control group, else that ``jobmeter run`` may open."""
        groups = self._groups
        openable = [device.index for device in devices if device.state is not DeviceState.NO_PERMISSION]
        own = openable if self._alone and len(openable) < len(devices) else None

        def permitted(member: Member) -> Sequence[int] | None:
            found = groups.permitted(member, devices, now_ms) if groups else None
            return own if found is None else found

        return permitted

    def _states(self, devices: Sequence[NvmlDevice], owned: Mapping[int, Sequence[Claim]], now_ms: int) -> Samples:
        """Return the state of each device, for each replica that has it, else without a job."""
        owners = {index: list(dict.fromkeys(claim.owner for claim in some)) for index, some in owned.items()}
        self.states.update(now_ms, devices, self._nvml.problem, owners)
        return [
            self._sample(_STATE, device.index, owner, now_ms, float(device.state.code))
            for device in devices
            if device.state is not DeviceState.MEASURED or (device.attached and not device.busy)
            for owner in owners[device.index] or (() if self._alone else (None,))
        ]


def _processes(device: NvmlDevice) -> Sequence[DeviceProcess] | None:
    """Return the processes that compute on a device; None if unknown."""
    try:
        return device.processes()
    except NotSupportedError:
        return None


def _process_utilization(device: NvmlDevice) -> Mapping[int, float] | None:
    """Return the utilization by process; None if unknown."""
    try:
        return device.process_utilization()
    except (NotSupportedError, DeviceLostError):
        return None


def _values(device: NvmlDevice, measures: Iterable[Measure], *, answers: bool) -> Mapping[str, float]:
    """Read the values of a device by metric; a lost device raises at the first. ``answers``: another call succeeded."""
    found: dict[str, float] = {}
    errors: list[NotSupportedError] = []
    for measure in measures:
        try:
            found.update(measure.read(device))
        except NotSupportedError as error:
            errors.append(error)
        except DeviceLostError:
            return found
    failures = [error for error in errors if not error.lasting]
    if failures and not found and not answers:
        device.give_up(failures[0])
    return found


def _memory(present: Iterable[tuple[DeviceProcess, Owner]]) -> dict[Owner, float]:
    """Sum the device memory of processes by owner; unknown values are left out."""
    found: dict[Owner, float] = {}
    for process, owner in present:
        if process.memory is not None:
            found[owner] = found.get(owner, 0.0) + process.memory
    return found


def _busy(present: Iterable[tuple[DeviceProcess, Owner]], shares: Mapping[int, float] | None) -> dict[Owner, float]:
    """Sum the share of time in which kernels of each owner's processes ran: 0 if idle.

    A client of MPS without a share is unknown: its work may be counted as the server's.
    """
    found: dict[Owner, float] = {}
    for process, owner in present if shares is not None else ():
        share = shares.get(process.pid, None if process.shared else 0.0) if shares is not None else None
        if share is not None:
            found[owner] = min(found.get(owner, 0.0) + share * 0.01, 1.0)
    return found


def _single(claims_of_device: Sequence[Claim]) -> Owner | None:
    """Return the owner of the device: without a replica if several of one job share it; None for several jobs."""
    owners = {claim.owner for claim in claims_of_device}
    if len(owners) == 1:
        return next(iter(owners))
    jobs = {owner.job for owner in owners}
    return Owner(next(iter(jobs)), "", max(owner.attempt for owner in owners)) if len(jobs) == 1 else None
