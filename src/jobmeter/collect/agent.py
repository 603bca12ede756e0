"""Agent of a node: its collectors, its loop and its delivery."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Event, Thread

from jobmeter.collect.base import NodeIdentity, Owner, RecordSource
from jobmeter.collect.checks.node import NodeChecks
from jobmeter.collect.checks.poll import CheckPoller
from jobmeter.collect.clock import ClockReporter, SampleClock
from jobmeter.collect.deliver import Delivery, Requester
from jobmeter.collect.discover.classify import NodeClassifier
from jobmeter.collect.discover.clusters import SlurmClusters
from jobmeter.collect.discover.member import Process
from jobmeter.collect.discover.owners import JobOwners, OwnerReporter
from jobmeter.collect.discover.report import JobReporter, NodeReporter
from jobmeter.collect.discover.rules import JobRule
from jobmeter.collect.energy.divide import EnergyDivision
from jobmeter.collect.energy.polled import PowerCollector, RedfishSettings, iterate_power_pollers
from jobmeter.collect.incidents import IncidentWatch
from jobmeter.collect.kernel import KernelWatch, NodeKills
from jobmeter.collect.kubelet.storage import KubeletApi, KubeletSettings, PodStorageCollector
from jobmeter.collect.measurement import Measurement, turn_seconds
from jobmeter.collect.outbox import Outbox
from jobmeter.collect.pods.jobs import PodJobs
from jobmeter.collect.pods.poll import PodPoller
from jobmeter.collect.registry import (
    JobCollectors,
    Planned,
    create_host_collectors,
    create_job_collectors,
    create_plugin_collectors,
)
from jobmeter.collect.reports.settings import ProgramSettings
from jobmeter.collect.spool import Spool
from jobmeter.collect.stacks.collect import StackCollector
from jobmeter.collect.syslog.kernel import KernelReader
from jobmeter.collect.syslog.make import make_system_logs
from jobmeter.collect.syslog.reader import LogSettings
from jobmeter.collect.xids import XidReports

_LONGEST_TURN = 5.0
_LAST_TURN = 1.0
"""Time limit in seconds of the last collection, after a stop request."""
_DEVICES = 0.8
"""Part of a turn that may be spent waiting for devices, so that other samples are sent in time."""
_KUBELET_MS = 60_000
_FLUSH_SECONDS = 8.0
"""Time limit in seconds of the last delivery: service managers allow ten seconds or more."""


@dataclass(frozen=True, slots=True)
class NodeSources:
    """Optional sources: of jobs, of the node's power, and of the storage that pods use.

    ``job_mapping`` is the folder of a scheduler's prolog.
    """

    rules: Sequence[JobRule] = ()
    job_mapping: Path | None = None
    clusters: SlurmClusters | None = None
    redfish: RedfishSettings | None = None
    kubelet: KubeletSettings | None = None


class Agent:
    """Measures one node and the jobs on it until it is stopped."""

    def __init__(
        self,
        place: NodeIdentity,
        connect: Callable[[], Requester],
        clock: SampleClock,
        spool: Spool | None,
        interval_ms: int,
        logs: LogSettings | None = None,
        finding: NodeSources | None = None,
        programs: ProgramSettings | None = None,
    ) -> None:
        """Raise InvalidRequestError for an invalid address of Redfish or of the kubelet."""
        self._interval_ms = interval_ms
        self._program_settings = programs or ProgramSettings()
        self._delivery = Delivery(Outbox(spool), connect, clock)
        finding = finding or NodeSources()
        state = spool.directory if spool else None
        owners = JobOwners(state)
        classifier = NodeClassifier(place.node, rules=finding.rules, clusters=finding.clusters, owners=owners)
        turn = turn_seconds(interval_ms, _LONGEST_TURN)
        jobs = self._jobs = create_job_collectors(
            place, classifier, clock, patience=turn * _DEVICES, state=state, job_mapping=finding.job_mapping
        )
        reads_kernel = logs is None or logs.kernel
        kernel = KernelReader()
        incidents, kills = IncidentWatch(), NodeKills(place, KernelWatch(place, kernel) if reads_kernel else None)
        sources: list[RecordSource] = [
            NodeReporter(place, jobs.find_devices, interval_ms=interval_ms, state=state),
            JobReporter(place, jobs.table.list_processes, clock.convert_elapsed_ms),
            OwnerReporter(place, owners, jobs.table.list_processes),
            ClockReporter(place, clock),
            *jobs.sources,
            incidents,
            XidReports(kills, jobs.device_events),
        ]
        pods = PodJobs(jobs.table.list_processes, clock.monotonic, state)
        self._pod_poller = PodPoller(place, connect, pods, interval_ms)
        shown = partial(_owner_of_project, jobs, pods, place.project)
        checks = NodeChecks(jobs.accelerators, lambda: clock.difference, owner_of=shown)
        stacks = StackCollector(partial(_processes, jobs, pods))
        self._poller = CheckPoller(place, connect, checks, stacks, interval_ms)
        measurement = Measurement(place, jobs, self._delivery, clock)
        self._programs = measurement.programs
        self._loop = measurement.make_loop(
            turn,
            sources,
            (EnergyDivision(place, jobs.list_claims, state).divide, incidents.watch, kills.watch),
            node=_node_collectors(place, jobs, finding),
            counters=lambda: self._logs.counters if self._logs else {},
            attribution=pods,
        )
        self._logs = make_system_logs(
            logs,
            place,
            self._delivery.outbox,
            clock,
            owner_of=partial(_owner, jobs, pods),
            state=state and state / "logs.json",
            kernel=kernel,
        )

    def run(self, stop: Event) -> bool:
        """Measure every interval until ``stop`` is set, then once more. True if everything was delivered."""
        self._delivery.start()
        self._jobs.start()
        if self._logs:
            self._logs.start()
        self._poller.start()
        self._pod_poller.start()
        self._programs.open(self._program_settings)
        self._loop.run(stop, self._interval_ms)
        self._pod_poller.stop()
        self._poller.stop()
        if self._logs:
            self._logs.stop()
        self._programs.close()
        self._loop.tick(force=True, longest=_LAST_TURN)
        self._jobs.stop()
        return self._finish()

    def release_devices(self) -> None:
        """Close the drivers of accelerators for a minute, each in its own thread. Returns at once. For any thread."""
        for one in self._jobs.accelerators:
            Thread(target=one.release, name=f"release {one.name}", daemon=True).start()

    def measure_once(self) -> str:
        """Measure once. Returns the reason of a failed delivery, else an empty text."""
        self._delivery.start()
        self._loop.tick(force=True)
        delivery = self._delivery
        if not self._finish():
            return f"the samples were not delivered and stay in the spool: {delivery.last_error}"
        if delivery.set_aside:
            return f"the server refused some data, which is quarantined: {delivery.set_aside}"
        if not delivery.acknowledged:
            reasons = ", ".join(f"{count} {reason}" for reason, count in delivery.refused.items()) or "no reason given"
            return f"the server accepted no sample: {reasons}"
        return ""

    def _finish(self) -> bool:
        self._pod_poller.poll_last()
        self._loop.release()
        delivered = self._delivery.flush(_FLUSH_SECONDS)
        self._delivery.stop()
        self._delivery.outbox.close()
        return delivered


def _node_collectors(place: NodeIdentity, jobs: JobCollectors, finding: NodeSources) -> list[Planned]:
    """Return the collectors of the node, plug-ins last."""
    own = create_host_collectors(place)
    if power := list(iterate_power_pollers(finding.redfish)):
        own.append(Planned(PowerCollector(place, power)))
    if finding.kubelet:
        api = KubeletApi(finding.kubelet, place.node)
        own.append(Planned(PodStorageCollector(place, api, jobs.table.list_members), _KUBELET_MS))
    return [*own, *create_plugin_collectors(place, (*own, *jobs.planned))]


def _owner(jobs: JobCollectors, pods: PodJobs, pid: int) -> Owner | None:
    """Return the replica of a process; None for a process of no job."""
    member = jobs.table.find_member(pid)
    return pods.find_owner(member.owner) if member else None


def _owner_of_project(jobs: JobCollectors, pods: PodJobs, project: str, pid: int) -> Owner | None:
    """Return the replica of a process; None for a process of no job or of another project's job."""
    owner = _owner(jobs, pods, pid)
    return owner if owner and owner.project in {"", project} else None


def _processes(jobs: JobCollectors, pods: PodJobs, job: str) -> Iterator[tuple[Process, Owner]]:
    """Yield the processes of a job that this agent measures, with their replicas."""
    for process in jobs.table.list_processes():
        owner = None if process.member.measured else pods.find_owner(process.member.owner)
        if owner is not None and owner.job == job:
            yield process, owner
