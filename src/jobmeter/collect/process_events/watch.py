"""Follow the processes of jobs by the kernel's events, so that a process that ends between two scans is counted.

A process is read when it begins to run a program: then its environment, command line and control group identify its
job. Its children belong to its job. Its last figures come with its end. The thread has a CPU budget. If programs start
too fast for the budget, it reads the processes that still run, and counts the others.
"""

import logging
import os
import select
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from threading import Event, Lock, Thread
from typing import TypeVar

from jobmeter.collect.budget import MeasuringBudget
from jobmeter.collect.clock import read_elapsed_ns
from jobmeter.collect.discover.member import Member, Process
from jobmeter.collect.process.stat import ProcessStat
from jobmeter.collect.process_events.connector import EXEC, EXIT, FORK, Connector
from jobmeter.collect.process_events.taskstats import TaskExit, TaskStats

SHARE, BURST_SECONDS = 0.005, 0.02
"""Share of one core for events over time, and the CPU time that may be used at once."""
_LOOK_SECONDS = 0.002
"""CPU time in seconds for reading processes after each reading of events."""
_MOST_READINGS = 64
"""Consecutive readings of events before they are processed."""
MOST_GONE = 500
"""Most processes of jobs that end between two scans and are counted individually. The others count through parents."""
_MOST_CHILDREN = 256
_WAIT_MS = 500
_MANY, _TOGETHER_SECONDS = 8, 0.05
"""Number of events from which the thread waits that many seconds for more, because each reading is expensive."""
_log = logging.getLogger(__name__)

T = TypeVar("T")


Look = Callable[[int, Member | None], Process | None]
"""Function that returns a process by its number and its parent's membership; None for a process of no job.

Raises ProcessLookupError or FileNotFoundError for a process that is gone.
"""


@dataclass(frozen=True, slots=True)
class Gone:
    """Process of a job that has ended. ``stat`` is its last reading, absent if it was never read.

    ``final`` are its last figures, absent if the kernel does not send them. ``waited_seconds`` is the CPU time of its
    other children. ``ended`` is the time of its end, in seconds since the machine started.
    """

    pid: int
    parent: int
    member: Member
    stat: ProcessStat | None
    final: TaskExit | None
    waited_seconds: float
    ended: float


@dataclass(slots=True)
class _Life:
    """Known process. ``inherited`` is the membership of its parent at the fork, absent if the fork was not seen.

    ``waited_seconds`` is the CPU time of children that it had waited for at the last scan, or that had ended before its
    first reading.
    """

    member: Member
    parent: int
    stat: ProcessStat | None
    turn: int
    inherited: Member | None = None
    waited_seconds: float = 0.0


@dataclass(slots=True)
class _Unseen:
    """Process that began to run a program, after scan ``turn``, and was not read since.

    ``children`` are its living descendants forked since, ``ended_seconds`` is the CPU time of the ended ones.
    """

    children: set[int] = field(default_factory=set)
    ended_seconds: float = 0.0
    turn: int = 0


