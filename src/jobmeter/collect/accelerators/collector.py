"""Collect metrics of a vendor's accelerators and attribute them to jobs."""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from threading import Lock
from typing import Generic, TypeVar

from jobmeter.collect.accelerators.device import DeviceLostError, DeviceProcess, EndedUse, NotSupportedError
from jobmeter.collect.accelerators.ended import EndedProcesses, compute_ended_shares
from jobmeter.collect.accelerators.names import VendorNames
from jobmeter.collect.accelerators.states import DeviceStates
from jobmeter.collect.accelerators.vendor import D, Driver, Measure
from jobmeter.collect.accelerators.visible import VisibleVariable, make_scheduler_variables
from jobmeter.collect.base import NodeIdentity, Owner, Samples
from jobmeter.collect.discover.devices import (
    AllocationTracker,
    DeviceAllocator,
    DeviceClaim,
    DeviceSet,
    Permitted,
    collect_allocations,
    determine_claims,
)
from jobmeter.collect.discover.disagree import DisagreementWatch, find_disagreements
from jobmeter.collect.discover.member import Member, MemberTable
from jobmeter.collect.discover.permitted import DeviceGroups
from jobmeter.model.device import DeviceState
from jobmeter.model.sample import Sample
from jobmeter.model.time import SECOND, SystemClock

T = TypeVar("T")
Users = Mapping[int, Sequence[tuple[DeviceProcess, Member | None]]]
"""Processes on each device, by its index, with the replica that each belongs to."""

_SLOW_MS = 60_000
RELEASE_MS = 60_000
"""Milliseconds for which a request releases the driver: enough to reset a device or to change its partitions."""
PATIENCE = 1.0
"""Seconds that each question of a collection waits for the devices."""

_log = logging.getLogger(__name__)


