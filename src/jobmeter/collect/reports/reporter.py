"""Find the replica of a process that reports numbers."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from jobmeter.collect.base import Labels, Owner
from jobmeter.collect.discover.environ import find_rank, read_environment
from jobmeter.collect.discover.member import Member
from jobmeter.collect.process.stat import Key, read_stat

_MOST = 4_096


class Reporter(NamedTuple):
    """Replica of a process that reports. ``labels`` contain the process's rank if the replica has several ranks.

    ``measured``: the replica's own run measures it and receives the numbers.
    """

    owner: Owner
    labels: Labels = ()
    measured: bool = False


class ReportedPoint(NamedTuple):
    """Values by name at a time in epoch milliseconds. ``labels`` are the sender's own, unchecked."""

    time_ms: int
    step: float | None
    values: Mapping[str, float]
    labels: Labels = ()


class Reporters:
    """Cache of the replicas of processes. For one thread at a time.

    A process that has ended stays in the cache, because its last message may arrive later.
    """

    def __init__(self, member_of: Callable[[int], Member | None], proc_root: str = "/proc") -> None:
        self._member_of = member_of
        self._proc = proc_root
        self._found: dict[int, tuple[Key, Reporter]] = {}

    def get(self, pid: int) -> Reporter | None:
        """Return the replica of a process; None for a process of no job."""
        stat = read_stat(self._proc, pid)
        cached = self._found.get(pid)
        if cached is not None and (stat is None or stat.key == cached[0]):
            return cached[1]
        member = self._member_of(pid)
        if member is None:
            return None
        if stat is None:
            return Reporter(member.owner, (), member.measured)
        number = member.process_rank
        if number is None:
            number = find_rank(read_environment(self._proc, pid))
        labels = () if number is None or number == member.rank else (("rank", str(number)),)
        found = Reporter(member.owner, labels, member.measured)
        while len(self._found) >= _MOST:
            del self._found[next(iter(self._found))]
        self._found[pid] = stat.key, found
        return found