class ProcessWatch:
    """Reads events in its own thread. Every method but ``start`` and ``stop`` is thread-safe."""

    def __init__(self) -> None:
        self._look: Look = lambda _pid, _parent: None
        self._begun: Callable[[Process], None] = lambda _process: None
        self._lock = Lock()
        self._reading = Lock()
        self._ticks = os.sysconf("SC_CLK_TCK")
        self._lives: dict[int, _Life] = {}
        self._unseen: dict[int, _Unseen] = {}
        self._roots: dict[int, int] = {}
        """Unread ancestor of each of those children."""
        self._found: set[int] = set()
        self._gone: list[Gone] = []
        self._turn = 0
        self.missed = 0
        """Programs that ended before they were read, since the start."""
        self._stop = Event()
        self._connector: Connector | None = None
        self._stats: TaskStats | None = None
        self._budget = MeasuringBudget(SHARE, BURST_SECONDS)
        self.problem = "it was not started"
        """Reason why the kernel's events are not read; empty if they are."""
        self.problem_of_ends = "it was not started"
        """Reason why last figures are not read; empty if they are."""

    def start(self, look: Look, begun: Callable[[Process], None]) -> None:
        """Begin to read events on a thread, if the kernel permits it. For the arguments see ``open``."""
        if self.open(look, begun):
            Thread(target=self._run, name="process events", daemon=True).start()

    def open(
        self,
        look: Look,
        begun: Callable[[Process], None],
        subscribe: Callable[[bool], Connector] = lambda ends: Connector(ends=ends),
        account: Callable[[], TaskStats] = TaskStats,
    ) -> bool:
        """Subscribe to the kernel's events. False if the kernel does not permit it.

        ``begun`` gets each process of a job that ``look`` finds. ``subscribe``, with a flag for ends, and ``account``
        open the kernel's sources.
        """
        self._look, self._begun = look, begun
        try:
            self._stats = account()
            self.problem_of_ends = ""
        except OSError as error:
            self.problem_of_ends = error.strerror or str(error)
            _log.info("the last figures of processes are not read (%s)", self.problem_of_ends)
        try:
            self._connector = subscribe(self._stats is None)
            self.problem = ""
        except OSError as error:
            self.problem = error.strerror or str(error)
            _log.info("short processes are not found: the kernel does not report them to this user (%s)", self.problem)
            if self._stats:
                self._stats.close()
            return False
        return True

    def stop(self) -> None:
        """Stop reading events."""
        self._stop.set()

    @property
    def active(self) -> bool:
        """True while events are read."""
        return not self.problem

    @property
    def overruns(self) -> int:
        """Number of times that events were lost because too many waited."""
        return (self._connector.overruns if self._connector else 0) + (self._stats.overruns if self._stats else 0)

    @property
    def waiting(self) -> int:
        """Number of processes that have begun to run a program and were not read since."""
        return len(self._unseen)

    def begin_scan(self) -> None:
        """Note the begin of a scan, before the processes are listed."""
        with self._lock:
            self._turn += 1

    def take_changed(self) -> set[int]:
        """Return the processes that run another program than at the last call, or were found since."""
        with self._lock:
            changed = self._found | self._unseen.keys()
            self._found = set()
        return changed

    def find_inherited(self, pid: int) -> Member | None:
        """Return the membership of a process's parent, which may have ended since; None without one."""
        life = self._lives.get(pid)
        return life.inherited if life else None

    def forget(self, jobs: set[str]) -> None:
        """Drop the processes of these jobs, so that they are classified again."""
        with self._lock:
            self._lives = {pid: life for pid, life in self._lives.items() if life.member.owner.job not in jobs}

    def compare_scan(self, pids: Iterable[int], processes: Iterable[Process]) -> list[Gone]:
        """Compare with the processes of a scan, and return the processes of jobs that have ended.

        Processes that ended before the scan read ``processes`` are included: their parents had taken over their usage
        by then, so it would count twice.
        """
        if self.active:
            self._read()
        with self._lock:
            gone, self._gone = self._gone, []
            ended = {one.pid for one in gone}
            listed = set(pids)
            for pid in listed.intersection(self._unseen):
                if self._unseen[pid].turn < self._turn:
                    self._take(pid)
            fresh: dict[int, _Life] = {}
            for process in processes:
                pid, before = process.stat.key.pid, self._lives.get(process.stat.key.pid)
                inherited = before.inherited if before else None
                waited = process.stat.waited_ticks / self._ticks
                fresh[pid] = _Life(process.member, process.stat.parent, process.stat, self._turn, inherited, waited)
            # A process that began while the list was made need not be in it.
            late = {pid: life for pid, life in self._lives.items() if life.turn == self._turn and pid not in fresh}
            self._lives = {pid: life for pid, life in fresh.items() if pid not in ended} | late
            if not self.active:
                self._lives.clear()
        return gone

    def _run(self) -> None:
        poll = select.poll()
        for source in (self._connector, self._stats):
            if source is not None:
                poll.register(source.fileno(), select.POLLIN)
        pause = 0.0
        try:
            while not self._stop.wait(pause):
                self._budget.begin()
                poll.poll(_WAIT_MS)
                many = self.turn() > _MANY
                pause = self._budget.end()
                if many or pause:
                    pause = max(pause, _TOGETHER_SECONDS)
        except OSError as error:
            self.problem = error.strerror or str(error)
            _log.warning("short processes are no longer found: %s", self.problem)
        finally:
            for source in (self._connector, self._stats):
                if source is not None:
                    source.close()

    def turn(self) -> int:
        """Read the waiting events, then processes that have begun to run a program. Return the number of events."""
        events = self._read()
        self._look_at_some()
        return events

    def _read(self) -> int:
        """Read the waiting events. Returns their number."""
        with self._reading:
            # Ends first: a process that begins before it ends is then among the changes read afterwards.
            finals = _read_all(self._stats.read_ends, _MOST_READINGS) if self._stats else []
            changes = _read_all(self._connector.read_changes, 4 * _MOST_READINGS) if self._connector else []
            with self._lock:
                for what, _, first, _, second in changes:
                    if what == FORK:
                        self._fork(first, second)
                    elif what == EXEC:
                        self._unseen.setdefault(first, _Unseen()).turn = self._turn
                    elif what == EXIT:
                        self._end(first, None)
                for final in finals:
                    self._end(final.pid, final)
        return len(changes) + len(finals)

    def _look_at_some(self) -> None:
        """Read the oldest process that has begun to run a program, and more as time allows.

        Processes whose parents' job is unknown come first.
        """
        enough = max(self._budget.left - _LOOK_SECONDS, 0.0)
        with self._lock:
            due = sorted(self._unseen, key=lambda pid: pid in self._lives)
        for turn, pid in enumerate(due):
            if turn and self._budget.left <= enough:
                return
            with self._lock:
                if pid not in self._unseen:
                    continue  # a scan has found it meanwhile
                unseen, life = self._take(pid), self._lives.get(pid)
            inherited = life.inherited if life else None
            try:
                begun = self._look(pid, inherited)
            except (ProcessLookupError, FileNotFoundError):
                self.missed += life is None
                continue
            with self._lock:
                if begun is None:
                    self._lives.pop(pid, None)
                    continue
                waited = life.waited_seconds if life else unseen.ended_seconds
                parent, stat = begun.stat.parent, begun.stat
                self._lives[pid] = _Life(begun.member, parent, stat, self._turn, inherited, waited)
                self._found.add(pid)
                for child in unseen.children if life is None else ():
                    self._lives.setdefault(child, _Life(begun.member, pid, None, self._turn, begun.member))
            self._begun(begun)

    def _fork(self, parent: int, child: int) -> None:
        life = self._lives.get(parent)
        if life is not None:
            self._lives[child] = _Life(life.member, parent, None, self._turn, life.member)
        elif child in self._lives:
            del self._lives[child]
        root = parent if parent in self._unseen else self._roots.get(parent)
        if root is not None and len(self._unseen[root].children) < _MOST_CHILDREN:
            self._roots[child] = root
            self._unseen[root].children.add(child)

    def _take(self, pid: int) -> _Unseen:
        """Remove a process from the unread ones."""
        unseen = self._unseen.pop(pid)
        for child in unseen.children:
            del self._roots[child]
        return unseen

    def _end(self, pid: int, final: TaskExit | None) -> None:
        life = self._lives.pop(pid, None)
        if (root := self._roots.pop(pid, None)) is not None:
            self._unseen[root].children.discard(pid)
            self._unseen[root].ended_seconds += final.cpu_seconds if final else 0.0
        if pid in self._unseen:
            self._take(pid)
            self.missed += life is None
        if life is not None and len(self._gone) >= MOST_GONE:
            self.missed += life.parent not in self._lives
        elif life is not None:
            now = read_elapsed_ns() / 1e9
            self._gone.append(Gone(pid, life.parent, life.member, life.stat, final, life.waited_seconds, now))


def _read_all(read: Callable[[], Iterable[T]], most: int) -> list[T]:
    """Return all waiting entries, up to ``most`` readings."""
    found: list[T] = []
    for _ in range(most):
        before = len(found)
        found += read()
        if len(found) == before:
            break
    return found
