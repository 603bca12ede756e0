"""Allocation and usage by user, computed from the jobs of a group and their samples.

The range is one bucket. A replica counts with the mean of its samples in the range. A usage ratio is the sum of usage
over the sum of limits, over the replicas that have both. Without samples there is no ratio.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, repeat

import msgspec
import numpy as np
from numpy.typing import NDArray

from jobmeter.model.batch import NEVER, Float64s, Int64s
from jobmeter.model.catalog import CATALOG
from jobmeter.model.grouping import group_pairs
from jobmeter.model.job import Job, JobState, JobView, Replica
from jobmeter.model.order import make_natural_key
from jobmeter.model.time import MINUTE, TimeRange
from jobmeter.query.buckets import BucketedSeries
from jobmeter.query.group import Amounts, ResourceUsage
from jobmeter.query.inventory import Inventory
from jobmeter.query.request import Statistic
from jobmeter.query.selection import name_owner
from jobmeter.query.table import compute_lines

METRICS = (
    "cpu.usage",
    "cpu.limit",
    "cpu.utilization",
    "memory.usage",
    "memory.limit",
    "memory.utilization",
    "network.receive",
    "network.transmit",
    "disk.read",
    "disk.write",
    "gpu.utilization",
    "npu.utilization",
)
LIMITS = ("cpu.limit", "memory.limit")
DEVICES = ("gpu.utilization", "npu.utilization")
_LATE_MS = 5 * MINUTE
"""Time in milliseconds that a job without a record lives after its last sample."""

Place = tuple[str, str]
"""Node (cluster, name), or device (node, name)."""


class Allocated(msgspec.Struct):
    """Allocation of one job in a range: its replicas with their nodes, and the devices, as (node, device)."""

    job: Job
    replicas: dict[str, Replica] = msgspec.field(default_factory=dict)
    places: dict[str, Place] = msgspec.field(default_factory=dict)
    devices: set[Place] = msgspec.field(default_factory=set)

    @property
    def promised_devices(self) -> int | None:
        """Number of devices requested for each replica; see ``count_promised_devices``."""
        return count_promised_devices(self.job)

    @property
    def requested_devices(self) -> int:
        """Number of devices requested for its replicas, else of those allocated to it."""
        promised = self.promised_devices
        return len(self.devices) if promised is None else promised * len(self.places)

    def find_limit(self, limit: str) -> float:
        """Return the recorded limit of one replica; NaN without one."""
        return read_recorded_limit(self.job, limit) or np.nan


def count_promised_devices(job: Job) -> int | None:
    """Return the number of devices requested for each replica of a job; None if its record does not tell."""
    for name in ("gpu.limit", "npu.limit"):
        if name in job.limits:
            return int(job.limits[name])
    return None if job.instance_type is None else job.instance_type.gpu_count


def read_recorded_limit(job: Job, limit: str) -> float | None:
    """Return one of ``LIMITS`` of a replica from the job's record or instance type; None if absent from both."""
    stated, kind = job.limits.get(limit), job.instance_type
    if stated is None and kind is not None:
        stated = kind.cpu if limit == "cpu.limit" else kind.memory
    return None if stated is None else float(stated)


def find_allocated(view: JobView, span: TimeRange, states: frozenset[JobState] | None = None) -> Allocated:
    """Return the allocations of a job in the span; with ``states``, only of replicas in one of these."""
    found = Allocated(view.job)
    for replica in sorted(view.replicas, key=lambda one: one.attempt):
        if replica.start is None or replica.start < span.end_ms:
            found.replicas[replica.name] = replica
    found.replicas = {
        name: replica
        for name, replica in found.replicas.items()
        if (_lives(view.job, replica, span) if states is None else (replica.state or view.job.state) in states)
    }
    found.places = {name: (replica.cluster, replica.node) for name, replica in found.replicas.items()}
    for one in view.allocations:
        meets = one.start < span.end_ms and (one.end is None or one.end >= span.start_ms)
        node = found.places.get(one.replica, ("", one.node))[1]
        valid = one.replica in found.places or not view.replicas
        if meets and valid and node in ("", one.node):
            found.devices.add((one.node, one.device))
            found.places[one.replica] = (one.cluster, one.node)
    return found


