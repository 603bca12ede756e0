"""Find the processes of a job of ``jobmeter run``: by their ancestors, else by their tags."""

import os

from jobmeter.collect.discover.environ import read_environment
from jobmeter.collect.discover.member import Member
from jobmeter.collect.process.stat import ProcessStat, read_real_user, read_stat


class Family:
    """Classifier of a run. Descendants of a process belong to its replica, even after their parent has ended.

    Processes that another program started for the job (a service manager, a container's daemon) are found by the tags
    of this run, if they have the same user.
    """

    def __init__(self, job: str, attempt: int = 0, proc_root: str = "/proc") -> None:
        self._tags = {"JOBMETER_JOB_ID": job, "JOBMETER_ATTEMPT": str(attempt), "JOBMETER_MEASURED": "run"}
        self._proc = proc_root
        self._roots: dict[int, Member] = {}
        self._own = os.getpid()
        stat = read_stat(proc_root, self._own)
        self._began = stat.key.start if stat else 0
        self._user = os.getuid()

    def add(self, pid: int, member: Member) -> None:
        """Set the first process of a replica."""
        self._roots[pid] = member

    def find_member(self, stat: ProcessStat, parent: Member | None) -> Member | None:
        """Classify a process."""
        pid = stat.key.pid
        if pid in self._roots:
            return self._roots[pid]
        if parent is not None:
            return parent
        # In a job inside a job, the caller's own tags belong to processes that began earlier.
        if pid == self._own or stat.key.start < self._began:
            return None
        # An orphan of the job becomes a child of this process; so does a server that this process may start.
        if stat.parent != self._own and read_real_user(self._proc, pid) != self._user:
            return None
        return self._find_tagged_member(pid)

    def take_displaced(self) -> set[str]:
        """Return an empty set: memberships never change."""
        return set()

    def _find_tagged_member(self, pid: int) -> Member | None:
        tags = read_environment(self._proc, pid)
        if any(tags.get(name) != value for name, value in self._tags.items()):
            return None
        return next(
            (member for member in self._roots.values() if member.owner.replica == tags.get("JOBMETER_REPLICA")), None
        )
