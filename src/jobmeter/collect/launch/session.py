"""One run: start the replicas, measure them until they have ended, leave nothing unsent that can be sent."""

import os
import resource
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from threading import Event, Thread

from jobmeter.collect.base import Owner, Place, Samples
from jobmeter.collect.cgroup.paths import Groups, Hierarchies, groups_of
from jobmeter.collect.cgroup.reader import GroupReader
from jobmeter.collect.cost import Cost
from jobmeter.collect.deliver import Delivery, Requester
from jobmeter.collect.discover.member import Member, Source
from jobmeter.collect.host.network import NetworkCollector
from jobmeter.collect.launch.children import Children, Exit
from jobmeter.collect.launch.family import Family
from jobmeter.collect.launch.figures import Figures
from jobmeter.collect.launch.groups import OwnGroups
from jobmeter.collect.launch.lease import RunLease
from jobmeter.collect.launch.logs import LogSender
from jobmeter.collect.launch.memory import OomWatch
from jobmeter.collect.launch.output import Output
from jobmeter.collect.launch.plan import Plan, environments
from jobmeter.collect.launch.records import JobRecorder, ReplicaLife, exit_status
from jobmeter.collect.loop import Loop
from jobmeter.collect.outbox import Outbox
from jobmeter.collect.process.count import Ended
from jobmeter.collect.process.stat import Key, read_io, read_stat
from jobmeter.collect.process.surroundings import allowance, machine_limits
from jobmeter.collect.registry import job_collectors
from jobmeter.collect.spool import Spool
from jobmeter.collect.worker import Worker
from jobmeter.errors import JobmeterError
from jobmeter.model.job import JobState
from jobmeter.model.time import Clock

