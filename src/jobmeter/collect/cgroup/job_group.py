"""CPU time of a job from the job's own group, which includes the counts of its steps' groups and outlives them.

Slurm removes the group of a task within milliseconds of its end, so a reader may come too late. The group of the job
stays until its last step has gone, including the external one that ``PrologFlags=Contain`` makes for each job.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from jobmeter.collect.base import Owner
from jobmeter.collect.cgroup.count import GroupCount, GroupKey
from jobmeter.collect.cgroup.reader import GroupReader
from jobmeter.collect.cgroup.usage import CgroupUsage

_EXTERN = "/step_extern"


@dataclass(frozen=True, slots=True)
class JobUsage:
    """Reading of a job's group with its external step, and of that step, empty without one."""

    whole: CgroupUsage
    extern: CgroupUsage


class JobGroupReader:
    """Reads the usage of a job's tasks. Thread-safe."""

    def __init__(self, reader: GroupReader) -> None:
        self._reader = reader
        self._with_extern: set[GroupKey] = set()

    def read(self, groups: GroupKey) -> JobUsage | None:
        """Return the usage of the job and of its external step; None if either is unknown."""
        whole = self._reader.read(dict(groups))
        if whole.cpu_seconds is None:
            return None
        extern = self._reader.read({controller: path + _EXTERN for controller, path in groups})
        if extern.cpu_seconds is not None:
            self._with_extern.add(groups)
        elif groups in self._with_extern:
            return None  # the job's group includes the external step's usage, which is unknown
        return JobUsage(whole, extern)

    def forget(self, groups: Iterable[GroupKey]) -> None:
        """Drop the readings of finished jobs."""
        self._with_extern.difference_update(groups)


@dataclass(slots=True)
class _Job:
    owners: set[Owner] = field(default_factory=set)
    sole: Owner | None = None
    """Only replica, or the only one before others came."""
    whole: GroupCount = field(default_factory=GroupCount)
    extern: GroupCount = field(default_factory=GroupCount)
    seconds: float = 0.0
    """CPU of all tasks."""
    unread: float = 0.0
    """Usage of ``sole`` in groups that were not read in time."""

    def take(self, usage: JobUsage) -> None:
        self.whole.take(usage.whole)
        self.extern.take(usage.extern)
        # The two are read one after the other: the difference may fall, but the tasks' usage does not.
        tasks = self.whole.sum_totals().get("cpu", 0.0) - self.extern.sum_totals().get("cpu", 0.0)
        self.seconds = max(self.seconds, tasks)


class JobGroupCounters:
    """Adds CPU time that only the job's group counted to the job's single replica on the node.

    With several replicas it cannot be divided.
    """

    def __init__(self) -> None:
        self._jobs: dict[tuple[GroupKey, int], _Job] = {}

    def set_replicas(self, found: Iterable[tuple[GroupKey, Owner]]) -> None:
        """Add replicas with the groups of their jobs."""
        for groups, owner in found:
            self._jobs.setdefault((groups, owner.attempt), _Job()).owners.add(owner)
        for job in self._jobs.values():
            if len(job.owners) == 1:
                (job.sole,) = job.owners

    def update(self, groups: GroupKey, attempt: int, usage: JobUsage | None) -> None:
        """Add a reading, before the groups of the replicas are read."""
        job = self._jobs.get((groups, attempt))
        if job is not None and usage is not None:
            job.take(usage)

    def add(self, totals: Mapping[Owner, dict[str, float]]) -> None:
        """Raise ``cpu`` of the replicas' totals to the total of their job's group."""
        for job in self._jobs.values():
            counts = totals.get(job.sole, {}) if job.sole else {}
            if "cpu" not in counts:
                continue
            if len(job.owners) == 1:
                job.unread = max(job.seconds - counts["cpu"], 0.0)
            counts["cpu"] += job.unread

    def forget(self, owners: set[Owner]) -> list[GroupKey]:
        """Drop finished replicas. Return the groups of jobs without a replica."""
        over = [key for key, job in self._jobs.items() if job.owners <= owners]
        for key in over:
            del self._jobs[key]
        return [groups for groups, _ in over]
