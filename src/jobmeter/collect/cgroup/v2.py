"""Control groups, version 2: one folder has everything."""

from jobmeter.collect import files
from jobmeter.collect.cgroup.usage import CgroupUsage, climb, count_cpus, lowest, of_hardware, scaled, working_set
from jobmeter.collect.host.pressure import stalled_seconds


def read_usage(directory: str, top: str, sys_root: str = "/sys") -> CgroupUsage:
    """Read the usage of the group in ``directory``. Limits are the lowest of its own and its parents' up to ``top``."""
    cpu = files.read_pairs(f"{directory}/cpu.stat") or {}
    events = files.read_pairs(f"{directory}/memory.events") or {}
    read, written = _io(directory, sys_root)
    return CgroupUsage(
        cpu_seconds=scaled(cpu.get(b"usage_usec"), 1e6),
        throttled_seconds=throttled_seconds(directory),
        cpu_limit=cpu_limit(directory, top),
        memory=working_set(directory, "memory.current", b"inactive_file"),
        memory_peak=scaled(files.read_number(f"{directory}/memory.peak"), 1),
        memory_limit=memory_limit(directory, top),
        oom_kills=events.get(b"oom_kill"),
        read_bytes=read,
        write_bytes=written,
        stalled=stalled(directory),
    )


def stalled(directory: str) -> dict[str, float]:
    """Return the seconds in which some task of the group waited, by resource; missing if the kernel does not tell."""
    found = {kind: stalled_seconds(f"{directory}/{kind}.pressure") for kind in ("cpu", "memory", "io")}
    return {kind: seconds for kind, seconds in found.items() if seconds is not None}


def throttled_seconds(directory: str) -> float | None:
    """Seconds for which the group's own quota throttled it."""
    return scaled((files.read_pairs(f"{directory}/cpu.stat") or {}).get(b"throttled_usec"), 1e6)


def cpu_limit(directory: str, top: str) -> float | None:
    """Cores that the group may use: the lowest quota on the way up, and its CPU set."""
    quotas = [quota(folder) for folder in climb(directory, top)]
    sets = (count_cpus(files.read(f"{folder}/cpuset.cpus.effective")) for folder in climb(directory, top))
    return lowest(*quotas, next((cpus for cpus in sets if cpus), None))


def memory_limit(directory: str, top: str) -> float | None:
    """Bytes that the group may use: the lowest limit on the way up."""
    return lowest(*(scaled(files.read_number(f"{folder}/memory.max"), 1) for folder in climb(directory, top)))


def quota(directory: str) -> float | None:
    """Return the cores that the group's own quota allows; None without one."""
    words = (files.read(f"{directory}/cpu.max") or b"").split()
    return int(words[0]) / int(words[1]) if len(words) == 2 and words[0].isdigit() else None


def _io(directory: str, sys_root: str) -> tuple[float | None, float | None]:
    """Bytes read and written; see ``of_hardware``."""
    text = files.read(f"{directory}/io.stat")
    if text is None:
        return None, None
    found: dict[str, tuple[float, float]] = {}
    for line in text.decode().splitlines():
        device, *words = line.split()
        values = dict(word.split("=", 1) for word in words if "=" in word)
        found[device] = (float(values.get("rbytes", 0)), float(values.get("wbytes", 0)))
    return of_hardware(found, sys_root)