class AcceleratorCollector(Generic[D]):
    """Collector of one vendor's accelerators.

    A whole-device metric belongs to a job if exactly one job has the device, and to its replica if exactly one replica
    has it. A device of several jobs, or one used by a process without a job, is measured without a job. The share of
    each replica's processes is measured for the replica. Each replica that has a device has a series of its state.

    ``names`` names the vendor's devices. ``alone`` is for ``jobmeter run``: metrics without a job are left to the
    node's agent. ``allocated`` are the sources of allocations, most trusted first. ``groups`` reads the permissions of
    control groups. ``patience`` is the time limit in seconds of each of the two queries of a collection: a device that
    has not answered by then is skipped.
    """

    def __init__(
        self,
        place: NodeIdentity,
        names: VendorNames[D],
        driver: Driver[D],
        members: MemberTable,
        *,
        alone: bool = False,
        allocated: Sequence[DeviceAllocator] = (),
        groups: DeviceGroups | None = None,
        patience: float = PATIENCE,
    ) -> None:
        self.vendor = vendor = names.vendor
        self.device_name = names
        self.allocations = AllocationTracker(place, self.device_name)
        self.disagreements = DisagreementWatch(place, self.device_name)
        self.states = DeviceStates(place, vendor, self.device_name, alone=alone)
        self.devices: Sequence[D] = ()
        """Devices of the last collection."""
        self._state, self._memory, self._utilization, self._processes, self._foreign = own = _name_metrics(
            vendor.prefix
        )
        self.metrics = (*vendor.metrics, *own)
        self._place = place
        self._driver = driver
        self._members = members
        self._alone = alone
        self._allocated = allocated
        self._groups = groups
        self._clock = SystemClock()
        self._lock = Lock()
        self._release_requested = False
        self._opens_ms: int | None = None
        self.patience = patience
        self._slow_ms: dict[int, int] = {}
        self._ended = EndedProcesses(members)
        self._last_ms: int | None = None
        self._working: dict[int, list[Member]] = {}
        self._failed: set[int] = set()

    @property
    def name(self) -> str:
        """Name of the vendor."""
        return self.vendor.name

    @property
    def released(self) -> bool:
        """True while the driver is released on request: nothing is measured."""
        return self._release_requested or self._opens_ms is not None

    def release(self) -> bool:
        """Close the driver, because open files block resets and changes of partitions. For any thread.

        The first collection that is ``RELEASE_MS`` later than the next one opens the driver again. Waits for a
        collection in progress. Returns False if a call of the driver does not return.
        """
        with self._lock:
            self._release_requested = True
            return self._driver.close()

    def collect(self, now_ms: int) -> Samples:
        """Read all devices. Unavailable values are absent; while the driver is released, all are.

        A device that is lost, not permitted or blocked does not stop the others.
        """
        with self._lock:
            return [] if self._is_released(now_ms) else self._collect(now_ms)

    def _is_released(self, now_ms: int) -> bool:
        if not self.released:
            return False
        closed = self._driver.close()  # a call that had not returned may have returned since
        if self._release_requested:
            self._release_requested, self._opens_ms = False, now_ms + RELEASE_MS
            self.states.note_release(now_ms, RELEASE_MS // 1_000, closed=closed)
        if self._opens_ms is not None and not 0 < self._opens_ms - now_ms <= RELEASE_MS:
            self._opens_ms = None
        return self.released

    def _collect(self, now_ms: int) -> Samples:
        vendor = self.vendor
        self.devices = devices = self._driver.list_devices(now_ms)
        self.device_name.assign_places(devices)
        self._ended.begin()
        unknown = {device.index: self._ended.select_pids(device.index) for device in devices}

        def query_processes(device: D) -> tuple[Sequence[DeviceProcess] | None, Sequence[EndedUse]]:
            pids = unknown[device.index]
            return _ask(device.list_processes), (_ask(lambda: device.list_ended_uses(pids)) if pids else None) or ()

        answers = self._query(devices, query_processes)
        users = {
            index: [(process, self._members.find_member(process.pid)) for process in processes]
            for index, (processes, _) in answers.items()
            if processes is not None
        }
        ended = {index: uses for index, (_, found) in answers.items() if (uses := self._ended.take_uses(index, found))}
        owned = self._find_claims(devices, users, ended, now_ms)
        whole = self._find_owners(owned, users)
        mine = {
            index: own
            for index, present in users.items()
            if (own := [(process, member.owner) for process, member in present if member and not member.measured])
        }
        slow = {index for index in owned if not 0 <= now_ms - self._slow_ms.get(index, -_SLOW_MS) < _SLOW_MS}

        def read(device: D) -> tuple[Mapping[str, float], Mapping[int, float] | None]:
            measures = vendor.measures if device.index not in slow else (*vendor.measures, *vendor.slow_measures)
            values = _values(device, measures, answers=device.index in users) if device.index in whole else {}
            with suppress(DeviceLostError):  # its values are known
                return values, _ask(device.process_utilization) if device.index in mine else None
            return values, None

        samples: Samples = []
        shares_on: dict[int, Mapping[int, float] | None] = {}
        wanted = [device for device in devices if device.index in whole or device.index in mine]
        for index, (values, shares) in self._query(wanted, read).items():
            if values and index in slow:
                self._slow_ms[index] = now_ms
            samples += [
                self._make_sample(metric, index, whole[index], now_ms, value) for metric, value in values.items()
            ]
            shares_on[index] = shares
        seconds = (now_ms - (self._last_ms or now_ms)) / SECOND
        for index in dict.fromkeys([*mine, *ended]):
            busy = _sum_busy(
                mine.get(index, ()), shares_on.get(index), compute_ended_shares(ended.get(index, ()), seconds)
            )
            samples += [
                self._make_sample(self._utilization, index, owner, now_ms, value) for owner, value in busy.items()
            ]
        samples += self._sample_processes(whole, users, now_ms)
        for index, present in mine.items():
            used = _memory(present)
            samples += [self._make_sample(self._memory, index, owner, now_ms, value) for owner, value in used.items()]
        self._ended.finish(self._clock.now_ms(), mine, users)
        self._last_ms = now_ms
        return samples + self._sample_states(devices, owned, now_ms)

    def _make_sample(self, metric: str, index: int, owner: Owner | None, now_ms: int, value: float) -> Sample:
        return Sample(self._place.make_device_series(metric, self.device_name(index), owner), now_ms, value)

    def _sample_processes(self, whole: Mapping[int, Owner | None], users: Users, now_ms: int) -> Samples:
        """Count the processes on each device, and the processes that belong to no job."""
        samples: Samples = []
        for index in whole.keys() & users.keys():
            owner, members = whole[index], [member for _, member in users[index]]
            samples.append(self._make_sample(self._processes, index, owner, now_ms, float(len(members))))
            samples.append(self._make_sample(self._foreign, index, owner, now_ms, float(members.count(None))))
        return samples

    def _find_owners(
        self,
        owned: Mapping[int, Sequence[DeviceClaim]],
        users: Users,
    ) -> dict[int, Owner | None]:
        """Return the owner of each device that is measured as a whole. Devices left to the agent are absent."""
        found: dict[int, Owner | None] = {}
        for index, some in owned.items():
            foreign = any(member is None or member.measured for _, member in users.get(index, ()))
            owner = None if foreign else _find_single_owner(some)
            if owner is not None or not self._alone:
                found[index] = owner
        return found

    def _query(self, devices: Iterable[D], work: Callable[[D], T]) -> dict[int, T]:
        """Query all devices at once, within ``patience`` seconds. Returns the answers by device number.

        Devices that are lost, blocked or fail unexpectedly are left out.
        """
        deadline = self._clock.monotonic() + self.patience
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
                    _log.exception("%s cannot be read", self.device_name(device.index))
                device.give_up(NotSupportedError(f"{type(error).__name__}: {error}"))
        return found

    def _find_claims(
        self,
        devices: Sequence[D],
        users: Users,
        ended: Mapping[int, Sequence[tuple[Member, EndedUse]]],
        now_ms: int,
    ) -> dict[int, list[DeviceClaim]]:
        members = [member for member in self._members.list_members() if not member.measured]
        alive = {member.owner for member in members}
        working = {
            index: [member for _, member in some if member and not member.measured] for index, some in users.items()
        }
        for index in {device.index for device in devices} & self._working.keys():
            # The users of a device that does not answer are unknown: keep the previous ones while they live.
            working.setdefault(index, [member for member in self._working[index] if member.owner in alive])
        for index, uses in ended.items():
            working[index] = [*working.get(index, ()), *(member for member, _ in uses)]
        self._working = working
        given = collect_allocations(self._allocated, devices, now_ms)
        permitted = self._list_permitted(devices, now_ms)
        known = DeviceSet(
            devices, self._select_variables() if devices else (), self.device_name, self.device_name.get_number
        )
        found = determine_claims(known, working, members, given, permitted)
        self.allocations.update(now_ms, found)
        self.disagreements.update(now_ms, find_disagreements(known, working, given, members, permitted))
        return found

    def _select_variables(self) -> Sequence[VisibleVariable]:
        """Return the variables that name devices, most specific first; schedulers' if their numbers are these."""
        vendor = self.vendor
        if self.device_name.are_plain():
            return *make_scheduler_variables(vendor.uuid_prefix), *vendor.variables
        return [variable for variable in vendor.variables if not variable.shared]

    def _list_permitted(self, devices: Sequence[D], now_ms: int) -> Permitted:
        """Return a function for the devices that a process may open: by its control group, else by its own rights."""
        groups = self._groups
        openable = [device.index for device in devices if device.state is not DeviceState.NO_PERMISSION]
        own = openable if self._alone and len(openable) < len(devices) else None

        def permitted(member: Member) -> Sequence[int] | None:
            found = groups.list_permitted(member, devices, now_ms) if groups else None
            return own if found is None else found

        return permitted

    def _sample_states(self, devices: Sequence[D], owned: Mapping[int, Sequence[DeviceClaim]], now_ms: int) -> Samples:
        """Return the state of each device, for each replica that has it, else without a job."""
        owners = {index: list(dict.fromkeys(claim.owner for claim in some)) for index, some in owned.items()}
        self.states.update(now_ms, devices, self._driver.problem, owners)
        return [
            self._make_sample(self._state, device.index, owner, now_ms, float(device.state.code))
            for device in devices
            if device.state is not DeviceState.MEASURED or (device.attached and not device.busy)
            for owner in owners[device.index] or (() if self._alone else (None,))
        ]


def _ask(call: Callable[[], T]) -> T | None:
    """Return the answer of a device's driver; None if unknown."""
    try:
        return call()
    except NotSupportedError:
        return None


def _values(device: D, measures: Iterable[Measure[D]], *, answers: bool) -> Mapping[str, float]:
    """Read the values of a device by metric, up to the call in which it is lost.

    ``answers``: another call succeeded.
    """
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


def _name_metrics(prefix: str) -> tuple[str, str, str, str, str]:
    """Return the metrics of the collector itself: the state, then the metrics of processes."""
    processes = f"{prefix}.process"
    return (
        f"{prefix}.state",
        f"{processes}.memory.usage",
        f"{processes}.utilization",
        f"{processes}es",
        f"{processes}es.foreign",
    )


def _memory(present: Iterable[tuple[DeviceProcess, Owner]]) -> dict[Owner, float]:
    """Sum the device memory of processes by owner; unknown values are left out."""
    found: dict[Owner, float] = {}
    for process, owner in present:
        if process.memory is not None:
            found[owner] = found.get(owner, 0.0) + process.memory
    return found


def _sum_busy(
    present: Collection[tuple[DeviceProcess, Owner]], shares: Mapping[int, float] | None, ended: Mapping[Owner, float]
) -> dict[Owner, float]:
    """Sum the share of time in which kernels of each owner's processes ran; 0 if idle.

    A client of MPS without a share is unknown, because its work may be counted as the server's. ``ended`` are the
    shares of processes that began and ended since the last collection.
    """
    if shares is None:
        unknown = {owner for _, owner in present}
        return {owner: share for owner, share in ended.items() if owner not in unknown}
    found = {**ended}
    for process, owner in present:
        share = shares.get(process.pid, None if process.shared else 0.0)
        if share is not None:
            found[owner] = min(found.get(owner, 0.0) + share * 0.01, 1.0)
    return found


def _find_single_owner(claims_of_device: Sequence[DeviceClaim]) -> Owner | None:
    """Return the owner of the device: without a replica if several of one job share it; None for several jobs."""
    owners = {claim.owner for claim in claims_of_device}
    if len(owners) == 1:
        return next(iter(owners))
    jobs = {owner.job for owner in owners}
    return Owner(next(iter(jobs)), "", max(owner.attempt for owner in owners)) if len(jobs) == 1 else None
