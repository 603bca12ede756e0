"""Detect out-of-memory kills, by comparing the counters of kills before and after a job."""

from jobmeter.collect import files
from jobmeter.collect.cgroup.paths import UNIFIED, Groups, Hierarchies


class OomWatch:
    """Counters of kills at its creation."""

    def __init__(self, hierarchies: Hierarchies, groups: Groups, proc_root: str = "/proc") -> None:
        self._proc = proc_root
        memory = hierarchies.find_directory("memory", groups["memory"]) if "memory" in groups else None
        unified = hierarchies.find_directory(UNIFIED, groups[UNIFIED]) if UNIFIED in groups else None
        self._files = [f"{memory}/memory.oom_control"] if memory else []
        self._files += [f"{unified}/memory.events"] if unified else []
        self._group = self._count_group_kills()
        self._node = self._count_node_kills()

    def find_evidence(self, group_kills: float = 0.0) -> str:
        """Return the evidence of an out-of-memory kill since then; empty without any.

        ``group_kills`` are those that the job's own groups counted.
        """
        if group_kills > 0:
            return "out of memory: the kernel killed a process of its control group (OOMKilled)"
        if self._count_group_kills() > self._group:
            return "out of memory: the kernel killed a process of the surrounding control group (OOMKilled)"
        if self._count_node_kills() > self._node:
            return "killed while the machine ran out of memory (OOMKilled)"
        return ""

    def _count_group_kills(self) -> int:
        return sum((files.read_pairs(path) or {}).get(b"oom_kill", 0) for path in self._files)

    def _count_node_kills(self) -> int:
        return (files.read_pairs(f"{self._proc}/vmstat") or {}).get(b"oom_kill", 0)
