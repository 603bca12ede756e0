"""Registry of collectors: only this module names them."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from jobmeter.collect.accelerators import registry as vendors
from jobmeter.collect.accelerators.collector import AcceleratorCollector
from jobmeter.collect.accelerators.device import Accelerator
from jobmeter.collect.accelerators.names import DeviceNames
from jobmeter.collect.base import Collector, NodeIdentity, Owner, RecordSource
from jobmeter.collect.cgroup.paths import Hierarchies
from jobmeter.collect.cgroup.reader import GroupReader
from jobmeter.collect.clock import SampleClock
from jobmeter.collect.discover.devices import AllocationTracker, DeviceAllocator
from jobmeter.collect.discover.member import Classifier, MemberTable, Process
from jobmeter.collect.discover.permitted import DeviceGroups
from jobmeter.collect.discover.prolog import PrologAllocations
from jobmeter.collect.discover.table import ProcessTable
from jobmeter.collect.ends import EndWatch
from jobmeter.collect.energy.sources import EnergyCollector
from jobmeter.collect.host.cpu import CpuCollector
from jobmeter.collect.host.disk import DiskCollector
from jobmeter.collect.host.filesystem import FilesystemCollector
from jobmeter.collect.host.load import LoadCollector
from jobmeter.collect.host.memory import MemoryCollector
from jobmeter.collect.host.network import LinkCollector, NetworkCollector
from jobmeter.collect.host.network_storage import NetworkStorageCollector
from jobmeter.collect.host.numa import NumaCollector
from jobmeter.collect.host.pressure import PressureCollector
from jobmeter.collect.host.sensors import SensorCollector
from jobmeter.collect.jobs import JobsCollector
from jobmeter.collect.kubelet.allocated import KubeletAllocations
from jobmeter.collect.kubelet.client import PodResources
from jobmeter.collect.machine import Machine
from jobmeter.collect.mounts import MountsCollector
from jobmeter.collect.process_events.watch import ProcessWatch
from jobmeter.collect.starts import Starts
from jobmeter.model.catalog import find
from jobmeter.model.time import Clock
from jobmeter.plugins import Plugin, PluginKind, load_plugins, report_failure, select_working

_log = logging.getLogger(__name__)
_PATIENCE = 0.4
"""Seconds that one turn may wait for devices: less than a turn of ``jobmeter run``, the shortest."""
_WAITS = 3
"""Waits for devices in a turn: to open them, to query their processes, and to read them."""
_SLOW_MS = 60_000
"""Interval of slow collectors, and of metrics that change slowly."""
_MOUNTS_MS = 30_000


@dataclass(frozen=True, slots=True)
class Planned:
    """Collector with its shortest interval: every tick (0), or the given number of milliseconds."""

    collector: Collector
    every_ms: int = 0


HOST: tuple[tuple[Callable[[NodeIdentity], Collector], int], ...] = (
    (CpuCollector, 0),
    (MemoryCollector, 0),
    (LoadCollector, 0),
    (PressureCollector, 0),
    (DiskCollector, 0),
    (NetworkCollector, 0),
    (EnergyCollector, 0),
    (FilesystemCollector, _SLOW_MS),
    (LinkCollector, _SLOW_MS),
    (SensorCollector, _SLOW_MS),
    (NumaCollector, _SLOW_MS),
    (NetworkStorageCollector, _SLOW_MS),
)
"""Collectors of the whole node."""


def create_host_collectors(place: NodeIdentity) -> list[Planned]:
    """Create the collectors of the whole node."""
    return [Planned(make(place), every_ms) for make, every_ms in HOST]


def create_plugin_collectors(place: NodeIdentity, others: Iterable[Planned]) -> list[Planned]:
    """Create the collectors of plug-ins. The names of ``others`` are taken.

    ``every_ms`` of a collector, if there, is its shortest interval.
    """
    plugins = select_working(load_plugins(PluginKind.COLLECTORS, {one.collector.name for one in others}))
    return [planned for plugin in plugins if (planned := _plan_plugin(plugin, place)) is not None]


def _plan_plugin(plugin: Plugin, place: NodeIdentity) -> Planned | None:
    try:
        collector: Collector = plugin.part(place)
        unknown = next((name for name in collector.metrics if find(name) is None), "")
        planned = Planned(collector, int(getattr(collector, "every_ms", 0)))
        name = collector.name
    except Exception as error:  # noqa: BLE001 - a module of somebody else may raise anything
        report_failure(plugin, f"{type(error).__name__}: {error}")
        return None
    if unknown:
        report_failure(plugin, f"unknown metric {unknown!r}; use a metric of the catalogue or one below app.")
    elif name != plugin.name:
        report_failure(plugin, f"its collector has the name {name!r}; use it in both places")
    else:
        return planned
    return None


@dataclass(frozen=True, slots=True)
class JobCollectors:
    """Collectors of jobs, which share one table of processes."""

    table: ProcessTable
    jobs: JobsCollector
    accelerators: Sequence[AcceleratorCollector[Any]]
    """Collector of each vendor's accelerators."""
    watch: ProcessWatch = field(default_factory=ProcessWatch)
    ends: EndWatch | None = None
    mounts: MountsCollector | None = None
    """Collector of the filesystems that replicas use, if they are measured."""

    def start(self) -> None:
        """Begin to read the kernel's events about processes, if permitted."""
        self.watch.start(self.table.look, self.ends.include if self.ends else lambda _process: None)

    def stop(self) -> None:
        """Stop reading events."""
        self.watch.stop()

    @property
    def planned(self) -> list[Planned]:
        """Collectors of jobs. The collector of processes comes first, because it refreshes the table."""
        mounts = [Planned(self.mounts, _MOUNTS_MS)] if self.mounts else []
        return [Planned(self.jobs), *mounts, *map(Planned, self.accelerators)]

    @property
    def allocations(self) -> list[AllocationTracker]:
        """Allocations of each vendor's devices."""
        return [one.allocations for one in self.accelerators]

    @property
    def sources(self) -> list[RecordSource]:
        """Sources of allocations and of conflicts between them."""
        return [*self.allocations, *(one.disagreements for one in self.accelerators)]

    @property
    def device_events(self) -> list[RecordSource]:
        """Events about devices that stop being measured."""
        return [one.states for one in self.accelerators]

    def list_claims(self) -> dict[str, list[tuple[Owner, float]]]:
        """Return the replicas that have each device, with their shares of the whole device."""
        devices = self.find_devices()
        sizes = {name: float(device.details.get("slices") or 1) for name, device in devices.items()}
        wholes = {name: name.partition(":")[0] for name in devices}
        sums: dict[str, float] = {}
        for name, whole in wholes.items():
            sums[whole] = sums.get(whole, 0.0) + (sizes[name] if name != whole else 0.0)
        return {
            name: [(Owner(one.job, one.replica, one.attempt), part) for one in owners]
            for tracker in self.allocations
            for name, owners in tracker.holders.items()
            if name in wholes
            for part in [1.0 if name == wholes[name] else sizes[name] / sums[wholes[name]]]
        }

    def list_processes_of(self, job: str) -> list[tuple[Process, Owner]]:
        """Return the processes of a job, each with its replica."""
        found = [(process, process.member.owner) for process in self.table.list_processes()]
        return [(process, owner) for process, owner in found if owner.job == job]

    def find_devices(self) -> Mapping[str, Accelerator]:
        """Return the devices of the node that the collectors found, by name."""
        return {one.device_name(device.index): device for one in self.accelerators for device in one.devices}


