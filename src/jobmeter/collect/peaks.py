"""Peak memory of each replica, separate from a later job with the same number.

Slurm reuses job numbers after it has lost its state, so a job is identified by its number and its start. Slurm 24.11
and later pass the start to tasks. Before that the steps tell: each step of a job runs once, and their numbers rise, so
a repeated step belongs to another job. The batch script comes before all steps.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from jobmeter.collect.base import Owner
from jobmeter.collect.discover.member import Member, MembershipSource, Process
from jobmeter.collect.process.stat import Key

_FIRST = -1
"""Order of the batch script, or of the shell of an interactive job, among the steps."""


@dataclass(slots=True)
class _Replica:
    highest: float = 0.0
    keys: frozenset[Key] = frozenset()
    steps: set[int] = field(default_factory=set)
    job_start: str = ""

    def is_other(self, members: Iterable[Member]) -> bool:
        """Return True if these new processes work for another job."""
        for member in members:
            if member.job_start and self.job_start:
                return member.job_start != self.job_start
            if self.steps and _order(member) <= max(self.steps):
                return True
        return False


class Peaks:
    """Remembers the highest value of each replica. For one thread."""

    def __init__(self) -> None:
        self._replicas: defaultdict[Owner, _Replica] = defaultdict(_Replica)

    def update(self, processes: Iterable[Process]) -> set[Owner]:
        """Update with the current processes. Reset and return replicas that now belong to another job."""
        found: defaultdict[Owner, list[Process]] = defaultdict(list)
        for process in processes:
            if process.member.source is MembershipSource.SLURM:
                found[process.member.owner].append(process)
        others: set[Owner] = set()
        for owner, some in found.items():
            keys = frozenset(process.stat.key for process in some)
            members = [process.member for process in some]
            if self._replicas[owner].keys.isdisjoint(keys) and self._replicas[owner].is_other(members):
                self._replicas[owner] = _Replica()
                others.add(owner)
            replica = self._replicas[owner]
            replica.keys = keys
            replica.steps.update(map(_order, members))
            replica.job_start = next((one.job_start for one in members if one.job_start), replica.job_start)
        return others

    def update_highest(self, owner: Owner, values: Iterable[float]) -> float:
        """Return the highest of these and of all earlier values."""
        replica = self._replicas[owner]
        replica.highest = max((*values, replica.highest))
        return replica.highest

    def forget(self, owner: Owner) -> None:
        """Drop a finished replica."""
        self._replicas.pop(owner, None)


def _order(member: Member) -> int:
    return int(member.step) if member.step.isdigit() else _FIRST
