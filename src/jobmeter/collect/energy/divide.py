"""Divide the energy of a node among its jobs: the power at rest by allocation, the rest by use."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from jobmeter.collect.base import NodeIdentity, Owner, Samples
from jobmeter.collect.energy.idle import IdlePower
from jobmeter.collect.energy.sources import ACCELERATOR, CPU, MEMORY, NODE
from jobmeter.collect.state_file import CounterFile
from jobmeter.model.sample import Sample
from jobmeter.model.series import Series

GPU, REST = "gpu", "rest"
KINDS = (GPU, CPU, MEMORY, REST)
METRICS = (*(f"energy.{kind}" for kind in KINDS), "energy.total", "node.energy.unattributed", "node.power.idle")
_FAMILIES = ("cray", "rapl", "hwmon")
_WHOLE = ("cray", "redfish", "ipmi", "hwmon", "rapl")
"""Sources of the energy of parts and of the whole node, best first.

Only the best counts, so that no energy counts twice.
"""
_AT_REST = frozenset({"idle", "iowait"})
_NOBODY = Owner("", "")
_FORGET_AFTER_MS = 600_000

Shares = Mapping[Owner, float]
Claims = Mapping[str, Sequence[tuple[Owner, float]]]
"""Replicas that have each device, with their shares of the device."""


def divide_energy(joules: float, at_rest: float, allocated: Shares, used: Shares) -> dict[Owner, float]:
    """Divide joules: ``at_rest`` by allocation, the rest by use. The sum never exceeds the joules.

    Shares are parts of 1. If their sum is larger, they are reduced in proportion.
    """
    found: defaultdict[Owner, float] = defaultdict(float)
    rest = min(max(at_rest, 0.0), joules)
    for part, shares in ((rest, allocated), (joules - rest, used)):
        whole = max(sum(shares.values()), 1.0)
        for owner, share in shares.items():
            found[owner] += part * share / whole
    return found


@dataclass(slots=True)
class NodeUse:
    """State of the node at one tick: cumulative use, and current shares of its jobs."""

    busy: float | None = None
    cores: float = 0.0
    memory: float = 0.0
    memory_free: float = 0.0
    cpu: dict[Owner, float] = field(default_factory=dict)
    began: dict[Owner, int] = field(default_factory=dict)
    """Time at which the counters of a new replica were zero."""
    cpu_limit: dict[Owner, float] = field(default_factory=dict)
    memory_limit: dict[Owner, float] = field(default_factory=dict)
    memory_usage: dict[Owner, float] = field(default_factory=dict)
    sources: dict[tuple[str, str], float] = field(default_factory=dict)
    devices: dict[str, float] = field(default_factory=dict)
    utilization: dict[str, float] = field(default_factory=dict)
    present: set[str] = field(default_factory=set)
    """Present whole devices, with or without a counter of energy."""
    shares: dict[str, dict[Owner, float]] = field(default_factory=lambda: defaultdict(dict))
    """Use of each device by its replicas."""

    @classmethod
    def from_samples(cls, samples: Samples) -> "NodeUse":
        """Read the state in the samples of a tick."""
        use = cls()
        for sample in samples:
            use._add(sample)
        return use

    def _add(self, sample: Sample) -> None:
        series, value = sample.series, sample.value
        metric = series.metric
        if metric == "node.cpu.time":
            if dict(series.labels).get("mode") not in _AT_REST:
                self.busy = (self.busy or 0.0) + value
        elif metric == "cpu.time":
            owner = _owner(series)
            if value == 0 and owner not in self.cpu:
                self.began[owner] = sample.time_ms
            self.cpu[owner] = value
        elif metric == "node.energy":
            labels = dict(series.labels)
            self.sources[labels["kind"], labels["source"]] = value
        elif series.device:
            self._add_device(metric.partition(".")[2], series, value)
        elif metric in _FIELDS:
            getattr(self, _FIELDS[metric])[_owner(series)] = value
        elif metric in _SIZES:
            setattr(self, _SIZES[metric], value)

    def _add_device(self, measure: str, series: Series, value: float) -> None:
        device = series.device
        if measure == "energy":
            self.devices[device] = value
        elif measure == "state":
            self.present.add(device.partition(":")[0])
        elif measure == "utilization":
            self.utilization[device] = value
        elif series.job and (measure == "process.utilization" or (measure == "sm.active" and ":" in device)):
            # Streaming multiprocessors count for a MIG device, whose processes have no utilization.
            self.shares[device][_owner(series)] = value


def _owner(series: Series) -> Owner:
    return Owner(series.job, series.replica, series.attempt)


_SIZES = {"node.cpu.count": "cores", "node.memory.total": "memory", "node.memory.available": "memory_free"}
_FIELDS = {"cpu.limit": "cpu_limit", "memory.limit": "memory_limit", "memory.usage": "memory_usage"}


class _Delta(NamedTuple):
    """Energy of a meter since its last reading, and the mean shares of the replicas since then."""

    joules: float
    seconds: float
    allocated: Shares
    used: Shares


class _Meter:
    """Counters of one part of the node by source, and the shares of the replicas since their last reading."""

    def __init__(self) -> None:
        self._read_ms: int | None = None
        self._readings: dict[str, float] = {}
        self._allocated: defaultdict[Owner, float] = defaultdict(float)
        self._used: defaultdict[Owner, float] = defaultdict(float)

    def add_shares(self, seconds: float, allocated: Shares, used: Shares) -> None:
        """Add the shares of some seconds."""
        for sums, shares in ((self._allocated, allocated), (self._used, used)):
            for owner, share in shares.items():
                sums[owner] += share * seconds

    def read(self, readings: Mapping[str, float], now_ms: int) -> _Delta | None:
        """Return the energy since the last reading; None at the first one.

        A counter that fell has begun again at 0. An absent source counts again when it returns.
        """
        delta = None
        seconds = 0.0 if self._read_ms is None else (now_ms - self._read_ms) / 1000
        if seconds > 0:
            grown = [(value, value - self._readings.get(source, value)) for source, value in readings.items()]
            joules = sum(more if more >= 0 else value for value, more in grown)
            delta = _Delta(joules, seconds, _parts(self._allocated, seconds), _parts(self._used, seconds))
        self._read_ms = now_ms
        self._readings.update(readings)
        self._allocated.clear()
        self._used.clear()
        return delta

    def forget(self, owner: Owner) -> None:
        """Drop the shares of a replica."""
        self._allocated.pop(owner, None)
        self._used.pop(owner, None)


class EnergyDivision:
    """Divides the energy in the samples of a tick, and returns counters of replicas.

    ``claims`` returns the replicas that have each device. ``state`` is a folder that stores the counters. The counters
    of all replicas and ``node.energy.unattributed`` add up to the measured energy.
    """

    def __init__(self, place: NodeIdentity, claims: Callable[[], Claims], state: Path | None = None) -> None:
        self._place = place
        self._claims = claims
        self._file = CounterFile(state / "counters-energy.json" if state else None)
        self.totals = {owner: dict(counts) for owner, counts in self._file.load().items()}
        """Joules of each replica by part of the node."""
        self._resumed = set(self.totals)
        self._idle = IdlePower(state / "idle-power.json" if state else None)
        self._meters: dict[str, _Meter] = {}
        self._families: dict[str, str] = {}
        self._devices: set[str] = set()
        self._before: tuple[int, NodeUse] | None = None
        self._of_parts = 0.0
        """Energy of all parts since the last reading of the whole node."""
        self._measured: set[str] = set()
        self._present: AbstractSet[Owner] = frozenset()
        self._seen_ms: dict[Owner, int] = {}

    def divide(self, samples: Samples) -> Samples:
        """Return the energy of each replica, and the energy of no replica; empty without measured energy."""
        now_ms = max((sample.time_ms for sample in samples), default=0)
        use = NodeUse.from_samples(samples)
        claims = self._claims()
        self._present = use.cpu.keys() | {owner for some in claims.values() for owner, _ in some}
        then_ms, before = self._before or (now_ms, use)
        self._before = now_ms, use
        seconds = max(now_ms - then_ms, 0) / 1000
        self._devices |= use.present | use.devices.keys()
        of_devices = {device: _share_device(device, claims, use) for device in self._devices}
        of_parts = {kind: _share_part(kind, use, before) for kind in (CPU, MEMORY)}
        for device, shares in of_devices.items():
            self._share(f"{GPU}:{device}", seconds, shares)
            if device in use.devices:
                self._of_parts += self._read(GPU, f"{GPU}:{device}", {device: use.devices[device]}, now_ms)
        for kind, shares in of_parts.items():
            self._share(kind, seconds, shares)
            self._of_parts += self._read(kind, kind, self._readings(kind, use), now_ms)
        if not any(f"{GPU}:{device}" in self._meters for device in self._devices):
            # The machine's counters of accelerators belong to no device with a name.
            delta = self._measure_delta(ACCELERATOR, self._readings(ACCELERATOR, use), now_ms)
            self._of_parts += delta.joules if delta else 0.0
        whole = self._readings(NODE, use)
        meter = f"{NODE}:{self._families.get(NODE)}"
        self._share(meter, seconds, _share_rest([*of_devices.values()], [*of_parts.values()]))
        if whole:
            less, self._of_parts = self._of_parts, 0.0
            self._read(REST, meter, whole, now_ms, less)
        if not self._measured:
            return []
        self._file.save(self.totals)
        return self._make_samples(use, claims, now_ms)

    def _readings(self, kind: str, use: NodeUse) -> dict[str, float]:
        """Return the counters of a kind by the best family of sources found so far.

        Empty while this family is absent, because counters of another family began at another time.
        """
        for family in _WHOLE if kind == NODE else _FAMILIES:
            found = _select_family(use, kind, family)
            if found or self._families.get(kind) == family:
                self._families[kind] = family
                return found
        return {}

    def _share(self, name: str, seconds: float, shares: tuple[Shares, Shares]) -> None:
        """Add the shares of some seconds to a meter that has been read."""
        if meter := self._meters.get(name):
            meter.add_shares(seconds, *shares)

    def _measure_delta(self, name: str, readings: Mapping[str, float], now_ms: int) -> _Delta | None:
        return self._meters.setdefault(name, _Meter()).read(readings, now_ms) if readings else None

    def _read(self, kind: str, name: str, readings: Mapping[str, float], now_ms: int, less: float = 0.0) -> float:
        """Divide and return the energy of a meter since its last reading, without ``less`` joules."""
        delta = self._measure_delta(name, readings, now_ms)
        if delta is None:
            return 0.0
        joules = max(delta.joules - less, 0.0)
        self._measured.add(kind)
        if not delta.allocated and not delta.used:
            self._idle.add(name, joules / delta.seconds, now_ms)
        at_rest = (self._idle.find_watts(name) or 0.0) * delta.seconds
        divided_joules = divide_energy(joules, at_rest, delta.allocated, delta.used)
        # The series of an ended replica is closed: its energy since the last reading belongs to no replica.
        shares = {owner: part for owner, part in divided_joules.items() if owner in self._present}
        shares[_NOBODY] = joules - sum(shares.values())
        for owner, part in shares.items():
            counts = self.totals.setdefault(owner, {})
            counts[kind] = counts.get(kind, 0.0) + max(part, 0.0)
        return joules

    def _make_samples(self, use: NodeUse, claims: Claims, now_ms: int) -> Samples:
        samples: Samples = []
        holders = {owner for some in claims.values() for owner, _ in some}
        present = self._present
        self._seen_ms.update(dict.fromkeys(present if self._seen_ms else present | self.totals.keys(), now_ms))
        self._seen_ms.pop(_NOBODY, None)
        for owner in present:
            counts = self.totals.setdefault(owner, {})
            for kind in self._measured:
                if kind != GPU or owner in holders:
                    counts.setdefault(kind, 0.0)
            named = {f"energy.{kind}": joules for kind, joules in counts.items()}
            named["energy.total"] = sum(counts.values())
            began = None if owner in self._resumed else use.began.get(owner)
            for metric, joules in named.items():
                series = self._place.make_replica_series(metric, owner)
                if began is not None and began < now_ms:
                    samples.append(Sample(series, began, 0.0))
                samples.append(Sample(series, now_ms, joules))
        for kind in sorted(self._measured):
            joules = self.totals.setdefault(_NOBODY, {}).setdefault(kind, 0.0)
            series = self._place.make_node_series("node.energy.unattributed", (("kind", kind),))
            samples.append(Sample(series, now_ms, joules))
        for meter in self._meters:
            if (watts := self._idle.find_watts(meter)) is not None:
                samples.append(
                    Sample(self._place.make_node_series("node.power.idle", (("meter", meter),)), now_ms, watts)
                )
        self._forget(now_ms)
        return samples

    def _forget(self, now_ms: int) -> None:
        """Drop the replicas that have been gone for ten minutes."""
        for owner in [one for one, at in self._seen_ms.items() if not 0 <= now_ms - at <= _FORGET_AFTER_MS]:
            del self._seen_ms[owner]
            self.totals.pop(owner, None)
            for meter in self._meters.values():
                meter.forget(owner)


def _select_family(use: NodeUse, kind: str, family: str) -> dict[str, float]:
    """Return the counters of a kind by one family of sources; for the whole node only the first one."""
    names = [name for one, name in use.sources if one == kind and name.partition("/")[0] == family]
    return {name: use.sources[kind, name] for name in (names[:1] if kind == NODE else names)}


def _share_device(device: str, claims: Claims, use: NodeUse) -> tuple[Shares, Shares]:
    """Return the shares of a device by claims and by use. Its partitions count with their slices."""
    allocated = _add_shares(
        (owner, share / len(some))
        for name, some in claims.items()
        if name == device or name.startswith(f"{device}:")
        for owner, share in some
    )
    used: defaultdict[Owner, float] = defaultdict(float)
    for name, shares in use.shares.items():
        part = dict(claims.get(name, ())) if name.startswith(f"{device}:") else None
        for owner, share in shares.items() if part is not None or name == device else ():
            used[owner] += share * (part.get(owner, 0.0) if part is not None else 1.0)
    busy = max(sum(used.values()), use.utilization.get(device, 0.0) if used else 0.0)
    by_use = {owner: share / busy for owner, share in used.items()} if busy > 0 else allocated
    return allocated, by_use


def _share_part(kind: str, use: NodeUse, before: NodeUse) -> tuple[Shares, Shares]:
    """Return the shares of CPUs or memory: by limits, and by use."""
    if kind == MEMORY:
        return _parts(use.memory_limit, use.memory), _parts(use.memory_usage, use.memory - use.memory_free)
    busy = (use.busy or 0.0) - (before.busy or 0.0)
    grown = {
        owner: max(seconds - before.cpu.get(owner, 0.0 if owner in use.began else seconds), 0.0)
        for owner, seconds in use.cpu.items()
    }
    return _parts(use.cpu_limit, use.cores), _parts(grown, busy)


def _share_rest(
    devices: Sequence[tuple[Shares, Shares]], parts: Sequence[tuple[Shares, Shares]]
) -> tuple[Shares, Shares]:
    """Return the shares of the rest of a node: the largest among CPUs, memory and devices."""
    allocated, used = (
        _take_largest([*(one[by] for one in parts), _mean([one[by] for one in devices], len(devices))]) for by in (0, 1)
    )
    return allocated, used


def _parts(amounts: Shares, whole: float) -> Shares:
    return {owner: amount / whole for owner, amount in amounts.items()} if whole > 0 else {}


def _mean(shares: Sequence[Shares], count: int) -> Shares:
    return {
        owner: share / count for owner, share in _add_shares(pair for one in shares for pair in one.items()).items()
    }


def _take_largest(shares: Iterable[Shares]) -> Shares:
    found: dict[Owner, float] = {}
    for one in shares:
        for owner, share in one.items():
            found[owner] = max(share, found.get(owner, 0.0))
    return found


def _add_shares(pairs: Iterable[tuple[Owner, float]]) -> dict[Owner, float]:
    found: dict[Owner, float] = {}
    for owner, share in pairs:
        found[owner] = found.get(owner, 0.0) + share
    return found
