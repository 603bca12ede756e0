"""The table of processes of jobs, updated by each scan."""

from dataclasses import dataclass
from threading import Lock

from jobmeter.collect.discover.member import Classifier, Member, Source
from jobmeter.collect.process.stat import Key, ProcessStat, all_pids, read_stat

_SCANS = 2
"""A process is classified twice: at first it is a copy of its parent, with its parent's environment."""
_FORGET_AFTER = 32
"""Scans after which processes without a job are classified again (they may have been moved into a group)."""


@dataclass(frozen=True, slots=True)
class Process:
    """A process of a job."""

    stat: ProcessStat
    member: Member


class ProcessTable:
    """Finds the processes of jobs. ``refresh`` belongs to one thread; ``member_of`` may be called by any.

    A process without a job is not read again while it runs: a scan costs by the processes of jobs, not by those of the
    machine.
    """

    def __init__(self, classifier: Classifier, proc_root: str = "/proc") -> None:
        self._classifier = classifier
        self._proc = proc_root
        self._members: dict[Key, Member | None] = {}
        self._scans: dict[Key, int] = {}
        self._current: dict[int, Key] = {}
        self._strangers: set[int] = set()
        self._found: list[Process] = []
        self._turn = 0
        self._lock = Lock()

    def refresh(self) -> list[Process]:
        """The processes of jobs there are now, parents before their children."""
        pids = all_pids(self._proc)
        self._turn += 1
        if self._turn % _FORGET_AFTER == 0:
            self._strangers.clear()
        self._strangers.intersection_update(pids)
        read = (read_stat(self._proc, pid) for pid in pids if pid not in self._strangers)
        stats = sorted((stat for stat in read if stat), key=lambda stat: (stat.key.start, stat.key.pid))
        with self._lock:
            self._current = {stat.key.pid: stat.key for stat in stats}
            current = self._current.values()
            self._members = {key: self._members[key] for key in current if key in self._members}
            self._scans = {key: self._scans[key] for key in current if key in self._scans}
            found = [(stat, self._look(stat)) for stat in stats]
            if again := self._forget_members(self._classifier.displaced()):
                found = [(stat, self._look(stat) if stat.key in again else member) for stat, member in found]
            processes = [Process(stat, member) for stat, member in found if member]
            self._found = processes
        return processes

    def processes(self) -> list[Process]:
        """What the last ``refresh`` found. Safe from any thread."""
        with self._lock:
            return self._found

    def member_of(self, pid: int) -> Member | None:
        """The job that a process works for; a new process is classified now."""
        with self._lock:
            key = self._current.get(pid)
            if key is not None:
                return self._members.get(key)
            stat = None if pid in self._strangers else read_stat(self._proc, pid)
            return self._classifier.member(stat, self._parent(stat)) if stat else None

    def _forget_members(self, jobs: set[str]) -> set[Key]:
        """Forget the members of these jobs; they are to be classified anew."""
        keys = {key for key, member in self._members.items() if member and member.owner.job in jobs} if jobs else set()
        for key in keys:
            del self._members[key]
            self._scans.pop(key, None)
        return keys

    def _look(self, stat: ProcessStat) -> Member | None:
        scans = self._scans.get(stat.key, 0)
        if scans < _SCANS and not (scans and stat.ended):
            parent, before = self._parent(stat), self._members.get(stat.key)
            if parent is None and before is not None and before.source is Source.TAGS:
                parent = before  # its parent has ended since
            self._members[stat.key] = self._classifier.member(stat, parent)
            self._scans[stat.key] = scans = scans + 1
        member = self._members[stat.key]
        if member is None and scans >= _SCANS:
            self._strangers.add(stat.key.pid)
            del self._members[stat.key], self._scans[stat.key], self._current[stat.key.pid]
        return member

    def _parent(self, stat: ProcessStat) -> Member | None:
        key = self._current.get(stat.parent)
        return self._members.get(key) if key else None
