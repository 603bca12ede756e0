"""The usage of a group, whichever version measures it."""

from collections.abc import Mapping

from jobmeter.collect.cgroup import v1, v2
from jobmeter.collect.cgroup.paths import UNIFIED, Hierarchies
from jobmeter.collect.cgroup.usage import Usage, lowest

_V1 = ("cpu", "cpuacct", "cpuset", "memory", "blkio")


class GroupReader:
    """Reads groups by their paths. ``groups`` name, by controller, those that hold the subject and nobody else."""

    def __init__(self, hierarchies: Hierarchies, sys_root: str = "/sys") -> None:
        self._hierarchies = hierarchies
        self._sys_root = sys_root

    def read(self, groups: Mapping[str, str]) -> Usage:
        """What the groups used; every part is None where no hierarchy has the group."""
        directories, tops = self._places(groups)
        if any(name in directories for name in _V1):
            return v1.read_usage(directories, tops)
        if UNIFIED in directories:
            return v2.read_usage(directories[UNIFIED], tops[UNIFIED], self._sys_root)
        return Usage()

    def limits(self, groups: Mapping[str, str]) -> tuple[float | None, float | None]:
        """Cores and bytes that a process in these groups may use; None where no group sets a limit.

        Unlike in ``read``, the groups may hold others as well.
        """
        directories, tops = self._places(groups)
        cpu = v1.cpu_limit(directories, tops)
        memory = v1.memory_limit(directories["memory"], tops["memory"]) if "memory" in directories else None
        if UNIFIED in directories:
            cpu = lowest(cpu, v2.cpu_limit(directories[UNIFIED], tops[UNIFIED]))
            memory = lowest(memory, v2.memory_limit(directories[UNIFIED], tops[UNIFIED]))
        return cpu, memory

    def _places(self, groups: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
        directories: dict[str, str] = {}
        tops: dict[str, str] = {}
        for controller, path in groups.items():
            directory, top = self._hierarchies.directory(controller, path), self._hierarchies.top(controller)
            if directory is not None and top is not None:
                directories[controller], tops[controller] = directory, top
        return directories, tops
