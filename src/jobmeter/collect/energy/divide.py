"""Divide the energy of a node among its jobs: power at rest by allocation, the rest by use."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from jobmeter.collect.base import NodeIdentity, Owner, Samples
from jobmeter.collect.energy.idle import IdlePower
from jobmeter.collect.energy.sources import ACCELERATOR, CPU, MEMORY, NODE
from jobmeter.collect.process.counter_file import CounterFile
from jobmeter.model.sample import Sample
from jobmeter.model.series import Series

GPU, REST = "gpu", "rest"
KINDS = (GPU, CPU, MEMORY, REST)
METRICS = (*(f"energy.{kind}" for kind in KINDS), "energy.total", "node.energy.unattributed", "node.power.idle")
_FAMILIES = ("cray", "rapl")
_WHOLE = ("cray", "redfish", "ipmi", "hwmon", "rapl")
"""Sources of the energy of parts and of the whole node, best first: one of them counts, or energy counts twice."""
_AT_REST = frozenset({"idle", "iowait"})
_NOBODY = Owner("", "")
_FORGET_AFTER_MS = 600_000

Shares = Mapping[Owner, float]
Claims = Mapping[str, Sequence[tuple[Owner, float]]]
"""Replicas that have each device, with their parts of it."""


def divided(joules: float, at_rest: float, allocated: Shares, used: Shares) -> dict[Owner, float]:
    """Divide an amount: ``at_rest`` joules of it by allocation, the others by use. The sum never exceeds the amount.

    Shares are parts of 1; if they exceed 1 together, they are reduced in proportion.
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
    """State of the node at one tick: cumulative use and current shares of its jobs."""

    busy: float | None = None
    cores: float = 0.0
    memory: float = 0.0
    memory_free: float = 0.0
    cpu: dict[Owner, float] = field(default_factory=dict)
    began: dict[Owner, int] = field(default_factory=dict)
    """Time of the zero of new replicas."""
    cpu_limit: dict[Owner, float] = field(default_factory=dict)
    memory_limit: dict[Owner, float] = field(default_factory=dict)
    memory_usage: dict[Owner, float] = field(default_factory=dict)
    sources: dict[tuple[str, str], float] = field(default_factory=dict)
    devices: dict[str, float] = field(default_factory=dict)
    utilization: dict[str, float] = field(default_factory=dict)
    shares: dict[str, dict[Owner, float]] = field(default_factory=lambda: defaultdict(dict))
    """Use of each device by its replicas."""

    @classmethod
    def of(cls, samples: Samples) -> "NodeUse":
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
    """Energy of a meter since its last reading, and the state at that reading."""

    joules: float
    seconds: float
    before: NodeUse


class EnergyDivision:
    """Divides the energy that samples of a tick contain, and returns counters of replicas.

    ``claims`` returns the replicas that have each device. ``state`` is a folder that stores the counters. The counters
    of all replicas and ``node.energy.unattributed`` add up to the measured energy.
    """

    def __init__(self, place: NodeIdentity, claims: Callable[[], Claims], state: Path | None = None) -> None:
        self._place = place
        self._claims = claims
        self._file = CounterFile(state / "counters-energy.json" if state else None)
        self._totals = {owner: dict(counts) for owner, counts in self._file.load().items()}
        self._resumed = set(self._totals)
        self._idle = IdlePower(state / "idle-power.json" if state else None)
        self._last: dict[str, tuple[float, int, NodeUse]] = {}
        self._parts: dict[str, float] = {}
        self._measured: set[str] = set()
        self._seen_ms: dict[Owner, int] = {}

    def divide(self, samples: Samples) -> Samples:
        """Return the energy of each replica and of nobody; empty on a node whose energy is not measured."""
        now_ms = max((sample.time_ms for sample in samples), default=0)
        use = NodeUse.of(samples)
        claims = self._claims()
        parts = 0.0
        for device, joules in use.devices.items():
            if delta := self._delta(f"{GPU}:{device}", joules, now_ms, use):
                self._add(GPU, f"{GPU}:{device}", delta, now_ms, *_of_device(device, claims, use))
                parts += delta.joules
        for kind in (CPU, MEMORY):
            joules_of_part = _part(use, kind)
            if joules_of_part is not None and (delta := self._delta(kind, joules_of_part, now_ms, use)):
                self._add(kind, kind, delta, now_ms, *_of_part(kind, use, delta.before))
                parts += delta.joules
        if not use.devices:  # the machine's own counters of accelerators are no devices with names
            accelerators = sum(value for (kind, _), value in use.sources.items() if kind == ACCELERATOR)
            delta = self._delta(ACCELERATOR, accelerators, now_ms, use)
            parts += delta.joules if delta else 0.0
        self._rest(use, claims, parts, now_ms)
        if not self._measured:
            return []
        self._file.save(self._totals)
        return self._samples(use, claims, now_ms)

    def _delta(self, meter: str, joules: float, now_ms: int, use: NodeUse) -> _Delta | None:
        """Return the energy since the last reading; a counter that fell began again at 0. None at the first one."""
        last = self._last.get(meter)
        self._last[meter] = joules, now_ms, use
        if last is None or now_ms <= last[1]:
            return None
        more = joules - last[0]
        return _Delta(more if more >= 0 else joules, (now_ms - last[1]) / 1000, last[2])

    def _rest(self, use: NodeUse, claims: Claims, parts: float, now_ms: int) -> None:
        """Divide the energy of the whole node without that of its parts, when its source has a new reading."""
        family = next((one for one in _WHOLE if self._has_source(one, use)), None)
        for name in _WHOLE:
            self._parts[name] = self._parts.get(name, 0.0) + parts
        if family is None or (joules := _whole(use, family)) is None:
            return
        of_parts, self._parts[family] = self._parts[family], 0.0
        if delta := self._delta(f"{NODE}:{family}", joules, now_ms, use):
            rest = _Delta(max(delta.joules - of_parts, 0.0), delta.seconds, delta.before)
            self._add(REST, f"{NODE}:{family}", rest, now_ms, *_of_rest(use, delta.before, claims))

    def _has_source(self, family: str, use: NodeUse) -> bool:
        return f"{NODE}:{family}" in self._last or _whole(use, family) is not None

    def _add(self, kind: str, meter: str, delta: _Delta, now_ms: int, allocated: Shares, used: Shares) -> None:
        self._measured.add(kind)
        if not allocated and not used and delta.seconds > 0:
            self._idle.add(meter, delta.joules / delta.seconds, now_ms)
        at_rest = (self._idle.watts(meter) or 0.0) * delta.seconds
        shares = divided(delta.joules, at_rest, allocated, used)
        shares[_NOBODY] = delta.joules - sum(shares.values())
        for owner, joules in shares.items():
            counts = self._totals.setdefault(owner, {})
            counts[kind] = counts.get(kind, 0.0) + max(joules, 0.0)

    def _samples(self, use: NodeUse, claims: Claims, now_ms: int) -> Samples:
        samples: Samples = []
        holders = {owner for some in claims.values() for owner, _ in some}
        present = use.cpu.keys() | holders
        self._seen_ms.update(dict.fromkeys(present if self._seen_ms else present | self._totals.keys(), now_ms))
        self._seen_ms.pop(_NOBODY, None)
        for owner in present:
            counts = self._totals.setdefault(owner, {})
            for kind in self._measured:
                if kind != GPU or owner in holders:
                    counts.setdefault(kind, 0.0)
            named = {f"energy.{kind}": joules for kind, joules in counts.items()}
            named["energy.total"] = sum(counts.values())
            began = None if owner in self._resumed else use.began.get(owner)
            for metric, joules in named.items():
                series = self._place.of_replica(metric, owner)
                if began is not None and began < now_ms:
                    samples.append(Sample(series, began, 0.0))
                samples.append(Sample(series, now_ms, joules))
        for kind in sorted(self._measured):
            joules = self._totals.setdefault(_NOBODY, {}).setdefault(kind, 0.0)
            series = self._place.of_node("node.energy.unattributed", (("kind", kind),))
            samples.append(Sample(series, now_ms, joules))
        for meter in self._last:
            if (watts := self._idle.watts(meter)) is not None:
                samples.append(Sample(self._place.of_node("node.power.idle", (("meter", meter),)), now_ms, watts))
        for owner in [one for one, at in self._seen_ms.items() if not 0 <= now_ms - at <= _FORGET_AFTER_MS]:
            del self._seen_ms[owner]
            self._totals.pop(owner, None)
        return samples


