"""Peak memory of a control group, without the file cache that the kernel's mark includes.

The kernel's high-water mark (``memory.peak``, ``memory.max_usage_in_bytes``) covers the time between two scans, but
counts every charged page: a job that writes a file reaches its limit with cache that can be freed at once. The peak of
each process (``VmHWM``) excludes such cache, and their sum is a bound for the group.
"""

from collections.abc import Iterable, Mapping

from jobmeter.collect.base import Owner
from jobmeter.collect.cgroup.usage import CgroupUsage
from jobmeter.collect.process.stat import Key


class HighWater:
    """Reduces the marks of groups to the possible peak of their processes. For one thread."""

    def __init__(self) -> None:
        self._last: dict[Owner, Mapping[Key, float]] = {}

    def take_marks(
        self,
        owner: Owner,
        usages: Iterable[CgroupUsage],
        living: Mapping[Key, float | None],
        ended: Mapping[Key, float],
        beside: float,
    ) -> list[float]:
        """Return the marks of a replica's groups since the last call, reduced to the memory that can have been in use.

        ``living`` and ``ended`` are the peaks of each process, ``ended`` since the last call. ``beside`` is the groups'
        current charge beyond their processes, such as files in memory. A mark is unchanged if the peak of a process is
        unknown, or if the kernel has killed for lack of memory, because it frees the cache first.
        """
        before = self._last.get(owner, {})
        own = {key: most for key, most in living.items() if most is not None}
        self._last[owner] = own
        everyone = {**before, **{key: max(most, before.get(key, 0.0)) for key, most in own.items()}}
        everyone.update({key: max(most, before[key]) for key, most in ended.items() if key in before})
        # For processes that began and ended meanwhile, it is unknown which lived simultaneously.
        brief = max((most for key, most in ended.items() if key not in before), default=0.0)
        bound = sum(everyone.values()) + brief + beside
        if len(own) < len(living) or not bound:
            bound = float("inf")
        found = [(usage.memory_peak, usage.oom_kills) for usage in usages]
        return [mark if kills else min(mark, bound) for mark, kills in found if mark is not None]

    def forget(self, owner: Owner) -> None:
        """Drop a finished replica."""
        self._last.pop(owner, None)
