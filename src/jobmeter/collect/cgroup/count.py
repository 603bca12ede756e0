"""Counters of replicas, summed over their control groups: a job's steps come and go as its processes do."""

from collections.abc import Mapping

from jobmeter.collect.base import Owner
from jobmeter.collect.cgroup.usage import Usage
from jobmeter.collect.process.totals import Reading, Totals

GroupKey = tuple[tuple[str, str], ...]
"""The groups of one subject, by controller, sorted."""


class GroupCounters:
    """Counts that never fall while groups come and go."""

    def __init__(self) -> None:
        self._totals: dict[str, Totals[GroupKey, Owner]] = {
            name: Totals(1) for name in ("cpu", "throttled", "read", "write", "oom")
        }

    def update(self, usages: Mapping[Owner, Mapping[GroupKey, Usage]]) -> None:
        """Take in what the groups of each replica used."""
        live: dict[str, dict[GroupKey, Reading[GroupKey, Owner]]] = {name: {} for name in self._totals}
        for owner, groups in usages.items():
            for key, usage in groups.items():
                for name, count in _counts(usage).items():
                    if count is not None:
                        live[name][key] = Reading(owner, (float(count),))
        for name, totals in self._totals.items():
            totals.update(live[name])

    def totals(self) -> dict[Owner, dict[str, float]]:
        """By replica: ``cpu``, ``throttled`` in seconds, ``read``, ``write`` in bytes, ``oom`` kills, where known."""
        sums: dict[Owner, dict[str, float]] = {}
        for name, totals in self._totals.items():
            for owner, values in totals.totals().items():
                sums.setdefault(owner, {})[name] = values[0]
        return sums

    def resume(self, reached: Mapping[Owner, Mapping[str, float]]) -> None:
        """Go on from what ``totals`` gave in an earlier life of the agent."""
        for name, totals in self._totals.items():
            totals.resume({owner: (counts[name],) for owner, counts in reached.items() if name in counts})

    def forget(self, owners: set[Owner]) -> None:
        """Drop what is kept of replicas that are over."""
        for totals in self._totals.values():
            totals.forget(owners)


def _counts(usage: Usage) -> dict[str, float | None]:
    return {
        "cpu": usage.cpu_seconds,
        "throttled": usage.throttled_seconds,
        "read": usage.read_bytes,
        "write": usage.write_bytes,
        "oom": usage.oom_kills,
    }
