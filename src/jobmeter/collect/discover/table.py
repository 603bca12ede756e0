"""Table of the processes of jobs, updated by each scan."""

import os
from dataclasses import dataclass
from threading import Lock

from jobmeter.collect.discover.member import Classifier, Member, MembershipSource, Process
from jobmeter.collect.process.open_files import OpenFiles
from jobmeter.collect.process.stat import Key, ProcessStat, list_pids, parse_stat, read_stat
from jobmeter.collect.process_events.forks import ForkCount
from jobmeter.collect.process_events.taskstats import TaskExit
from jobmeter.collect.process_events.watch import Gone, ProcessWatch

_SCANS = 2
"""Scans that classify a process. At first it is a copy of its parent, with its parent's environment."""
_FORGET_AFTER = 32
"""Scans after which processes without a job are classified again, because they may have entered a group."""


@dataclass(frozen=True, slots=True)
class Left:
    """Process of a job that has ended since the previous scan. ``final`` are its last figures, if known.

    ``waited_seconds`` is the CPU time of children that are not counted individually.
    """

    process: Process
    final: TaskExit | None
    waited_seconds: float


class ProcessTable:
    """Finds the processes of jobs. ``refresh`` is for one thread; ``find_member`` and ``look`` are for any.

    A process without a job is not read again while it runs the same program, so that the cost of a scan depends on the
    processes of jobs alone. With a ``watch``, processes that begin and end between two scans are found too.
    """

    def __init__(self, classifier: Classifier, proc_root: str = "/proc", watch: ProcessWatch | None = None) -> None:
        self.left: list[Left] = []
        """Processes of jobs that ended between the last two ``refresh`` calls."""
        self.missed = 0
        """Processes that began and ended between two scans without being read, so that their jobs are unknown."""
        self._classifier = classifier
        self._proc = proc_root
        self._stats = OpenFiles(proc_root, "stat", parse_stat)
        self._watch = watch or ProcessWatch()
        self._forks = ForkCount(proc_root)
        self._reported = self._watch.missed, self._watch.overruns
        self._ticks = os.sysconf("SC_CLK_TCK")
        self._members: dict[Key, Member | None] = {}
        self._scans: dict[Key, int] = {}
        self._current: dict[int, Key] = {}
        self._strangers: set[int] = set()
        self._found: list[Process] = []
        self._turn = 0
        self._lock = Lock()

    def refresh(self) -> list[Process]:
        """Scan for the current processes of jobs. Parents come before their children."""
        self._forks.begin_scan()
        self._watch.begin_scan()
        pids = list_pids(self._proc)
        self._turn += 1
        turn = self._turn % _FORGET_AFTER  # a part at each scan, so that no scan takes long
        self._strangers = {pid for pid in self._strangers.intersection(pids) if pid % _FORGET_AFTER != turn}
        changed = self._watch.take_changed()
        self._strangers -= changed
        due = [pid for pid in pids if pid not in self._strangers]
        self._stats.close_others(due)
        read = map(self._stats.read, due)
        stats = sorted((stat for stat in read if stat), key=lambda stat: (stat.key.start, stat.key.pid))
        with self._lock:
            self._current = {stat.key.pid: stat.key for stat in stats}
            current = self._current.values()
            self._members = {key: self._members[key] for key in current if key in self._members}
            self._scans = {key: self._scans[key] for key in current if key in self._scans and key.pid not in changed}
            found = [(stat, self._look(stat)) for stat in stats]
            if again := self._forget_members(self._classifier.take_displaced()):
                found = [(stat, self._look(stat) if stat.key in again else member) for stat, member in found]
            processes = [Process(stat, member) for stat, member in found if member]
            living = [process for process in processes if not process.stat.ended]
            self.left = [self._make_left(gone) for gone in self._watch.compare_scan(pids, living)]
            self._found = [*processes, *(left.process for left in self.left)]
        self._count_missed(self._forks.count_unseen(pids))
        return processes

    def list_processes(self) -> list[Process]:
        """Return the processes of the last ``refresh``, including those that ended before it. Thread-safe."""
        with self._lock:
            return self._found

    def list_members(self) -> list[Member]:
        """Return the memberships of the processes of the last ``refresh``. Thread-safe."""
        return [process.member for process in self.list_processes()]

    def list_ended(self) -> list[Process]:
        """Return the processes that ended between the last two ``refresh`` calls, and zombies. Thread-safe."""
        return [process for process in self.list_processes() if process.stat.ended]

    def look(self, pid: int, parent: Member | None) -> Process | None:
        """Classify a process that has begun to run a program.

        Raises ProcessLookupError or FileNotFoundError if it has ended meanwhile.
        """
        with self._lock:
            # Most processes belong to no job, and nothing else is read of them.
            member = self._classifier.find_member(ProcessStat(Key(pid, 0), 0, "R", 0, 0, 0), parent)
        if member is None:
            os.stat(f"{self._proc}/{pid}")  # noqa: PTH116 - what is gone has no group and no environment
            return None
        stat = read_stat(self._proc, pid)
        if stat is None:
            raise ProcessLookupError(pid)
        return Process(stat, member)

    def find_member(self, pid: int) -> Member | None:
        """Return the membership of a process; a new process is classified now."""
        with self._lock:
            key = self._current.get(pid)
            if key is not None:
                return self._members.get(key)
            stat = None if pid in self._strangers else read_stat(self._proc, pid)
            return self._classifier.find_member(stat, self._find_parent(stat)) if stat else None

    def _forget_members(self, jobs: set[str]) -> set[Key]:
        """Remove the members of these jobs, so that they are classified again."""
        keys = {key for key, member in self._members.items() if member and member.owner.job in jobs} if jobs else set()
        for key in keys:
            del self._members[key]
            self._scans.pop(key, None)
        if keys:
            self._watch.forget(jobs)
        return keys

    def _look(self, stat: ProcessStat) -> Member | None:
        scans = self._scans.get(stat.key, 0)
        if scans < _SCANS and not (scans and stat.ended):
            parent = self._find_parent(stat) or self._watch.find_inherited(stat.key.pid)
            before = self._members.get(stat.key)
            if parent is None and before is not None and before.source is MembershipSource.TAGS:
                parent = before  # its parent has ended since
            self._members[stat.key] = self._classifier.find_member(stat, parent)
            self._scans[stat.key] = scans = scans + 1
        member = self._members[stat.key]
        if member is None and scans >= _SCANS:
            self._strangers.add(stat.key.pid)
            del self._members[stat.key], self._scans[stat.key], self._current[stat.key.pid]
        return member

    def _make_left(self, gone: Gone) -> Left:
        stat = gone.stat
        if stat is None:
            lived = gone.final.lived_seconds if gone.final else 0.0
            stat = ProcessStat(Key(gone.pid, int((gone.ended - lived) * self._ticks)), gone.parent, "X", 0, 0, 0)
        return Left(Process(stat._replace(state="X", memory=0), gone.member), gone.final, gone.waited_seconds)

    @property
    def problems(self) -> tuple[str, str]:
        """Reasons why the kernel's events, and last figures, of processes are not read; empty if they are."""
        return self._watch.problem, self._watch.problem_of_ends

    def _count_missed(self, by_forks: int) -> None:
        missed, overruns = self._watch.missed, self._watch.overruns
        complete = self._watch.active and overruns == self._reported[1]
        self.missed += missed - self._reported[0] if complete else by_forks
        self._reported = missed, overruns

    def _find_parent(self, stat: ProcessStat) -> Member | None:
        key = self._current.get(stat.parent)
        return self._members.get(key) if key else None
