"""Counters of replicas, summed over control groups, which come and go with the steps of a job."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from jobmeter.collect.base import Owner
from jobmeter.collect.cgroup.usage import CgroupUsage

GroupKey = tuple[tuple[str, str], ...]
"""Groups of one subject by controller, sorted."""


def group_key(groups: Mapping[str, str]) -> GroupKey:
    """Return the groups as a key."""
    return tuple(sorted(groups.items()))


_Counts = dict[str, float]


@dataclass(slots=True)
class GroupCount:
    """Counts of one path. ``earlier`` is the sum of removed groups of that path.

    Readings of several threads may arrive out of order: ``spans`` are the begin and end of the last readings. A reading
    that ended before the last one began is ignored. A lower count means a new group only if its reading began after the
    last one had ended.
    """

    last: _Counts = field(default_factory=dict)
    earlier: _Counts = field(default_factory=dict)
    spans: dict[str, tuple[int, int]] = field(default_factory=dict)

    def take(self, usage: CgroupUsage) -> None:
        """Add a reading."""
        for name, count in _counts(usage).items():
            last = self.last.get(name, 0.0)
            began, ended = self.spans.get(name, (0, 0))
            if usage.ended < began:
                continue
            if usage.began < ended:
                self.last[name] = max(last, count)
                continue
            if count < last:
                self.earlier[name] = self.earlier.get(name, 0.0) + last
            self.last[name], self.spans[name] = count, (usage.began, usage.ended)

    def sum_totals(self) -> dict[str, float]:
        """Return the counts of the group and of removed ones of its path, by name."""
        return {name: count + self.earlier.get(name, 0.0) for name, count in self.last.items()}


class GroupCounters:
    """Counts that never fall while groups come and go.

    A group is stored as long as its replica, so that it continues from its last count after a time without processes.
    """

    def __init__(self) -> None:
        self._groups: defaultdict[Owner, defaultdict[GroupKey, GroupCount]] = defaultdict(
            lambda: defaultdict(GroupCount)
        )
        self._floors: dict[Owner, Mapping[str, float]] = {}
        self._missing: dict[Owner, _Counts] = {}

    def update(self, usages: Mapping[Owner, Mapping[GroupKey, CgroupUsage]]) -> None:
        """Update with readings of the groups of each replica."""
        for owner, groups in usages.items():
            for key, usage in groups.items():
                self._groups[owner][key].take(usage)

    def sum_totals(self) -> dict[Owner, dict[str, float]]:
        """Return ``cpu`` and ``throttled`` in seconds, ``read`` and ``write`` in bytes, and ``oom`` by replica."""
        sums: dict[Owner, dict[str, float]] = {}
        for owner, groups in self._groups.items():
            found: _Counts = {}
            for group in groups.values():
                for name, count in group.sum_totals().items():
                    found[name] = found.get(name, 0.0) + count
            if floors := self._floors.pop(owner, None):
                self._missing[owner] = {name: max(floors.get(name, 0.0) - count, 0.0) for name, count in found.items()}
            missing = self._missing.get(owner, {})
            sums[owner] = {name: count + missing.get(name, 0.0) for name, count in found.items()}
        return sums

    def resume(self, reached: Mapping[Owner, Mapping[str, float]]) -> None:
        """Continue from the totals of an earlier process of the agent."""
        self._floors = dict(reached)

    def forget(self, owners: set[Owner]) -> None:
        """Drop the counts of finished replicas."""
        for owner in owners:
            self._groups.pop(owner, None)
            self._floors.pop(owner, None)
            self._missing.pop(owner, None)


def _counts(usage: CgroupUsage) -> _Counts:
    counts = {
        "cpu": usage.cpu_seconds,
        "throttled": usage.throttled_seconds,
        "read": usage.read_bytes,
        "write": usage.write_bytes,
        "oom": usage.oom_kills,
    }
    return usage.counts | {name: float(count) for name, count in counts.items() if count is not None}
