"""Attach to a running process: measure it and its descendants until its end, without affecting them."""

import os
import select
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread

from jobmeter.collect import files
from jobmeter.collect.base import NodeIdentity, Owner, Samples
from jobmeter.collect.cgroup.paths import Hierarchies
from jobmeter.collect.clock import SampleClock
from jobmeter.collect.deliver import Delivery, Requester
from jobmeter.collect.discover.environ import read_environment
from jobmeter.collect.discover.member import Member, MembershipSource
from jobmeter.collect.host.network import NetworkCollector
from jobmeter.collect.incidents import IncidentWatch
from jobmeter.collect.launch.exits import ProcessEnd
from jobmeter.collect.launch.family import Family
from jobmeter.collect.launch.figures import RunFigures
from jobmeter.collect.launch.plan import LaunchPlan
from jobmeter.collect.launch.records import JobRecorder, ReplicaLife
from jobmeter.collect.launch.result import Result, describe_accounting
from jobmeter.collect.loop import Loop
from jobmeter.collect.measurement import Measurement, turn_seconds
from jobmeter.collect.outbox import Outbox
from jobmeter.collect.process.count import Ended
from jobmeter.collect.process.stat import find_user_name, read_io
from jobmeter.collect.process.surroundings import read_limits
from jobmeter.collect.registry import create_job_collectors
from jobmeter.collect.spool import Spool
from jobmeter.collect.text import escape_invalid
from jobmeter.errors import ConflictError, NotFoundError
from jobmeter.model.job import JobState

_PROC = "/proc"
_REPLICA = "worker-0"
_LEAVING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_TICKS = os.sysconf("SC_CLK_TCK")
_FLUSH_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class AttachTarget:
    """Process to attach to: its command line, user and start."""

    end: ProcessEnd
    command: tuple[str, ...]
    user: str
    start_ms: int


