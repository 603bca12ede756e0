"""Which collectors there are: the only place that names them."""

from collections.abc import Callable
from dataclasses import dataclass

from jobmeter.collect.base import Collector, Place, RecordSource
from jobmeter.collect.cgroup.paths import Hierarchies
from jobmeter.collect.cgroup.reader import GroupReader
from jobmeter.collect.discover.table import ProcessTable
from jobmeter.collect.host.cpu import CpuCollector
from jobmeter.collect.host.disk import DiskCollector
from jobmeter.collect.host.filesystem import FilesystemCollector
from jobmeter.collect.host.load import LoadCollector
from jobmeter.collect.host.memory import MemoryCollector
from jobmeter.collect.host.network import NetworkCollector
from jobmeter.collect.host.pressure import PressureCollector
from jobmeter.collect.jobs import JobsCollector

SLOW_MS = 60_000
"""The interval of what changes slowly or may take long."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A collector and how often it runs at most: every tick (0), or every so many milliseconds."""

    collector: Collector
    every_ms: int = 0


HOST: tuple[tuple[Callable[[Place], Collector], int], ...] = (
    (CpuCollector, 0),
    (MemoryCollector, 0),
    (LoadCollector, 0),
    (PressureCollector, 0),
    (DiskCollector, 0),
    (NetworkCollector, 0),
    (FilesystemCollector, SLOW_MS),
)
"""The collectors of the node as a whole."""


def host_collectors(place: Place) -> list[Planned]:
    """The collectors of the node as a whole, ready to run."""
    return [Planned(make(place), every_ms) for make, every_ms in HOST]


def jobs_collector(place: Place, table: ProcessTable) -> JobsCollector:
    """The collector of the replicas whose processes ``table`` finds."""
    return JobsCollector(place, table, GroupReader(Hierarchies()))


__all__ = ["HOST", "SLOW_MS", "Planned", "RecordSource", "host_collectors", "jobs_collector"]
