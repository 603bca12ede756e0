"""Control groups of version 1: one hierarchy per controller, each with its own group for a process."""

from collections.abc import Mapping

from jobmeter.collect import files
from jobmeter.collect.cgroup.usage import (
    CgroupUsage,
    climb,
    compute_working_set,
    count_cpus,
    find_lowest,
    name_values,
    scale,
    select_periods,
    sum_hardware,
)

_UNLIMITED = 2**62
"""Least value that means "no limit": the kernel writes the largest number of whole pages."""
_KINDS = {b"total_rss": "memory.anonymous", b"total_cache": "memory.file", b"total_shmem": "memory.shared"}
_BYTES, _OPERATIONS = "io_service_bytes", "io_serviced"


def read_usage(directories: Mapping[str, str], tops: Mapping[str, str], sys_root: str = "/sys") -> CgroupUsage:
    """Read the usage of the groups by controller, and the lowest limits up to ``tops``."""
    memory = directories.get("memory")
    cpuacct = directories.get("cpuacct")
    blkio = directories.get("blkio")
    # The most important value comes first: a group may be removed while it is read.
    cpu = files.read_number(f"{cpuacct}/cpuacct.usage") if cpuacct else None
    read, written = _io(blkio, _BYTES, sys_root) if blkio else (None, None)
    reads, writes = _io(blkio, _OPERATIONS, sys_root) if blkio else (None, None)
    throttled, counts = read_throttling(directories["cpu"]) if "cpu" in directories else (None, {})
    charged = files.read_number(f"{memory}/memory.usage_in_bytes") if memory else None
    stat = (files.read_pairs(f"{memory}/memory.stat") or {}) if memory else {}
    more = {
        "memory.limit.reached": files.read_number(f"{memory}/memory.failcnt") if memory else None,
        "disk.read.operations": reads,
        "disk.write.operations": writes,
    }
    kernel = files.read_number(f"{memory}/memory.kmem.usage_in_bytes") if memory else None
    return CgroupUsage(
        cpu_seconds=scale(cpu, 1e9),
        throttled_seconds=throttled,
        cpu_limit=read_cpu_limit(directories, tops),
        memory=compute_working_set(charged, stat, b"total_inactive_file"),
        memory_peak=scale(files.read_number(f"{memory}/memory.max_usage_in_bytes") if memory else None, 1),
        memory_limit=read_memory_limit(memory, tops["memory"]) if memory else None,
        oom_kills=(files.read_pairs(f"{memory}/memory.oom_control") or {}).get(b"oom_kill") if memory else None,
        read_bytes=read,
        write_bytes=written,
        counts=counts | {metric: float(count) for metric, count in more.items() if count is not None},
        kinds=name_values(stat, _KINDS) | ({} if kernel is None else {"memory.kernel": float(kernel)}),
    )


def read_cpu_limit(directories: Mapping[str, str], tops: Mapping[str, str]) -> float | None:
    """Return the cores that the groups may use: the lowest quota on the way up, and the CPU set."""
    quotas: list[float | None] = []
    if "cpu" in directories:
        quotas = [read_quota(folder) for folder in climb(directories["cpu"], tops["cpu"])]
    cpus = None
    if "cpuset" in directories:
        folder = directories["cpuset"]
        cpus = count_cpus(files.read(f"{folder}/cpuset.effective_cpus") or files.read(f"{folder}/cpuset.cpus"))
    return find_lowest(*quotas, cpus)


def read_memory_limit(directory: str, top: str) -> float | None:
    """Return the bytes that the group may use: the lowest limit on the way up."""
    limits = [files.read_number(f"{folder}/memory.limit_in_bytes") for folder in climb(directory, top)]
    limits.append((files.read_pairs(f"{directory}/memory.stat") or {}).get(b"hierarchical_memory_limit"))
    return find_lowest(*(float(limit) for limit in limits if limit is not None and limit < _UNLIMITED))


def read_throttling(directory: str) -> tuple[float | None, dict[str, float]]:
    """Return the seconds for which the group's own quota throttled it, and the numbers of periods."""
    cpu = files.read_pairs(f"{directory}/cpu.stat") or {}
    return scale(cpu.get(b"throttled_time"), 1e9), select_periods(cpu)


def read_quota(directory: str) -> float | None:
    """Return the cores that the group's own quota allows; None without one."""
    runtime = files.read_number(f"{directory}/cpu.cfs_quota_us")
    period = files.read_number(f"{directory}/cpu.cfs_period_us")
    return runtime / period if runtime and period and runtime > 0 else None


def _io(directory: str, kind: str, sys_root: str) -> tuple[float | None, float | None]:
    """Return bytes or operations of reads and of writes, of the group and its descendants; see ``sum_hardware``."""
    text = files.read(f"{directory}/blkio.throttle.{kind}_recursive")
    if text is None:
        text = files.read(f"{directory}/blkio.throttle.{kind}")
    if text is None:
        return None, None
    found: dict[str, tuple[float, float]] = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) == 3 and words[1] in {b"Read", b"Write"}:
            read, written = found.get(device := words[0].decode(), (0.0, 0.0))
            count = float(words[2])
            found[device] = (read + count, written) if words[1] == b"Read" else (read, written + count)
    read, written = sum_hardware(found, sys_root) or (0.0, 0.0)
    return read, written
