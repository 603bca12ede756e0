"""Throttling by a CPU quota that a replica's processes are under without having it in a group of their own.

A group counts only what its own quota holds back. One that has none says 0 (version 2: the group of a task in a job
with a quota), and Slurm and ``jobmeter run`` make no group for ``cpu`` in version 1. So what counts is the nearest
group with a quota on the way up, as the kernel climbs (kernel.org, scheduler/sched-bwc, "Hierarchical considerations").
"""

from collections.abc import Mapping

from jobmeter.collect.base import Owner
from jobmeter.collect.cgroup.count import GroupKey
from jobmeter.collect.cgroup.paths import groups_of
from jobmeter.collect.cgroup.reader import GroupReader
from jobmeter.collect.cgroup.usage import Usage
from jobmeter.collect.discover.member import Process


class QuotasAbove:
    """Time throttled by quotas above the replicas' own groups since each replica was found.

    Such a group may be older than the replica and may have others in it: its time before the replica is not counted,
    and its time since then counts for every replica in it.
    """

    def __init__(self, reader: GroupReader, proc_root: str = "/proc") -> None:
        self._reader = reader
        self._proc = proc_root
        self._first: dict[Owner, dict[GroupKey, float]] = {}

    def read(self, processes: Mapping[Owner, Process]) -> dict[Owner, dict[GroupKey, Usage]]:
        """By replica, of which one process is given: the group that has the quota, and the seconds throttled.

        A replica without a quota, or with one in its own group, which is counted there, is left out.
        """
        found: dict[Owner, dict[GroupKey, Usage]] = {}
        for owner, process in processes.items():
            groups = groups_of(self._proc, process.stat.key.pid)
            quota = self._reader.quota(groups) if groups else None
            if quota is None or process.member.groups.get(quota.controller) == quota.path:
                continue
            key = ((f"quota:{quota.controller}", quota.path),)
            firsts = self._first.setdefault(owner, {})
            if quota.throttled_seconds < firsts.setdefault(key, quota.throttled_seconds):
                firsts[key] = 0.0  # the group was removed and made again
            found[owner] = {key: Usage(throttled_seconds=quota.throttled_seconds - firsts[key])}
        return found

    def forget(self, owners: set[Owner]) -> None:
        """Drop finished replicas."""
        for owner in owners:
            self._first.pop(owner, None)