def did_run(job: Job, span: TimeRange) -> bool:
    """Return True if the job ran at some time in the span."""
    if job.state is JobState.QUEUED or (job.start is not None and job.start >= span.end_ms):
        return False
    late = 0 if job.state.finished else _LATE_MS
    return job.end is None or job.end + late >= span.start_ms


def _lives(job: Job, replica: Replica, span: TimeRange) -> bool:
    finished = job.state.finished or (replica.state is not None and replica.state.finished)
    return replica.end is None or replica.end + (0 if finished else _LATE_MS) >= span.start_ms


class UsageReadings:
    """Values of metrics by member of a frame whose range is one bucket; NaN if missing."""

    def __init__(self, frame: BucketedSeries) -> None:
        self.frame = frame
        self._each = np.arange(len(frame.shape.members), dtype=np.int64)
        self.sampled: set[int] = set(np.unique(frame.shape.member[frame.columns.index]).tolist())

    def compute(self, name: str, statistic: Statistic = Statistic.MEAN) -> Float64s:
        """Return the means of the metric, or another statistic, float64[members]."""
        values = np.full(len(self.frame.shape.members), np.nan)
        table = compute_lines(self.frame, CATALOG[name], statistic, None, self._each)
        values[table.owner] = table.value
        return values


class UsageParts:
    """Replicas of all jobs: the limits of each, and its job."""

    def __init__(
        self,
        jobs: Sequence[Allocated],
        readings: UsageReadings,
        inventory: Inventory,
        earlier: Callable[[Sequence[int], Sequence[str]], UsageReadings],
        *,
        closed: bool = False,
    ) -> None:
        """Add replicas and devices that have samples but are not in the registry, unless ``closed``.

        ``earlier`` returns the last samples of some metrics of some jobs before the end of the range. It is used for
        limits of replicas without any in ``readings``, and for devices of unfinished jobs without devices.
        """
        self.jobs = jobs
        self._readings = readings
        self._inventory = inventory
        self._earlier = earlier
        self._owners = {name_owner(one.job): at for at, one in enumerate(jobs)}
        frame = readings.frame
        self.member_job: Int64s = np.array([self._owners[member.job] for member in frame.shape.members], np.int64)
        for at in () if closed else sorted(readings.sampled):
            self._notice(jobs[int(self.member_job[at])], at)
        self._notice_devices()
        for one in jobs:
            if not one.places:  # every job has a replica, possibly unnamed
                one.places[""] = ("", "")
        self.places: list[Place] = [place for one in jobs for place in one.places.values()]
        self.job: Int64s = np.repeat(np.arange(len(jobs)), [len(one.places) for one in jobs])
        names = ((at, name) for at, one in enumerate(jobs) for name in one.places)
        self._numbers = {name: number for number, name in enumerate(names)}
        self.member_part = self._parts_of(frame)
        self.cpu, self.memory = self._compute_limits()
        self._job_cpu, self._job_memory = (
            np.bincount(self.job, np.nan_to_num(allowed), len(jobs)) for allowed in (self.cpu, self.memory)
        )

    def _notice(self, one: Allocated, at: int) -> None:
        member, node = self._readings.frame.shape.members[at], self._readings.frame.shape.nodes[at]
        if member.replica or not one.places:
            one.places.setdefault(member.replica, (member.cluster, node))
        if not one.places.get(member.replica, ("", node))[1]:
            one.places[member.replica] = (member.cluster, node)
        if member.device:
            one.devices.add((member.node, member.device))

    def _notice_devices(self) -> None:
        """Add the devices of an unfinished job at the time of their last samples."""
        without = [
            at
            for at, one in enumerate(self.jobs)
            if not one.devices and one.promised_devices is None and not one.job.state.finished
        ]
        if not without:
            return
        frame = self._earlier(without, DEVICES).frame
        rows, times = frame.shape.member[frame.columns.index], frame.columns.last_time
        owner = np.array([self._owners[member.job] for member in frame.shape.members], np.int64)[rows]
        newest = np.full(len(self.jobs), NEVER)
        np.maximum.at(newest, owner, times)
        for row in np.flatnonzero(times > newest[owner] - _LATE_MS).tolist():
            one, member = self.jobs[int(owner[row])], frame.shape.members[int(rows[row])]
            if member.replica in one.places or not one.replicas:
                one.devices.add((member.node, member.device))

    def _parts_of(self, frame: BucketedSeries) -> Int64s:
        """Return the part of each member of a frame, int64[members]; -1 for none."""
        members = frame.shape.members
        return np.array([self._numbers.get((self._owners[one.job], one.replica), -1) for one in members], np.int64)

    def _compute_limits(self) -> tuple[Float64s, ...]:
        """Return the limits by part: the mean measured limit, else its last sample, else the recorded one.

        NaN if unknown.
        """
        found = [self._average_limit(self._readings, limit, Statistic.MEAN) for limit in LIMITS]
        missing = np.unique(self.job[np.isnan(found).any(axis=0)]).tolist()
        before = self._earlier(missing, LIMITS) if missing else None
        for limit, allowed in zip(LIMITS, found, strict=True):
            if before is not None:
                _fill(allowed, self._average_limit(before, limit, Statistic.LAST))
            _fill(allowed, np.array([one.find_limit(limit) for one in self.jobs], np.float64)[self.job])
        return tuple(found)

    def _average_limit(self, readings: UsageReadings, limit: str, statistic: Statistic) -> Float64s:
        """Return the measured limit by part; NaN if missing."""
        allowed = np.full(len(self.places), np.nan)
        measured, part = readings.compute(limit, statistic), self._parts_of(readings.frame)
        rows = np.flatnonzero((measured > 0) & (part >= 0))
        allowed[part[rows]] = measured[rows]
        return allowed

    def sum_limits(self, jobs: Iterable[int]) -> Amounts:
        """Sum the limits of the replicas of some jobs."""
        chosen = list(jobs)
        types: Counter[str] = Counter()
        for at in chosen:
            types.update(self._device_types(self.jobs[at]))
        return Amounts(
            cpu=float(self._job_cpu[chosen].sum()),
            memory=float(self._job_memory[chosen].sum()),
            devices=types.total(),
            device_types=dict(types),
        )

    def _device_types(self, one: Allocated) -> Iterable[str]:
        """Return the type of each device that a job requested: by its record, else by the nodes."""
        count, kind = one.requested_devices, one.job.instance_type
        if kind is not None and kind.gpu_type:
            return repeat(kind.gpu_type, count)
        types = [self._inventory.find_type(node, device) for node, device in sorted(one.devices)][:count]
        # The type of a requested device without samples is certain only if the nodes have a single type.
        other = self._inventory.find_common_type(*{node for _, node in one.places.values()})
        return chain(types, repeat(other, count - len(types)))


