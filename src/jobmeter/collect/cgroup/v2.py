"""Control groups of version 2: one folder has everything."""

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
from jobmeter.collect.host.pressure import RESOURCES, read_stalled_seconds

_EVENTS = {b"high": "memory.limit.slowed", b"max": "memory.limit.reached"}
_KINDS = {b"anon": "memory.anonymous", b"file": "memory.file", b"shmem": "memory.shared", b"kernel": "memory.kernel"}
_IO = ("rbytes", "wbytes", "rios", "wios")


def read_usage(directory: str, top: str, sys_root: str = "/sys") -> CgroupUsage:
    """Read the usage of the group in ``directory``, and the lowest limits up to ``top``."""
    cpu = files.read_pairs(f"{directory}/cpu.stat") or {}
    charged = files.read_number(f"{directory}/memory.current")
    memory = files.read_pairs(f"{directory}/memory.stat") or {}
    events = files.read_pairs(f"{directory}/memory.events") or {}
    moved = _io(directory, sys_root)
    return CgroupUsage(
        cpu_seconds=scale(cpu.get(b"usage_usec"), 1e6),
        throttled_seconds=scale(cpu.get(b"throttled_usec"), 1e6),
        cpu_limit=read_cpu_limit(directory, top),
        memory=compute_working_set(charged, memory, b"inactive_file"),
        memory_peak=scale(files.read_number(f"{directory}/memory.peak"), 1),
        memory_limit=read_memory_limit(directory, top),
        oom_kills=events.get(b"oom_kill"),
        read_bytes=moved.get("rbytes"),
        write_bytes=moved.get("wbytes"),
        stalled=read_stalled(directory),
        counts={
            **select_periods(cpu),
            **name_values(events, _EVENTS),
            **{f"disk.{kind}.operations": moved[name] for kind, name in (("read", "rios"), ("write", "wios")) if moved},
        },
        kinds=name_values(memory, _KINDS),
    )


def read_stalled(directory: str) -> dict[str, float]:
    """Return the seconds in which some or all tasks of the group waited; absent without the kernel's counts."""
    read = [read_stalled_seconds(f"{directory}/{resource}.pressure", resource) for resource in RESOURCES]
    return {name: seconds for found in read for name, seconds in found.items()}


def read_throttling(directory: str) -> tuple[float | None, dict[str, float]]:
    """Return the seconds for which the group's own quota throttled it, and the numbers of periods."""
    cpu = files.read_pairs(f"{directory}/cpu.stat") or {}
    return scale(cpu.get(b"throttled_usec"), 1e6), select_periods(cpu)


def read_cpu_limit(directory: str, top: str) -> float | None:
    """Return the cores that the group may use: the lowest quota on the way up, and its CPU set."""
    quotas = [read_quota(folder) for folder in climb(directory, top)]
    sets = (count_cpus(files.read(f"{folder}/cpuset.cpus.effective")) for folder in climb(directory, top))
    return find_lowest(*quotas, next((cpus for cpus in sets if cpus), None))


def read_memory_limit(directory: str, top: str) -> float | None:
    """Return the bytes that the group may use: the lowest limit on the way up."""
    return find_lowest(*(scale(files.read_number(f"{folder}/memory.max"), 1) for folder in climb(directory, top)))


def read_quota(directory: str) -> float | None:
    """Return the cores that the group's own quota allows; None without one."""
    words = (files.read(f"{directory}/cpu.max") or b"").split()
    return int(words[0]) / int(words[1]) if len(words) == 2 and words[0].isdigit() else None


def _io(directory: str, sys_root: str) -> dict[str, float]:
    """Return bytes and operations of reads and writes by the kernel's names; see ``sum_hardware``. Empty if unknown."""
    text = files.read(f"{directory}/io.stat")
    if text is None:
        return {}
    found: dict[str, list[float]] = {}
    for line in text.decode().splitlines():
        device, *words = line.split()
        values = dict(word.split("=", 1) for word in words if "=" in word)
        found[device] = [float(values.get(name, 0)) for name in _IO]
    return dict(zip(_IO, sum_hardware(found, sys_root) or [0.0] * len(_IO), strict=True))
