"""Locations of control groups: the mounted hierarchies, the groups of a process, and processes outside of groups."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from enum import Enum
from pathlib import PurePosixPath

from jobmeter.collect import files
from jobmeter.collect.base import Owner
from jobmeter.collect.discover.member import Process
from jobmeter.collect.process.stat import Key

UNIFIED = ""
"""Name of the version 2 hierarchy. Hierarchies of version 1 have the names of their controllers."""

Groups = dict[str, str]
"""Path of a process's group in each hierarchy: by controller, ``UNIFIED`` for version 2."""


def read_groups(proc_root: str, pid: int) -> Groups | None:
    """Return the groups of a process without systemd's own hierarchy; None if the process has ended."""
    text = files.read(f"{proc_root}/{pid}/cgroup")
    return None if text is None else parse_groups(text.decode(errors="replace"))


def parse_groups(text: str) -> Groups:
    """Return the groups in a /proc/PID/cgroup file."""
    groups: Groups = {}
    for line in text.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            groups[UNIFIED] = path
        else:
            groups.update({name: path for name in controllers.split(",") if name and not name.startswith("name=")})
    return groups


def find_cpu_controller(groups: Mapping[str, str]) -> str | None:
    """Return the controller that counts CPU time; None if these groups count none."""
    if "cpuacct" in groups:
        return "cpuacct"
    # Beside version 1, a group of version 2 counts only pressure.
    return UNIFIED if set(groups) == {UNIFIED} else None


class Hierarchies:
    """Hierarchies of this machine by controller. ``prefix`` precedes every mount point, for recorded trees."""

    def __init__(self, proc_root: str = "/proc", prefix: str = "") -> None:
        text = files.read(f"{proc_root}/self/mountinfo") or b""
        self._mounts = _hierarchies(text)
        self._prefix = prefix

    def find_directory(self, controller: str, path: str) -> str | None:
        """Return the folder of a group; None if the hierarchy is not mounted or the group lies outside it."""
        mount = self._mounts.get(controller)
        if mount is None:
            return None
        if mount.root != "/":
            if path != mount.root and not path.startswith(mount.root + "/"):
                return None
            path = path[len(mount.root) :]
        if ".." in PurePosixPath(path).parts:
            return None
        return f"{self._prefix}{mount.point}{path}".rstrip("/")

    def find_top(self, controller: str) -> str | None:
        """Return the top folder of a mounted hierarchy; None if it is not mounted."""
        mount = self._mounts.get(controller)
        return None if mount is None else f"{self._prefix}{mount.point}"


def _hierarchies(mountinfo: bytes) -> dict[str, files.Mount]:
    found: dict[str, files.Mount] = {}
    for mount in files.parse_mounts(mountinfo):
        if mount.kind == "cgroup2":
            found.setdefault(UNIFIED, mount)
        elif mount.kind == "cgroup":
            for option in mount.options.split(","):
                if not option.startswith("name=") and option not in {"rw", "ro"}:
                    found.setdefault(option, mount)
    return found


class CgroupPlace(Enum):
    """Place of a process: in the groups of its replica, of no replica, or of another replica."""

    INSIDE = 0
    OUTSIDE = 1
    ELSEWHERE = 2


def find_places(processes: Iterable[Process], proc_root: str) -> dict[Key, CgroupPlace]:
    """Return the places of living processes outside of their groups, for replicas that have groups."""
    processes = list(processes)
    own: defaultdict[Owner, set[tuple[str, str]]] = defaultdict(set)
    for process in processes:
        for groups in (process.member.groups, process.member.job_groups):
            if (controller := find_cpu_controller(groups)) is not None:
                own[process.member.owner].add((controller, groups[controller]))
    every = set().union(*own.values())
    controllers = {controller for controller, _ in every}
    found: dict[Key, CgroupPlace] = {}
    for process in processes:
        if process.member.owner not in own or process.stat.ended:
            continue
        now = read_groups(proc_root, process.stat.key.pid) or {}
        paths = [(controller, now[controller]) for controller in controllers if controller in now]
        if paths and not any(_is_below(path, own[process.member.owner]) for path in paths):
            elsewhere = any(_is_below(path, every) for path in paths)
            found[process.stat.key] = CgroupPlace.ELSEWHERE if elsewhere else CgroupPlace.OUTSIDE
    return found


def _is_below(path: tuple[str, str], paths: set[tuple[str, str]]) -> bool:
    """Return True for a path that equals one of these or lies below one."""
    controller, name = path
    while name and (controller, name) not in paths:
        name = name.rpartition("/")[0]
    return bool(name)


class InsideTime:
    """CPU time of replicas by their groups, or by their processes if these have used more than the groups counted.

    A process may leave the groups, use CPU, and end between two scans. Then the counters of its parent, or its own,
    grow by more than the groups do. The comparison begins at the first scan: usage before a process entered the groups
    does not count.
    """

    def __init__(self) -> None:
        self._ahead: dict[Owner, float] = {}
        """Lead in seconds of the processes over the groups at the first scan; negative if behind."""

    def resume(self, ahead: Mapping[Owner, float]) -> None:
        """Continue from the state saved by an earlier process of the agent."""
        self._ahead = dict(ahead)

    def count_seconds(self, owner: Owner, by_process: float, by_group: float) -> float:
        """Return the CPU time of a replica, without that of processes found outside."""
        return max(by_group, by_process - self._ahead.setdefault(owner, by_process - by_group))

    def save_state(self, owner: Owner, by_process: float, by_group: float) -> float:
        """Return the state for ``resume`` after a restart, at which all outside usage is counted by process."""
        return min(self._ahead[owner], by_process - by_group)

    def forget(self, owners: Iterable[Owner]) -> None:
        """Drop finished replicas."""
        for owner in owners:
            self._ahead.pop(owner, None)