def _fill(values: Float64s, others: Float64s) -> None:
    """Fill missing values from others."""
    np.copyto(values, others, where=np.isnan(values))


def compute_by_user(
    parts: UsageParts, readings: UsageReadings, with_devices: frozenset[str], workspace: str = ""
) -> tuple[list[ResourceUsage], ResourceUsage]:
    """Compute the usage of each user, by name, and the total, optionally for one workspace.

    ``with_devices`` names the nodes that have devices.
    """
    own = group_pairs((one.job.user, at) for at, one in enumerate(parts.jobs) if workspace in ("", one.job.workspace))
    users = _sort_naturally(own)
    job_user = np.full(len(parts.jobs), -1, np.int64)
    for number, user in enumerate(users):
        job_user[own[user]] = number
    each = _rates(parts, readings, job_user, len(users))
    whole = _rates(parts, readings, np.minimum(job_user, 0), 1)
    found = [_usage(parts, own[user], user, with_devices, each, number) for number, user in enumerate(users)]
    everything = [at for jobs in own.values() for at in jobs]
    return found, _usage(parts, everything, users[0] if len(users) == 1 else "", with_devices, whole, 0)


def _usage(
    parts: UsageParts,
    jobs: Sequence[int],
    user: str,
    with_devices: frozenset[str],
    rates: Mapping[str, Float64s],
    number: int,
) -> ResourceUsage:
    own = [parts.jobs[at] for at in jobs]
    nodes = {node for one in own for _, node in one.places.values() if node}
    nodes |= {node for one in own for node, _ in one.devices if node}
    having = {one.job.id for one in own if one.devices or one.requested_devices}
    return ResourceUsage(
        user=user,
        jobs=len(own),
        types=tuple(sorted({one.job.type for one in own if one.job.type})),
        requested=parts.sum_limits(jobs),
        cpu_jobs=_sort_naturally({one.job.id for one in own} - having),
        device_jobs=_sort_naturally(having),
        cpu_nodes=_sort_naturally(nodes - with_devices),
        device_nodes=_sort_naturally(nodes & with_devices),
        **{name: _number(values[number]) for name, values in rates.items()},
    )