def _part(use: NodeUse, kind: str) -> float | None:
    """Return the energy of a kind by the best family of sources; None without any."""
    for family in _FAMILIES:
        found = [value for (one, name), value in use.sources.items() if one == kind and name.startswith(f"{family}/")]
        if found:
            return sum(found)
    return None


def _whole(use: NodeUse, family: str) -> float | None:
    found = [value for (kind, name), value in use.sources.items() if kind == NODE and name.partition("/")[0] == family]
    return found[0] if found else None


def _of_device(device: str, claims: Claims, use: NodeUse) -> tuple[Shares, Shares]:
    """Return the shares of a device: by claims, and by use. Partitions of it count with their slices."""
    allocated = _together(
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


def _of_part(kind: str, use: NodeUse, before: NodeUse) -> tuple[Shares, Shares]:
    """Return the shares of CPUs or memory: by limits, and by use."""
    if kind == MEMORY:
        return _parts(use.memory_limit, use.memory), _parts(use.memory_usage, use.memory - use.memory_free)
    busy = (use.busy or 0.0) - (before.busy or 0.0)
    grown = {
        owner: max(seconds - before.cpu.get(owner, 0.0 if owner in use.began else seconds), 0.0)
        for owner, seconds in use.cpu.items()
    }
    return _parts(use.cpu_limit, use.cores), _parts(grown, busy)


def _of_rest(use: NodeUse, before: NodeUse, claims: Claims) -> tuple[Shares, Shares]:
    """Return the shares of the rest of a node: the largest among CPUs, memory and devices."""
    devices = len(use.devices) or len(claims)
    of_devices = [_of_device(device, claims, use) for device in use.devices]
    parts = [_of_part(kind, use, before) for kind in (CPU, MEMORY)]
    allocated, used = ([*(one[by] for one in parts), _mean([one[by] for one in of_devices], devices)] for by in (0, 1))
    return _largest(allocated), _largest(used)


def _parts(amounts: Shares, whole: float) -> Shares:
    return {owner: amount / whole for owner, amount in amounts.items()} if whole > 0 else {}


def _mean(shares: Sequence[Shares], count: int) -> Shares:
    return {owner: share / count for owner, share in _together(pair for one in shares for pair in one.items()).items()}


def _largest(shares: Iterable[Shares]) -> Shares:
    found: dict[Owner, float] = {}
    for one in shares:
        for owner, share in one.items():
            found[owner] = max(share, found.get(owner, 0.0))
    return found


def _together(pairs: Iterable[tuple[Owner, float]]) -> dict[Owner, float]:
    found: dict[Owner, float] = {}
    for owner, share in pairs:
        found[owner] = found.get(owner, 0.0) + share
    return found
