"""Counters of replicas, summed over their control groups: a job's steps come and go as its processes do."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from jobmeter.collect.base import Owner
from jobmeter.collect.cgroup.usage import Usage

GroupKey = tuple[tuple[str, str], ...]
"""The groups of one subject, by controller, sorted."""


_Counts = dict[str, float]


@dataclass(slots=True)
class _Group:
    """What one path has counted: ``earlier`` by groups that were removed before it was made again."""

    last: _Counts = field(default_factory=dict)
    earlier: _Counts = field(default_factory=dict)

    def take(self, counts: _Counts) -> None:
        for name, count in counts.items():
            last = self.last.get(name, 0.0)
            if count < last:
                self.earlier[name] = self.earlier.get(name, 0.0) + last
            self.last[name] = count


class GroupCounters:
    """Counts that never fall while groups come and go.

    A group that has no process for a while goes on from where it was: it is remembered as long as its replica is.
    """

    def __init__(self) -> None:
        self._groups: defaultdict[Owner, defaultdict[GroupKey, _Group]] = defaultdict(lambda: defaultdict(_Group))
        self._floors: dict[Owner, Mapping[str, float]] = {}
        self._missing: dict[Owner, _Counts] = {}

    def update(self, usages: Mapping[Owner, Mapping[GroupKey, Usage]]) -> None:
        """Take in what the groups of each replica used."""
        for owner, groups in usages.items():
            for key, usage in groups.items():
                self._groups[owner][key].take(_counts(usage))

    def totals(self) -> dict[Owner, dict[str, float]]:
        """By replica: ``cpu``, ``throttled`` in seconds, ``read``, ``write`` in bytes, ``oom`` kills, where known."""
        sums: dict[Owner, dict[str, float]] = {}
        for owner, groups in self._groups.items():
            found: _Counts = {}
            for group in groups.values():
                for name, count in group.last.items():
                    found[name] = found.get(name, 0.0) + count + group.earlier.get(name, 0.0)
            if floors := self._floors.pop(owner, None):
                self._missing[owner] = {name: max(floors.get(name, 0.0) - count, 0.0) for name, count in found.items()}
            missing = self._missing.get(owner, {})
            sums[owner] = {name: count + missing.get(name, 0.0) for name, count in found.items()}
        return sums

    def resume(self, reached: Mapping[Owner, Mapping[str, float]]) -> None:
        """Go on from what ``totals`` gave in an earlier life of the agent."""
        self._floors = dict(reached)

    def forget(self, owners: set[Owner]) -> None:
        """Drop what is kept of replicas that are over."""
        for owner in owners:
            self._groups.pop(owner, None)
            self._floors.pop(owner, None)
            self._missing.pop(owner, None)


def _counts(usage: Usage) -> _Counts:
    counts = {
        "cpu": usage.cpu_seconds,
        "throttled": usage.throttled_seconds,
        "read": usage.read_bytes,
        "write": usage.write_bytes,
        "oom": usage.oom_kills,
    }
    return {name: float(count) for name, count in counts.items() if count is not None}