def _rates(parts: UsageParts, readings: UsageReadings, job_user: Int64s, users: int) -> dict[str, Float64s]:
    """Compute each usage ratio by user (below 0: none); NaN without samples."""
    user = job_user[parts.member_job]
    devices = np.column_stack([readings.compute(name) for name in DEVICES])
    device = np.where(np.isfinite(devices[:, 0]), devices[:, 0], devices[:, 1])
    rates = {
        "cpu": _divide_by_limits(parts.cpu, parts, readings, "cpu", user, users),
        "memory": _divide_by_limits(parts.memory, parts, readings, "memory", user, users),
        "device": _mean(device, user, users),
    }
    for name in ("network.receive", "network.transmit", "disk.read", "disk.write"):
        total, count = _sums(readings.compute(name), user, users)
        rates[name.replace(".", "_")] = np.where(count > 0, total, np.nan)
    return rates


def _divide_by_limits(
    allowed: Float64s, parts: UsageParts, readings: UsageReadings, name: str, user: Int64s, users: int
) -> Float64s:
    """Return usage over limits by user. A measured utilization is used directly, weighted by the limit.

    A user whose measured replicas have no limits gets the mean of their measured utilizations.
    """
    utilization, used = readings.compute(f"{name}.utilization"), readings.compute(f"{name}.usage")
    mine = np.full(len(user), np.nan)
    there = parts.member_part >= 0
    mine[there] = allowed[parts.member_part[there]]
    used = np.where(np.isfinite(utilization), utilization * mine, used)
    valid = np.isfinite(used) & (mine > 0) & (user >= 0)
    upper = np.bincount(user[valid], used[valid], users)
    lower = np.bincount(user[valid], mine[valid], users)
    plain = _mean(utilization, user, users)
    return np.where(lower > 0, upper / np.where(lower > 0, lower, 1.0), plain)


def _mean(values: Float64s, user: Int64s, users: int) -> Float64s:
    total, count = _sums(values, user, users)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _sums(values: Float64s, user: Int64s, users: int) -> tuple[Float64s, NDArray[np.intp]]:
    """Return the sum of the finite values by user, and their number."""
    valid = np.isfinite(values) & (user >= 0)
    total = np.bincount(user[valid], values[valid], users).astype(np.float64, copy=False)
    return total, np.bincount(user[valid], minlength=users)


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _sort_naturally(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(names, key=lambda name: (make_natural_key(name), name)))