def create_job_collectors(
    place: NodeIdentity,
    classifier: Classifier,
    clock: SampleClock,
    *,
    alone: bool = False,
    patience: float = _PATIENCE,
    state: Path | None = None,
    job_mapping: Path | None = None,
) -> JobCollectors:
    """Create the collectors of the jobs whose processes ``classifier`` finds.

    ``alone``: one job measures itself, and leaves metrics without a job to the agent of the node. ``patience``: seconds
    that one tick may wait for devices. ``state``: folder that stores counters and the numbers of devices.
    ``job_mapping``: folder in which a prolog writes the devices of jobs.
    """
    watch = ProcessWatch()
    table = ProcessTable(classifier, watch=watch)
    hierarchies = Hierarchies()
    reader = GroupReader(hierarchies)
    ends = EndWatch(reader)
    jobs = JobsCollector(place, table, reader, state=state, ends=ends, starts=Starts(clock.convert_elapsed_ms))
    names = DeviceNames(vendors.list_vendors(), Machine(), state)
    accelerators = create_accelerator_collectors(
        place, table, clock, hierarchies, names, alone=alone, patience=patience, job_mapping=job_mapping
    )
    return JobCollectors(table, jobs, accelerators, watch, ends, MountsCollector(place, table))


def create_accelerator_collectors(
    place: NodeIdentity,
    table: MemberTable,
    clock: Clock,
    hierarchies: Hierarchies,
    names: DeviceNames,
    *,
    alone: bool = False,
    patience: float = _PATIENCE,
    job_mapping: Path | None = None,
) -> list[AcceleratorCollector[Any]]:
    """Create the collector of each vendor. For the arguments see ``create_job_collectors``.

    Each vendor has its own thread and its own sources of allocations, so that a driver that hangs affects no other.
    """
    machine = names.machine
    patience /= _WAITS
    collectors = []
    for vendor in names.vendors:
        own = names.get_vendor_names(vendor)
        try:
            driver = vendor.open(clock, machine, patience)
        except Exception:  # noqa: BLE001 - a vendor of somebody else may raise anything, and takes no other along
            _log.exception("the devices of %s are not measured: its driver cannot be opened", vendor.title)
            continue
        allocated: list[DeviceAllocator] = []
        if not alone:
            allocated.append(
                KubeletAllocations(
                    vendor, PodResources.for_machine(machine), table.list_members, f"{machine.var}/log/pods"
                )
            )
        if job_mapping:
            allocated.append(PrologAllocations(job_mapping, table.list_members, own.are_plain, own.get_number))
        collectors.append(
            AcceleratorCollector(
                place,
                own,
                driver,
                table,
                alone=alone,
                allocated=allocated,
                groups=DeviceGroups(hierarchies, partial(vendor.find_character_numbers, machine)),
                patience=patience,
            )
        )
    return collectors