def find_target(pid: int, clock: SampleClock) -> AttachTarget:
    """Find the process with that number. Raises NotFoundError, or ConflictError if a run already measures it."""
    try:
        end = ProcessEnd(pid)
    except OSError as error:
        raise NotFoundError(f"process {pid} cannot be attached to: {error.strerror or error}", "pid") from error
    variables = read_environment(_PROC, pid)
    if variables.get("JOBMETER_MEASURED") == "run":
        end.close()
        job = variables.get("JOBMETER_JOB_ID", "")
        raise ConflictError(f"process {pid} belongs to job {job}, which `jobmeter run` already measures")
    line = files.read(f"{_PROC}/{pid}/cmdline") or files.read(f"{_PROC}/{pid}/comm") or b""
    words = tuple(escape_invalid(os.fsdecode(word)) for word in line.rstrip(b"\0\n").split(b"\0"))
    started = clock.convert_elapsed_ms(end.stat.key.start * 1000 // _TICKS)
    return AttachTarget(end, words, _owner(pid), min(started, clock.now_ms()))


class Attachment:
    """Measures one tree of processes. For the main thread, once.

    The job's state is not reported while the process runs: it is Running as long as samples come, and Unknown if this
    process dies. The exit status is reported if the kernel shows it to others than the parent.
    """

    def __init__(
        self,
        plan: LaunchPlan,
        target: AttachTarget,
        place: NodeIdentity,
        connect: Callable[[], Requester],
        clock: SampleClock,
        *,
        spool: Spool | None,
    ) -> None:
        self._plan = plan
        self._target = target
        self._place = place
        self._clock = clock
        self._delivery = Delivery(Outbox(spool), connect, clock)
        self._owner = Owner(plan.job, _REPLICA, plan.attempt)
        family = Family(plan.job)
        family.add(target.end.stat.key.pid, Member(owner=self._owner, source=MembershipSource.TAGS, rank=0))
        self._collectors = create_job_collectors(place, family, clock, alone=True)
        self._measurement = Measurement(place, self._collectors, self._delivery, clock, plan.job)
        self._network = NetworkCollector(place)
        self._figures = RunFigures()
        self._incidents = IncidentWatch()
        self._life = ReplicaLife(_REPLICA, 0, target.start_ms)
        self._detached = False

    def run(self, interval_ms: int) -> Result:
        """Measure until the process ends, or until a signal ends the measurement."""
        start = self._clock.now_ms()
        limits = read_limits(_PROC, self._target.end.stat.key.pid, Hierarchies())
        recorder = JobRecorder(self._plan, self._place, limits, self._target.start_ms)
        loop = self._measurement.make_loop(turn_seconds(interval_ms), [self._incidents], [self._watch])
        loop.spool_records(recorder.record_attach(self._life, start, self._target.end.stat.key.pid))
        self._measurement.programs.open(self._plan.programs, os.getpid())
        stop = Event()
        ticking = Thread(target=loop.run, args=(stop, interval_ms), name="loop", daemon=True)
        with _watch_signals() as signals:
            ticking.start()
            self._delivery.start()
            poller = self._measurement.make_poller(interval_ms)
            poller.start()
            self._wait(signals)
            poller.stop()
            self._measurement.programs.close()
            stop.set()
            ticking.join(timeout=10.0)
            last = loop.tick(force=True) or self._clock.now_ms()
            return self._finish(loop, recorder, start, last)

    def _wait(self, signals: int) -> None:
        """Wait for the end of the process, and note its last figures, or wait for a signal."""
        end = self._target.end
        poll = select.poll()
        poll.register(end.descriptor, select.POLLIN)
        poll.register(signals, select.POLLIN)
        ready = {descriptor for descriptor, _ in poll.poll()}
        self._detached = end.descriptor not in ready
        if self._detached:
            return
        stat = end.read_final_stat()
        moved = read_io(_PROC, end.stat.key.pid)
        if stat is not None:
            waited = stat.waited_ticks / _TICKS
            self._collectors.jobs.note_end(
                Ended(stat.key, self._owner, stat.cpu_ticks / _TICKS, 0.0, moved, waited_seconds=waited)
            )
        self._life.end = max(self._clock.now_ms(), self._life.start)
        self._life.exit_code = end.read_status()

    def _finish(self, loop: Loop, recorder: JobRecorder, start: int, last: int) -> Result:
        life = self._life
        remaining = self._measurement.find_living()
        self._measurement.close_allocations(loop, last)
        if self._detached:
            records = recorder.record_detach(life, last, self._target.end.stat.key.pid)
        elif life.exit_code is None:
            records = recorder.end_unknown(life, last)
        else:
            records = recorder.record_end([life], last, stopped=False)
        loop.spool_records(records)
        delivered = self._delivery.flush(_FLUSH_SECONDS)
        self._delivery.stop()
        self._target.end.close()
        return Result(
            status=life.exit_code,
            state=JobState.RUNNING if self._detached else records.jobs[0].state or JobState.UNKNOWN,
            reason="" if self._detached else records.jobs[0].error or "",
            start_ms=start,
            end_ms=last,
            figures=self._figures,
            undelivered="" if delivered else self._delivery.last_error or "no answer",
            set_aside=self._delivery.set_aside,
            lost=self._delivery.lost,
            counted_by=describe_accounting("process", self._collectors.jobs),
            remaining=frozenset() if self._detached else remaining,
        )

    def _watch(self, samples: Samples) -> None:
        self._incidents.watch(samples)
        if samples:
            self._figures.watch([*samples, *self._network.collect(samples[-1].time_ms)])


@contextmanager
def _watch_signals() -> Iterator[int]:
    """Yield a descriptor that is readable once a signal is to end this process. Ignored signals stay ignored."""
    reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    taken = [number for number in _LEAVING if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, lambda _number, _frame: None) for number in taken}
    woken = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    try:
        yield reader
    finally:
        signal.set_wakeup_fd(woken)
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(reader)
        os.close(writer)


def _owner(pid: int) -> str:
    try:
        return find_user_name(Path(_PROC, str(pid)).stat().st_uid)
    except OSError:
        return ""
