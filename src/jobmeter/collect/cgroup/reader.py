"""Usage of a control group of either version."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import count

from jobmeter.collect.cgroup import v1, v2
from jobmeter.collect.cgroup.paths import UNIFIED, Hierarchies
from jobmeter.collect.cgroup.usage import CgroupUsage, Quota, climb, find_lowest

_V1 = ("cpu", "cpuacct", "cpuset", "memory", "blkio")


class GroupReader:
    """Reads groups by path. ``groups`` maps controllers to groups that contain only the subject. Thread-safe."""

    def __init__(self, hierarchies: Hierarchies, sys_root: str = "/sys") -> None:
        self._hierarchies = hierarchies
        self._sys_root = sys_root
        self._turns = count(1)

    def read(self, groups: Mapping[str, str]) -> CgroupUsage:
        """Read the usage of the groups; fields are None if no hierarchy has the group."""
        began = next(self._turns)
        usage = self._read(groups)
        return replace(usage, began=began, ended=next(self._turns))

    def _read(self, groups: Mapping[str, str]) -> CgroupUsage:
        directories, tops = self._find_places(groups)
        if any(name in directories for name in _V1):
            usage = v1.read_usage(directories, tops, self._sys_root)
            # Only version 2 counts pressure, without any controller, so it works beside version 1 too.
            return replace(usage, stalled=v2.read_stalled(directories[UNIFIED])) if UNIFIED in directories else usage
        if UNIFIED in directories:
            return v2.read_usage(directories[UNIFIED], tops[UNIFIED], self._sys_root)
        return CgroupUsage()

    def read_limits(self, groups: Mapping[str, str]) -> tuple[float | None, float | None]:
        """Return the cores and bytes that a process in these groups may use; None without a limit.

        Groups may be shared.
        """
        directories, tops = self._find_places(groups)
        cpu = v1.read_cpu_limit(directories, tops)
        memory = v1.read_memory_limit(directories["memory"], tops["memory"]) if "memory" in directories else None
        if UNIFIED in directories:
            cpu = find_lowest(cpu, v2.read_cpu_limit(directories[UNIFIED], tops[UNIFIED]))
            memory = find_lowest(memory, v2.read_memory_limit(directories[UNIFIED], tops[UNIFIED]))
        return cpu, memory

    def find_quota(self, groups: Mapping[str, str]) -> Quota | None:
        """Return the nearest group with a CPU quota on the way up; None without one. Groups may be shared."""
        directories, tops = self._find_places(groups)
        for controller, version in (("cpu", v1), (UNIFIED, v2)):
            if controller not in directories:
                continue
            for folder in climb(directories[controller], tops[controller]):
                seconds, counts = version.read_throttling(folder) if version.read_quota(folder) else (None, {})
                if seconds is not None:
                    above = directories[controller].removeprefix(folder)
                    return Quota(controller, groups[controller].removesuffix(above), seconds, counts)
        return None

    def _find_places(self, groups: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
        directories: dict[str, str] = {}
        tops: dict[str, str] = {}
        for controller, path in groups.items():
            directory, top = self._hierarchies.find_directory(controller, path), self._hierarchies.find_top(controller)
            if directory is not None and top is not None:
                directories[controller], tops[controller] = directory, top
        return directories, tops
