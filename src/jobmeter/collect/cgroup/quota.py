"""Throttling by a CPU quota of a group above the replica's own group.

A group counts only throttling by its own quota, else 0 (the group of a task in a job with a quota, version 2). In
version 1, Slurm and ``jobmeter run`` create no ``cpu`` group. So the nearest group with a quota on the way up counts.
"""

from collections.abc import Mapping
from dataclasses import replace

from jobmeter.collect.base import Owner
from jobmeter.collect.cgroup.count import GroupKey
from jobmeter.collect.cgroup.paths import read_groups
from jobmeter.collect.cgroup.reader import GroupReader
from jobmeter.collect.cgroup.usage import CgroupUsage, Quota
from jobmeter.collect.discover.member import Process


class QuotasAbove:
    """Time throttled by quotas above the replicas' own groups, since each replica was found.

    Such a group may be older than the replica, and its time counts for every replica in it.
    """

    def __init__(self, reader: GroupReader, proc_root: str = "/proc") -> None:
        self._reader = reader
        self._proc = proc_root
        self._first: dict[Owner, dict[GroupKey, Quota]] = {}

    def read(self, processes: Mapping[Owner, Process]) -> dict[Owner, dict[GroupKey, CgroupUsage]]:
        """Return for each replica, given by one process, the group with the quota and the seconds throttled.

        Replicas without a quota are left out, and those with a quota of their own group, which is counted there.
        """
        found: dict[Owner, dict[GroupKey, CgroupUsage]] = {}
        for owner, process in processes.items():
            groups = read_groups(self._proc, process.stat.key.pid)
            quota = self._reader.find_quota(groups) if groups else None
            if quota is None or process.member.groups.get(quota.controller) == quota.path:
                continue
            key = ((f"quota:{quota.controller}", quota.path),)
            firsts = self._first.setdefault(owner, {})
            first = firsts.setdefault(key, quota)
            if quota.throttled_seconds < first.throttled_seconds:
                first = firsts[key] = replace(quota, throttled_seconds=0.0, counts={})  # removed and created again
            counts = {name: max(count - first.counts.get(name, 0.0), 0.0) for name, count in quota.counts.items()}
            seconds = quota.throttled_seconds - first.throttled_seconds
            found[owner] = {key: CgroupUsage(throttled_seconds=seconds, counts=counts)}
        return found

    def forget(self, owners: set[Owner]) -> None:
        """Drop finished replicas."""
        for owner in owners:
            self._first.pop(owner, None)
