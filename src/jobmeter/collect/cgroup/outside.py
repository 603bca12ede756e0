"""Processes of a replica outside its control groups: containers, daemons, moved processes.

podman puts a container into its own group, and so do ``systemd-run --scope`` and ``cgexec``. The replica's groups do
not count such a process, so it is counted individually, unless another replica's group counts it.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from enum import Enum

from jobmeter.collect.base import Owner
from jobmeter.collect.cgroup.paths import cpu_controller, groups_of
from jobmeter.collect.discover.member import Process
from jobmeter.collect.process.stat import Key


class CgroupPlace(Enum):
    """Place of a process: in the groups of its replica, of no replica, or of another replica."""

    INSIDE = 0
    OUTSIDE = 1
    ELSEWHERE = 2


def places(processes: Iterable[Process], proc_root: str) -> dict[Key, CgroupPlace]:
    """Return the living processes outside, of replicas that have control groups."""
    processes = list(processes)
    own: defaultdict[Owner, set[tuple[str, str]]] = defaultdict(set)
    for process in processes:
        for groups in (process.member.groups, process.member.job_groups):
            if (controller := cpu_controller(groups)) is not None:
                own[process.member.owner].add((controller, groups[controller]))
    every = set().union(*own.values())
    controllers = {controller for controller, _ in every}
    found: dict[Key, CgroupPlace] = {}
    for process in processes:
        if process.member.owner not in own or process.stat.ended:
            continue
        now = groups_of(proc_root, process.stat.key.pid) or {}
        paths = [(controller, now[controller]) for controller in controllers if controller in now]
        if paths and not any(_is_below(path, own[process.member.owner]) for path in paths):
            elsewhere = any(_is_below(path, every) for path in paths)
            found[process.stat.key] = CgroupPlace.ELSEWHERE if elsewhere else CgroupPlace.OUTSIDE
    return found


def _is_below(path: tuple[str, str], paths: set[tuple[str, str]]) -> bool:
    """True for a path that equals one of these or lies below one."""
    controller, name = path
    while name and (controller, name) not in paths:
        name = name.rpartition("/")[0]
    return bool(name)


class InsideTime:
    """CPU time of replicas by their groups, or by their processes if these have used more than the groups counted.

    A process may leave the groups, use CPU, and even end between two scans. Then the counters of its waiting parent, or
    its own, grow by more than the groups do. Both kinds of counters are compared from the first scan on: usage before a
    process entered the groups does not count.
    """

    def __init__(self) -> None:
        self._ahead: dict[Owner, float] = {}
        """Lead in seconds of the processes over the groups at the first scan; negative if behind."""

    def resume(self, ahead: Mapping[Owner, float]) -> None:
        """Continue from the state saved by an earlier process of the agent."""
        self._ahead = dict(ahead)

    def seconds(self, owner: Owner, by_process: float, by_group: float) -> float:
        """Return the CPU time of a replica, without processes found outside."""
        return max(by_group, by_process - self._ahead.setdefault(owner, by_process - by_group))

    def saved(self, owner: Owner, by_process: float, by_group: float) -> float:
        """Return the state for ``resume`` after a restart, when all outside usage is counted by process."""
        return min(self._ahead[owner], by_process - by_group)

    def forget(self, owners: Iterable[Owner]) -> None:
        """Drop finished replicas."""
        for owner in owners:
            self._ahead.pop(owner, None)
