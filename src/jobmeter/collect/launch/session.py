"""Run of a command: start the replicas, measure them until they have ended, and deliver everything."""

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from signal import SIGTERM
from threading import Event, Thread
from typing import TypeVar

from jobmeter.collect.base import NodeIdentity, Owner, Samples
from jobmeter.collect.cgroup.paths import CgroupPlace, Groups, Hierarchies, read_groups
from jobmeter.collect.clock import SampleClock
from jobmeter.collect.deliver import Delivery, Requester
from jobmeter.collect.discover.member import Member, MembershipSource
from jobmeter.collect.host.network import NetworkCollector
from jobmeter.collect.incidents import RunIncidents
from jobmeter.collect.launch.children import ChildExit, Children, OwnGroups
from jobmeter.collect.launch.family import Family
from jobmeter.collect.launch.figures import RunFigures, collect_traffic
from jobmeter.collect.launch.lease import RunLease
from jobmeter.collect.launch.logs import LogSender
from jobmeter.collect.launch.memory import OomWatch
from jobmeter.collect.launch.output import CommandOutput
from jobmeter.collect.launch.plan import LaunchPlan, make_environments
from jobmeter.collect.launch.records import JobRecorder, ReplicaLife, end_state, exit_status
from jobmeter.collect.launch.relay import MlflowRelay
from jobmeter.collect.launch.result import Result, describe_accounting
from jobmeter.collect.launch.tracked_runs import TrackedRuns
from jobmeter.collect.loop import Loop
from jobmeter.collect.measurement import Measurement, turn_seconds
from jobmeter.collect.outbox import Outbox
from jobmeter.collect.process.count import Ended
from jobmeter.collect.process.stat import Key, ProcessIo, read_high_water, read_io, read_stat
from jobmeter.collect.process.surroundings import read_limits
from jobmeter.collect.registry import create_job_collectors
from jobmeter.collect.spool import Spool
from jobmeter.collect.stacks.collect import GoneRank
from jobmeter.errors import JobmeterError
from jobmeter.model.record import Records
from jobmeter.model.time import SystemClock

_PROC = "/proc"
_RAMP_MS = (100, 300)
"""Times of early samples in milliseconds, so that a short run has more than two samples."""
_ENDING = frozenset({1, 2, 3, 15})
"""Terminating signals: HUP, INT, QUIT, TERM."""
_KILLED = 128 + 9
_TICKS = os.sysconf("SC_CLK_TCK")
_QUIET_SECONDS = 1.5
"""Seconds that the end waits for the server without a message."""


T = TypeVar("T")

_log = logging.getLogger(__name__)


