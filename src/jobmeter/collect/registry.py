"""Which collectors there are: the only place that names them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from jobmeter.collect.base import Collector, Place, RecordSource
from jobmeter.collect.cgroup.paths import Hierarchies
from jobmeter.collect.cgroup.reader import GroupReader
from jobmeter.collect.clock import SampleClock
from jobmeter.collect.discover.devices import AllocationTracker, Device
from jobmeter.collect.discover.member import Classifier, Member
from jobmeter.collect.discover.permitted import DeviceGroups
from jobmeter.collect.discover.prolog import PrologAllocations
from jobmeter.collect.discover.table import ProcessTable
from jobmeter.collect.ends import EndWatch
from jobmeter.collect.host.cpu import CpuCollector
from jobmeter.collect.host.disk import DiskCollector
from jobmeter.collect.host.filesystem import FilesystemCollector
from jobmeter.collect.host.load import LoadCollector
from jobmeter.collect.host.memory import MemoryCollector
from jobmeter.collect.host.network import NetworkCollector
from jobmeter.collect.host.pressure import PressureCollector
from jobmeter.collect.jobs import JobsCollector
from jobmeter.collect.kubelet.allocated import KubeletAllocations
from jobmeter.collect.kubelet.client import PodResources
from jobmeter.collect.mounts import MountsCollector
from jobmeter.collect.nvidia.binding import PynvmlLibrary
from jobmeter.collect.nvidia.collector import NvidiaCollector
from jobmeter.collect.starts import Starts

_SLOW_MS = 60_000
"""The interval of slow collectors, and of metrics that change slowly."""
_MOUNTS_MS = 30_000


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
    (FilesystemCollector, _SLOW_MS),
)
"""The collectors of the node as a whole."""


def host_collectors(place: Place) -> list[Planned]:
    """The collectors of the node as a whole."""
    return [Planned(make(place), every_ms) for make, every_ms in HOST]


@dataclass(frozen=True, slots=True)
class JobCollectors:
    """The collectors of jobs, which share one table of processes."""

    table: ProcessTable
    jobs: JobsCollector
    nvidia: NvidiaCollector
    mounts: MountsCollector | None = None
    """None: the filesystems that replicas use are not measured."""

    @property
    def planned(self) -> list[Planned]:
        """Those of the replicas' processes first: they refresh the table."""
        mounts = [Planned(self.mounts, _MOUNTS_MS)] if self.mounts else []
        return [Planned(self.jobs), *mounts, Planned(self.nvidia)]

    @property
    def allocations(self) -> list[AllocationTracker]:
        """Of each kind of device who has it."""
        return [self.nvidia.allocations]

    @property
    def sources(self) -> list[RecordSource]:
        """Sources of allocations, and of disagreements about them."""
        return [*self.allocations, self.nvidia.disagreements]

    def devices(self) -> Sequence[Device]:
        """The devices of the node that the collectors found."""
        return self.nvidia.devices


def job_collectors(
    place: Place,
    classifier: Classifier,
    clock: SampleClock,
    *,
    alone: bool,
    state: Path | None = None,
    job_mapping: Path | None = None,
) -> JobCollectors:
    """The collectors of the jobs whose processes ``classifier`` finds.

    ``alone``: one job measures itself, and leaves metrics without a job to the agent of the node. ``state``: folder in
    which counters are remembered over a restart. ``job_mapping``: folder in which a prolog writes who has which device.
    """
    table = ProcessTable(classifier)
    hierarchies = Hierarchies()
    reader = GroupReader(hierarchies)
    jobs = JobsCollector(place, table, reader, state=state, ends=EndWatch(reader), starts=Starts(clock.at_elapsed_ms))

    def members() -> list[Member]:
        return [process.member for process in table.processes()]

    kubelet = [] if alone else [KubeletAllocations(PodResources(), members)]
    prolog = [PrologAllocations(job_mapping, members)] if job_mapping else []
    nvidia = NvidiaCollector(
        place,
        PynvmlLibrary(),
        table.member_of,
        members,
        alone=alone,
        allocated=(*kubelet, *prolog),
        groups=DeviceGroups(hierarchies),
    )
    return JobCollectors(table, jobs, nvidia, MountsCollector(place, table))
