"""What a control group used and may use, the same for both versions."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """None where the group, its controller or the kernel does not say. Bytes, seconds, cores; limits None: none set.

    ``memory`` is the working set: what is charged less what lies in inactive file cache. ``memory_peak`` is the most
    that was ever charged, file cache included, as the kernel keeps it. ``stalled`` maps ``cpu``, ``memory``, ``io`` to
    the seconds in which some task of the group waited.
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


def count_cpus(text: bytes | None) -> float | None:
    """How many CPUs a list such as ``0-3,8`` names; None for an empty one."""
    if not text or not text.strip():
        return None
    total = 0
    for part in text.strip().split(b","):
        first, _, last = part.partition(b"-")
        if not first.isdigit() or (last and not last.isdigit()):
            return None
        total += int(last or first) - int(first) + 1
    return float(total)


def lowest(*limits: float | None) -> float | None:
    """The lowest of the limits that there are."""
    return min((limit for limit in limits if limit is not None), default=None)


def climb(directory: str, top: str) -> list[str]:
    """The folder of a group and those of its parents up to the top of what is seen, the group first."""
    folders = [directory]
    while directory != top and directory.startswith(top + "/"):
        directory = directory.rpartition("/")[0]
        folders.append(directory)
    return folders
