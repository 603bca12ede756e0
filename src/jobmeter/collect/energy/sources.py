"""Energy counters of the machine: RAPL's zones and Cray's pm_counters.

https://docs.kernel.org/power/powercap/powercap.html and Cray's "XC Series Power Management Administration Guide".
"""

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from jobmeter.collect import files
from jobmeter.collect.base import NodeIdentity
from jobmeter.collect.clock import read_elapsed_ns
from jobmeter.collect.host.base import NodeCollector, NodeReading

CPU, MEMORY, ACCELERATOR, NODE = "cpu", "memory", "accelerator", "node"
MODULE = "module"
"""Kind of processors or memory in one module with accelerators, whose counters include their energy."""
_JOINED = frozenset({("0x1002", "0x74a0")})
"""PCI vendor and device of accelerators whose counters have the energy of the whole module: MI300A."""
_ZONE = re.compile(r"intel-rapl:[0-9a-f]+(?::[0-9a-f]+)?")
_RAPL_KINDS = {"package": CPU, "dram": MEMORY, "psys": NODE}
"""Kind by the beginning of a zone's name. The other zones (``core``, ``uncore``) are parts of a package."""
_CRAY_KINDS = {"energy": NODE, "cpu_energy": CPU, "memory_energy": MEMORY}
_PARTS = frozenset({CPU, MEMORY})
_ACCELERATOR = re.compile(r"accel(\d+)_energy")
_JOULES = re.compile(r"(\d+) J\b")
_MICRO = 1e-6
_MOST_WATTS = 1000.0
"""Power of a zone up to which its counter wraps at most once between two readings."""
_TRIES = 3


class EnergyReading(NamedTuple):
    """Reading of a counter: ``source`` is unique on the node, ``wraps`` the largest value before the next 0."""

    kind: str
    source: str
    joules: float
    wraps: float | None = None


def iterate_rapl_zones(sys_root: str) -> Iterator[tuple[str, str, str]]:
    """Yield the kind, the name and the folder of each known zone, readable or not."""
    folder = f"{sys_root}/class/powercap"
    for zone in files.list_names(folder):
        name = files.read_text(f"{folder}/{zone}/name") if _ZONE.fullmatch(zone) else ""
        kind = _RAPL_KINDS.get(name.partition("-")[0])
        if kind:
            parent = zone.split(":")[1] if zone.count(":") > 1 else ""
            yield kind, f"rapl/{name}" + (f"-{parent}" if parent else ""), f"{folder}/{zone}"


def read_rapl(sys_root: str) -> Iterator[EnergyReading]:
    """Yield the readings of RAPL's zones that may be read."""
    for kind, source, folder in iterate_rapl_zones(sys_root):
        energy, wraps = (files.read_number(f"{folder}/{name}") for name in ("energy_uj", "max_energy_range_uj"))
        if energy is not None:
            yield EnergyReading(kind, source, energy * _MICRO, None if wraps is None else wraps * _MICRO)


def read_cray(sys_root: str) -> list[EnergyReading]:
    """Read Cray's counters at one moment; empty without them, or while they change."""
    folder = f"{sys_root}/cray/pm_counters"
    for _ in range(_TRIES):
        before = files.read_text(f"{folder}/freshness")
        found = list(_cray(folder)) if before else []
        if files.read_text(f"{folder}/freshness") == before:
            return found
    return []


def _cray(folder: str) -> Iterator[EnergyReading]:
    for name in files.list_names(folder):
        accelerator = _ACCELERATOR.fullmatch(name)
        kind = ACCELERATOR if accelerator else _CRAY_KINDS.get(name)
        match = _JOULES.match(files.read_text(f"{folder}/{name}")) if kind else None
        if kind and match:
            yield EnergyReading(kind, f"cray/{name.removesuffix('_energy')}", float(match[1]))


class EnergyTotal:
    """Energy since the first reading of a counter, over its wraps and resets."""

    def __init__(self) -> None:
        self.joules = 0.0
        self._last: tuple[float, int] | None = None

    def update(self, reading: EnergyReading, now_ns: int) -> float | None:
        """Add the energy since the last reading, and return the total.

        A counter that fell has wrapped, or has begun again at 0. Return None after a pause in which the counter may
        have wrapped more than once: the energy of this pause is unknown and left out.
        """
        is_known = True
        if self._last is not None:
            before, at_ns = self._last
            seconds = (now_ns - at_ns) / 1e9
            more = reading.joules - before
            if reading.wraps is None:
                self.joules += more if more >= 0 else reading.joules
            elif seconds * _MOST_WATTS < reading.wraps:
                self.joules += more if more >= 0 else more + reading.wraps
            else:
                is_known = False
        self._last = reading.joules, now_ns
        return self.joules if is_known else None


class EnergyCollector(NodeCollector):
    """Collector of the energy counters of the machine, which begin with 0 at its first reading."""

    name = "host.energy"
    metrics = ("node.energy",)

    def __init__(
        self, place: NodeIdentity, sys_root: str = "/sys", elapsed: Callable[[], int] = read_elapsed_ns
    ) -> None:
        super().__init__(place, sys_root=sys_root)
        self._elapsed = elapsed
        self._totals: dict[str, EnergyTotal] = {}
        self._cards: list[str] = []
        self._is_joined = False

    def _read(self) -> Iterator[NodeReading]:
        readings = [*read_rapl(self._sys), *read_cray(self._sys)]
        if readings and self._has_joined_modules():
            readings = [one._replace(kind=MODULE) if one.kind in _PARTS else one for one in readings]
        for reading in readings:
            total = self._totals.setdefault(reading.source, EnergyTotal()).update(reading, self._elapsed())
            if total is not None:
                yield "node.energy", (("kind", reading.kind), ("source", reading.source)), total

    def _has_joined_modules(self) -> bool:
        """Return True if the counters of accelerators include the energy of processors and memory."""
        folder = f"{self._sys}/class/drm"
        cards = [name for name in files.list_names(folder) if name.startswith("card")]
        if cards != self._cards:
            texts = (
                [files.read_text(f"{folder}/{card}/device/{name}") for name in ("vendor", "device")] for card in cards
            )
            self._cards, self._is_joined = cards, any(tuple(one) in _JOINED for one in texts)
        return self._is_joined
