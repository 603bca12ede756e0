"""Usage and limits of a control group, for both versions."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

_PERIODS = {b"nr_periods": "cpu.periods", b"nr_throttled": "cpu.throttled.periods"}


@dataclass(frozen=True, slots=True, kw_only=True)
class CgroupUsage:
    """Usage and limits; None if the group, its controller or the kernel does not provide a value.

    Bytes, seconds, cores; a limit is None if none is set. ``memory`` is the working set: charged memory without
    inactive file cache. ``memory_peak`` is the kernel's high-water mark, including file cache. ``stalled`` are the
    seconds in which some task of the group waited for ``cpu``, ``memory``, ``io``, and in which all tasks waited
    (``cpu.full``). ``counts`` are further counters and ``kinds`` the memory by kind, both by metric. ``began`` and
    ``ended`` order the readings of several threads; 0 with a single thread.
    """

    cpu_seconds: float | None = None
    throttled_seconds: float | None = None
    cpu_limit: float | None = None
    memory: float | None = None
    memory_peak: float | None = None
    memory_limit: float | None = None
    oom_kills: int | None = None
    read_bytes: float | None = None
    write_bytes: float | None = None
    stalled: dict[str, float] = field(default_factory=dict)
    counts: dict[str, float] = field(default_factory=dict)
    kinds: dict[str, float] = field(default_factory=dict)
    began: int = field(default=0, compare=False)
    ended: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Quota:
    """Group with a CPU quota, the seconds for which it throttled its tasks over all CPUs, and its periods by metric."""

    controller: str
    path: str
    throttled_seconds: float
    counts: Mapping[str, float] = field(default_factory=dict)


def merge_readings(before: CgroupUsage, after: CgroupUsage) -> CgroupUsage:
    """Merge two readings. Fields missing in the later one come from the earlier one."""
    said = {name: value for name in CgroupUsage.__slots__ if (value := getattr(after, name)) not in (None, {})}
    return replace(before, **said)


def count_cpus(text: bytes | None) -> float | None:
    """Count the CPUs in a list such as ``0-3,8``; None for an empty list."""
    if not text or not text.strip():
        return None
    total = 0
    for part in text.strip().split(b","):
        first, _, last = part.partition(b"-")
        if not first.isdigit() or (last and not last.isdigit()):
            return None
        total += int(last or first) - int(first) + 1
    return float(total)


def sum_hardware(by_device: Mapping[str, Sequence[float]], sys_root: str) -> list[float]:
    """Sum counts of reads and of writes over devices, given by number. Empty without a device.

    Devices built on others repeat their counts, so only hardware counts if there is any.
    """
    hardware = [device for device in by_device if os.path.exists(f"{sys_root}/dev/block/{device}/device")]  # noqa: PTH110
    counted = [by_device[device] for device in hardware or by_device]
    return [sum(counts) for counts in zip(*counted, strict=True)]


def compute_working_set(charged: int | None, stat: Mapping[bytes, int], inactive: bytes) -> float | None:
    """Return the charged bytes without inactive file cache, by its name in ``memory.stat``."""
    return None if charged is None else float(max(charged - stat.get(inactive, 0), 0))


def select_periods(cpu_stat: Mapping[bytes, int]) -> dict[str, float]:
    """Return the numbers of periods of a quota, and of throttled ones; empty without a quota."""
    return name_values(cpu_stat, _PERIODS) if cpu_stat.get(b"nr_periods") else {}


def name_values(values: Mapping[bytes, int], names: Mapping[bytes, str]) -> dict[str, float]:
    """Return the values that have a metric, by metric."""
    return {metric: float(values[name]) for name, metric in names.items() if name in values}


def scale(value: int | None, divisor: float) -> float | None:
    """Return the value in another unit; None stays None."""
    return None if value is None else value / divisor


def find_lowest(*limits: float | None) -> float | None:
    """Return the lowest limit that is set."""
    return min((limit for limit in limits if limit is not None), default=None)


def climb(directory: str, top: str) -> list[str]:
    """Return the folders of a group and its parents up to the top of the mount, the group first."""
    folders = [directory]
    while directory != top and directory.startswith(top + "/"):
        directory = directory.rpartition("/")[0]
        folders.append(directory)
    return folders