class RunLimits:
    """Calls functions that may fail, and reports the first failure of each kind of work. Thread-safe."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._warned: set[str] = set()

    def __call__(self, what: str, work: Callable[[], T], otherwise: T) -> T:
        """Return the result of the work; ``otherwise`` if it fails."""
        try:
            return work()
        except Exception as error:  # noqa: BLE001 - the command runs on whatever is wrong with its measuring
            _log.debug("%s failed", what, exc_info=True)
            if what not in self._warned:
                self._warned.add(what)
                self._say(f"{what} failed ({type(error).__name__}: {error}), which does not affect the command")
            return otherwise


@dataclass(slots=True)
class _Root:
    """First process of a replica."""

    life: ReplicaLife
    member: Member


@dataclass(frozen=True, slots=True)
class _FinalStat:
    """Entry in /proc of a process that has ended, before it is reaped."""

    key: Key
    io: ProcessIo | None
    owner: Owner | None
    waited_seconds: float
    place: CgroupPlace


class JobRun:
    """Runs one plan. For the main thread, once.

    The command ends as it would without Jobmeter: a failure to measure, record or report is printed, and the rest
    continues. All such work is called through a ``RunLimits``.

    ``connect`` finds the server, or starts one, in a thread. ``say`` prints a line of information, ``warn`` a warning,
    while the command runs. ``patience`` is the number of seconds that the end may wait for the server. Without
    ``spool``, undelivered data stay in memory.
    """

    def __init__(
        self,
        plan: LaunchPlan,
        place: NodeIdentity,
        connect: Callable[[], Requester],
        clock: SampleClock,
        *,
        spool: Spool | None,
        say: Callable[[str], None],
        warn: Callable[[str], None],
        patience: float = 60.0,
    ) -> None:
        self._plan = plan
        self._place = place
        self._clock = clock
        self._say = say
        self._warn: Callable[[str], None] | None = warn
        self._patience = patience
        self._guard = RunLimits(warn)
        self._children = Children()
        self._hierarchies = Hierarchies()
        outbox = Outbox(spool)
        self._logs = LogSender(plan, place, outbox, now_ns=clock.now_ns, watch=self._read_line) if plan.logs else None
        self._output = CommandOutput(self._take) if self._logs else None
        self._delivery = Delivery(outbox, lambda: self._connect(connect), clock)
        self._family = Family(plan.job, plan.attempt)
        self._collectors = create_job_collectors(place, self._family, clock, alone=True)
        self._measurement = Measurement(place, self._collectors, self._delivery, clock, plan.job)
        self._network = NetworkCollector(place)
        self._figures = RunFigures()
        self._incidents = RunIncidents(self._has_killed_process)
        self._roots: dict[int, _Root] = {}
        self._final_stats: dict[int, _FinalStat] = {}
        self._oom_kills: dict[str, float] = {}
        self._own_peak = 0.0
        self._oom: OomWatch | None = None
        self._groups: OwnGroups | None = None
        self._recorder: JobRecorder | None = None
        self._relay: MlflowRelay | None = None
        self._remaining: frozenset[int] = frozenset()

    def run(self, environment: Mapping[str, str], interval_ms: int) -> Result:
        """Start the command and wait for its end. Raises OSError if it cannot be executed."""
        guard = self._guard
        guard("preparing to measure", self._prepare, None)
        start = self._clock.now_ms()
        loop = None
        try:
            self._start(environment, start)
            guard("passing on output", self._begin_output, None)
            loop = guard("measuring", lambda: self._begin(interval_ms, start), None)
            end = self.measure(loop, interval_ms)
            self._remaining = guard("looking for processes", self._list_living, frozenset())
        finally:
            if self._groups:
                self._groups.remove()
        stopped = bool(_ENDING.intersection(self._children.signals))
        records = guard("recording the end", lambda: self._record_end(loop, end, stopped=stopped), None)
        undelivered = guard("delivering", self._deliver, "it failed")
        status = exit_status(self._lives)
        return Result(
            status=status,
            state=(records and records.jobs[0].state) or end_state(status, stopped=stopped),
            reason=(records and records.jobs[0].error) or "",
            start_ms=start,
            end_ms=end,
            figures=self._figures,
            undelivered=undelivered,
            lines=self._logs.sent if self._logs else None,
            lines_dropped=self._count_dropped_lines() if self._logs else None,
            set_aside=self._delivery.set_aside,
            lost=self._delivery.lost,
            counted_by=self._describe_accounting() if loop else "",
            remaining=self._remaining,
        )

    def _prepare(self) -> None:
        self._oom = OomWatch(self._hierarchies, read_groups(_PROC, os.getpid()) or {})
        self._groups = OwnGroups(self._plan.job, self._plan.names, self._hierarchies)
        self._measurement.programs.open(self._plan.programs, os.getpid(), self._find_root_member, self._say)
        if self._plan.tracking:
            self._guard("receiving runs of MLflow", self._begin_relay, None)

    def _begin_relay(self) -> None:
        wall = SystemClock()
        runs = TrackedRuns(self._plan.job, self._place.project, self._delivery.outbox, wall)
        relay = MlflowRelay(runs, self._delivery, self._plan.user, wall)
        relay.start()
        self._relay = relay

    def _find_root_member(self, pid: int) -> Member | None:
        root = self._roots.get(pid)
        return root.member if root else None

    def _begin(self, interval_ms: int, start: int) -> Loop:
        loop = self._measurement.make_loop(turn_seconds(interval_ms), [self._incidents], [self._watch])
        lease = RunLease(self._plan.job, self._place.project, self._plan.lease_owner, interval_ms, self._clock)
        self._delivery.renewal = lease
        self._recorder = JobRecorder(
            self._plan, self._place, read_limits(_PROC, os.getpid(), self._hierarchies), start, lease.lease
        )
        loop.spool_records(self._recorder.record_start(self._lives))
        return loop

    def _record_end(self, loop: Loop | None, end: int, *, stopped: bool) -> Records | None:
        if loop is None or self._recorder is None:
            return None
        for life in self._lives:
            if life.exit_code == _KILLED and self._oom:
                life.reason = self._oom.find_evidence(self._oom_kills.get(life.name, 0.0))
        self._measurement.close_allocations(loop, end)
        out_of_memory = {life.name for life in self._lives if life.exit_code == _KILLED and life.reason}
        loop.spool_records(self._incidents.finish(out_of_memory.__contains__))
        records = self._recorder.record_end(self._lives, end, stopped=stopped)
        loop.spool_records(records)
        return records

    def _has_killed_process(self, replica: str) -> bool:
        return any(life.name == replica and life.exit_code == _KILLED for life in list(self._lives))

    def _describe_accounting(self) -> str:
        problem = self._groups.problem if self._groups else "control groups could not be read"
        return describe_accounting(f"process ({problem})" if problem else "control group", self._collectors.jobs)

    def _list_living(self) -> frozenset[int]:
        """Return the processes of the command that still run."""
        return self._measurement.find_living(self._groups.list_remaining() if self._groups else ())

    @property
    def _lives(self) -> list[ReplicaLife]:
        return [root.life for root in self._roots.values()]

    def _start(self, environment: Mapping[str, str], start: int) -> None:
        self._own_peak = read_high_water("/proc", os.getpid()) or 0.0
        added = self._measurement.programs.extend_environment(environment)
        if self._relay:
            added = self._relay.extend_environment(added)
        for rank, own in enumerate(make_environments(self._plan, added)):
            name = self._plan.names[rank]
            entries = self._groups.list_entries(name) if self._groups else []
            output = self._output.open(name) if self._output else {}
            try:
                pid = self._children.start(self._plan.command, own, entries, with_input=rank == 0, output=output)
            except OSError:
                self._children.send(SIGTERM)
                raise
            life = ReplicaLife(name, rank, start)
            owner = Owner(self._plan.job, name, self._plan.attempt)
            groups = self._enter_groups(name, pid)
            member = Member(owner=owner, source=MembershipSource.TAGS, rank=rank, groups=groups)
            self._family.add(pid, member)
            self._roots[pid] = _Root(life, member)
            self._figures.begin(self._place.make_replica_series("cpu.time", owner), start)

    def _enter_groups(self, replica: str, pid: int) -> Groups:
        groups = self._groups
        return self._guard("entering control groups", lambda: groups.find_entered(replica, pid), {}) if groups else {}

    def _take(self, replica: str, stream: str, data: bytes) -> None:
        if logs := self._logs:
            self._guard("recording log lines", lambda: logs.take(replica, stream, data), None)

    def _read_line(self, replica: str, time_ns: int, text: str) -> None:
        owner = Owner(self._plan.job, replica, self._plan.attempt)
        self._guard("reading lines", lambda: self._measurement.programs.read_line(owner, time_ns, text), None)

    def _begin_output(self) -> None:
        if self._logs and self._output:
            resize = self._output.resize
            self._children.resized = lambda: self._guard("resizing", resize, None)
            self._output.start()
            self._logs.start()

    def _finish_output(self) -> None:
        """Wait until the last output was passed on. A signal ends the wait."""
        if self._logs and self._output:
            signals = len(self._children.signals)

            def wait() -> bool:
                for ended in self._children.wait(0.01, self._read_final_stat):
                    self._note_end(ended)
                return len(self._children.signals) == signals

            self._output.finish(wait)
            self._logs.stop()

    def _count_dropped_lines(self) -> int:
        given_up = self._logs.dropped if self._logs else 0
        return given_up + self._delivery.outbox.dropped_lines + self._delivery.refused_lines

    def measure(self, loop: Loop | None, interval_ms: int) -> int:
        """Sample and deliver in threads while the replicas run. Return the time of the last sample."""
        stop = Event()
        guard = self._guard
        ticking = Thread(target=self._tick, args=(loop, stop, interval_ms), name="loop", daemon=True)
        guard("measuring", ticking.start, None)
        guard("delivering", self._delivery.start, None)
        poller = self._measurement.make_poller(interval_ms, self._list_gone_ranks)
        guard("polling for requests", poller.start, None)
        while self._children.running:
            for ended in self._children.wait(1.0, self._read_final_stat):
                self._note_end(ended)
        for ended in self._children.wait_for_orphans(self._read_final_stat):
            self._note_end(ended)
        guard("passing on output", self._finish_output, None)
        poller.stop()
        guard("receiving reports", self._measurement.programs.close, None)
        stop.set()
        guard("measuring", lambda: ticking.join(timeout=10.0), None)
        # The last tick marks the end of the job, so it comes before every call that may wait.
        last = guard("measuring", lambda: loop.tick(force=True), None) if loop else None
        if self._relay:
            guard("receiving runs of MLflow", self._relay.stop, None)
        return last or max(self._clock.now_ms(), *(life.end or 0 for life in self._lives), 0)

    def _list_gone_ranks(self) -> list[GoneRank]:
        return [
            GoneRank(root.member.owner, root.life.rank, pid, root.life.exit_code)
            for pid, root in list(self._roots.items())
            if root.life.exit_code is not None
        ]

    def _tick(self, loop: Loop | None, stop: Event, interval_ms: int) -> None:
        if loop:
            self._guard("measuring", lambda: loop.run(stop, interval_ms, _RAMP_MS), None)

    def _read_final_stat(self, pid: int) -> None:
        self._guard("reading ended processes", lambda: self._take_final_stat(pid), None)

    def _take_final_stat(self, pid: int) -> None:
        stat = read_stat(_PROC, pid)
        if stat is None:
            return
        root = self._roots.get(pid)
        member = root.member if root else self._collectors.table.find_member(pid)
        owner, place = (member.owner, CgroupPlace.INSIDE) if member else self._find_owner_at_end(pid)
        self._final_stats[pid] = _FinalStat(stat.key, read_io(_PROC, pid), owner, stat.waited_ticks / _TICKS, place)

    def _find_owner_at_end(self, pid: int) -> tuple[Owner | None, CgroupPlace]:
        """Return the replica of an orphan that no scan has found. Its environment is gone, but its groups are known."""
        by_group = self._roots.get(os.getpgid(pid))
        found = self._groups.find_replica(pid) if self._groups else None
        name = found[0] if found else by_group.life.name if by_group else None
        place = CgroupPlace.OUTSIDE if found and not found[1] else CgroupPlace.INSIDE
        return Owner(self._plan.job, name, self._plan.attempt) if name else None, place

    def _note_end(self, ended: ChildExit) -> None:
        root = self._roots.get(ended.pid)
        if root:
            root.life.exit_code = ended.status
            root.life.end = max(self._clock.now_ms(), root.life.start)
        self._guard("counting ended processes", lambda: self._count_ended(ended), None)

    def _count_ended(self, ended: ChildExit) -> None:
        """Count the final figures of a replica's first process, or of an adopted orphan."""
        final = self._final_stats.pop(ended.pid, None)
        if final is None or final.owner is None:
            return
        # Until its exec a process is a copy of this one, whose own peak is not the command's.
        peak = ended.memory_peak if ended.memory_peak > self._own_peak else 0.0
        groups = next((other.member.groups for other in self._roots.values() if other.member.owner == final.owner), {})
        self._collectors.jobs.note_end(
            Ended(final.key, final.owner, ended.cpu_seconds, peak, final.io, groups, final.waited_seconds, final.place)
        )

    def _watch(self, samples: Samples) -> None:
        for series, _, value in samples:
            if series.metric == "memory.oom.kills":
                self._oom_kills[series.replica] = value
        self._guard("looking for incidents", lambda: self._incidents.watch(samples), None)
        # The machine's traffic is only for the summary: an agent on this node reports it.
        empty: Samples = []
        network = self._guard("measuring the network", lambda: collect_traffic(samples, self._network.collect), empty)
        self._guard("summing up", lambda: self._figures.watch([*samples, *network]), None)

    def _connect(self, connect: Callable[[], Requester]) -> Requester:
        try:
            with self._children.unblock_signals():
                return connect()
        except JobmeterError as error:
            if self._warn:
                self._warn(f"no server ({error.message}): the command runs and its samples stay in the spool")
            self._warn = None
            raise

    def _deliver(self) -> str:
        """Wait until everything is acknowledged, an attempt fails, patience ends or the user interrupts.

        Return the reason, empty after a success.
        """
        begin = self._clock.monotonic()
        failed = self._delivery.request_flush()
        signals = len(self._children.signals)
        warned = False
        while self._delivery.outbox.size:
            waited = self._clock.monotonic() - begin
            if self._delivery.failed_attempts > failed:
                return self._delivery.last_error
            if waited > self._patience:
                return f"no answer within {self._patience:.0f} seconds"
            if waited > _QUIET_SECONDS and not warned:
                warned = True
                self._say("waiting for the server to accept the last samples (Ctrl-C leaves them for the next run)")
            self._children.wait(0.05, lambda _pid: None)
            if len(self._children.signals) > signals:
                return "interrupted"
        self._delivery.stop()
        return ""