_PROC = "/proc"
_RAMP_MS = (100, 300)
"""Early samples, so that a short life is more than its two ends."""
_ENDING = frozenset({1, 2, 3, 15})
"""The signals by which somebody stops a job: HUP, INT, QUIT, TERM."""
_KILLED = 128 + 9
_QUIET_SECONDS = 1.5
"""How long the end may wait for the server without a word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """How a run went. ``undelivered`` says why samples wait in the spool, empty when everything was acknowledged.

    ``lines`` of output were passed on to the server, ``lines_dropped`` were not; both None when none were to be taken.
    """

    status: int
    state: JobState
    reason: str
    start_ms: int
    end_ms: int
    figures: Figures
    undelivered: str
    lines: int | None = None
    lines_dropped: int | None = None


@dataclass(slots=True)
class _Root:
    """The first process of a replica, and the control groups that it has for itself."""

    life: ReplicaLife
    member: Member
    groups: Groups = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _LastLook:
    """What /proc said of a process that had ended, before it was waited for."""

    key: Key
    io: tuple[float, float] | None
    owner: Owner | None


class Session:
    """Runs one plan. To be made and used in the main thread, once.

    ``connect`` finds the server; it is called in a thread of its own, where it may start one. ``say`` and ``warn`` are
    told, in a line, what the user may and what the user should know while the command runs. ``patience`` is how many
    seconds the end may wait for the server. ``spool`` None keeps in memory what is not delivered.
    """

    def __init__(
        self,
        plan: Plan,
        place: Place,
        connect: Callable[[], Requester],
        clock: Clock,
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
        self._children = Children()
        self._hierarchies = Hierarchies()
        self._outbox = Outbox(spool)
        self._logs = LogSender(plan, place, self._outbox) if plan.logs else None
        self._output = Output(self._logs.take) if self._logs else None
        self._delivery = Delivery(self._outbox, lambda: self._connected(connect), clock)
        self._family = Family(plan.job)
        self._collectors = job_collectors(place, self._family, alone=True)
        self._network = NetworkCollector(place)
        self._figures = Figures()
        self._roots: dict[int, _Root] = {}
        self._looks: dict[int, _LastLook] = {}
        self._oom_kills: dict[str, float] = {}
        self._own_peak = 0.0

    def run(self, environment: Mapping[str, str], interval_ms: int) -> Result:
        """Start the command and stay until it has ended. Raises OSError when it cannot be executed."""
        oom = OomWatch(self._hierarchies, groups_of(_PROC, os.getpid()) or {})
        groups = OwnGroups(self._plan.job, self._plan.names, self._hierarchies)
        start = self._clock.now_ms()
        try:
            self._start(environment, groups, start)
            lease = RunLease(self._plan.job, self._place.project, self._plan.lease_owner, interval_ms, self._clock)
            self._delivery.renewal = lease
            recorder = JobRecorder(self._plan, self._place, self._limits(), start, lease.lease)
            loop = self._loop(interval_ms)
            loop.keep_records(recorder.started(self._lives))
            self._begin_output()
            end = self._measure(loop, interval_ms)
        finally:
            groups.remove()
        stopped = bool(_ENDING.intersection(self._children.signals))
        for life in self._lives:
            if life.exit_code == _KILLED:
                life.reason = oom.evidence(self._oom_kills.get(life.name, 0.0))
        self._collectors.nvidia.allocations.close(end)
        loop.keep_records(self._collectors.nvidia.allocations.records(end))
        records = recorder.ended(self._lives, end, stopped=stopped)
        loop.keep_records(records)
        undelivered = self._deliver()
        return Result(
            status=exit_status(self._lives),
            state=records.jobs[0].state or JobState.SUCCEEDED,
            reason=records.jobs[0].error or "",
            start_ms=start,
            end_ms=end,
            figures=self._figures,
            undelivered=undelivered,
            lines=self._logs.sent if self._logs else None,
            lines_dropped=self._lines_dropped() if self._logs else None,
        )

    @property
    def _lives(self) -> list[ReplicaLife]:
        return [root.life for root in self._roots.values()]

    def _start(self, environment: Mapping[str, str], groups: OwnGroups, start: int) -> None:
        self._own_peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0
        for rank, own in enumerate(environments(self._plan, environment)):
            name = self._plan.names[rank]
            output = self._output.open(name) if self._output else {}
            pid = self._children.start(
                self._plan.command, own, groups.entries(name), with_input=rank == 0, output=output
            )
            owner = Owner(self._plan.job, name, self._plan.attempt)
            entered = groups.entered(name, pid)
            member = Member(owner=owner, source=Source.TAGS, rank=rank, groups=entered)
            self._family.add(pid, member)
            self._roots[pid] = _Root(ReplicaLife(name, rank, start), member, entered)
            self._figures.begin(self._place.of_replica("cpu.time", owner), start)

    def _begin_output(self) -> None:
        if self._logs and self._output:
            self._children.resized = self._output.resize
            self._logs.start()
            self._output.start()

    def _finish_output(self) -> None:
        """Wait until the last output is where it belongs; somebody who wants an end gets it."""
        if self._logs and self._output:
            signals = len(self._children.signals)

            def wait() -> bool:
                self._children.wait(0.01, self._look)
                return len(self._children.signals) == signals

            self._output.finish(wait)
            self._logs.stop()

    def _lines_dropped(self) -> int:
        given_up = self._logs.dropped if self._logs else 0
        return given_up + self._outbox.dropped_lines + self._delivery.refused_lines

    def _limits(self) -> dict[str, float]:
        cpu, memory = allowance(_PROC, os.getpid(), GroupReader(self._hierarchies), machine_limits(_PROC))
        limits = {"cpu.limit": cpu, "memory.limit": memory}
        return {name: limit for name, limit in limits.items() if limit is not None}

    def _loop(self, interval_ms: int) -> Loop:
        timeout = max(0.8 * interval_ms / 1000, 0.5)
        workers = [
            Worker(planned.collector, planned.every_ms, self._clock, timeout) for planned in self._collectors.planned
        ]
        cost = Cost(self._place, self._plan.job)
        return Loop(
            workers,
            [self._collectors.nvidia.allocations],
            self._outbox,
            cost,
            self._clock,
            watch=self._watch,
            refused=lambda: self._delivery.refused,
        )

    def _measure(self, loop: Loop, interval_ms: int) -> int:
        """Sample and deliver in threads while the replicas run; the time of the last sample."""
        stop = Event()
        ticking = Thread(target=loop.run, args=(stop, interval_ms, _RAMP_MS), name="loop", daemon=True)
        ticking.start()
        self._delivery.start()
        while self._children.running:
            for ended in self._children.wait(1.0, self._look):
                self._ended(ended)
        self._finish_output()
        stop.set()
        ticking.join(timeout=10.0)
        return loop.tick(whatever=True)

    def _look(self, pid: int) -> None:
        stat = read_stat(_PROC, pid)
        if stat is None:
            return
        root = self._roots.get(pid)
        member = root.member if root else self._collectors.table.member_of(pid)
        self._looks[pid] = _LastLook(stat.key, read_io(_PROC, pid), member.owner if member else None)

    def _ended(self, ended: Exit) -> None:
        """Take in the final figures of a replica's first process, or of an orphan that came to us."""
        root = self._roots.get(ended.pid)
        if root:
            root.life.end = self._clock.now_ms()
            root.life.exit_code = ended.status
        look = self._looks.pop(ended.pid, None)
        if look is None or look.owner is None:
            return
        # Until its exec a process is a copy of this one: a peak that is not above ours says nothing of the command.
        peak = ended.memory_peak if ended.memory_peak > self._own_peak else 0.0
        groups = next((other.groups for other in self._roots.values() if other.member.owner == look.owner), {})
        self._collectors.jobs.ended(Ended(look.key, look.owner, ended.cpu_seconds, peak, look.io, groups))

    def _watch(self, samples: Samples) -> None:
        for series, _, value in samples:
            if series.metric == "memory.oom.kills":
                self._oom_kills[series.replica] = value
        # The machine's own traffic is for the summary alone: an agent on this node is the one that sends it.
        network = self._network.collect(samples[0].time_ms) if samples else []
        self._figures.watch([*samples, *network])

    def _connected(self, connect: Callable[[], Requester]) -> Requester:
        try:
            with self._children.unblocked():
                return connect()
        except JobmeterError as error:
            if self._warn:
                self._warn(f"no server ({error.message}): the command runs, its samples are kept")
            self._warn = None
            raise

    def _deliver(self) -> str:
        """Wait until everything is acknowledged, an attempt fails, patience ends or the user interrupts; then why."""
        begin = self._clock.monotonic()
        failed = self._delivery.hurry()
        signals = len(self._children.signals)
        told = False
        while self._outbox.size:
            waited = self._clock.monotonic() - begin
            if self._delivery.failed_attempts > failed:
                return self._delivery.last_error
            if waited > self._patience:
                return f"no answer within {self._patience:.0f} seconds"
            if waited > _QUIET_SECONDS and not told:
                told = True
                self._say("waiting for the server to take the last samples (Ctrl-C leaves them for the next run)")
            self._children.wait(0.05, lambda _pid: None)
            if len(self._children.signals) > signals:
                return "interrupted"
        self._delivery.stop()
        return ""
