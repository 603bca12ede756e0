"""Finds the processes of a job of ``jobmeter run``: by their ancestors, else by their tags."""

import os

from jobmeter.collect.discover.environ import read_environment
from jobmeter.collect.discover.member import Member
from jobmeter.collect.process.stat import ProcessStat


class Family:
    """See ``Classifier``. What a process started belongs to the same replica, even after its parent has ended."""

    def __init__(self, job: str, proc_root: str = "/proc") -> None:
        self._job = job
        self._proc = proc_root
        self._roots: dict[int, Member] = {}
        self._own = os.getpid()

    def add(self, pid: int, member: Member) -> None:
        """Name the first process of a replica."""
        self._roots[pid] = member

    def member(self, stat: ProcessStat, parent: Member | None) -> Member | None:
        """See ``Classifier.member``."""
        if stat.key.pid in self._roots:
            return self._roots[stat.key.pid]
        if parent is not None:
            return parent
        # An orphan of the job comes to this process as its child, and so is the server that this process may start.
        return self._by_tags(stat.key.pid) if stat.parent == self._own else None

    def _by_tags(self, pid: int) -> Member | None:
        tags = read_environment(self._proc, pid)
        if tags.get("JOBMETER_JOB_ID") != self._job:
            return None
        return next(
            (member for member in self._roots.values() if member.owner.replica == tags.get("JOBMETER_REPLICA")), None
        )
