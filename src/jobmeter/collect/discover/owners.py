"""Owners of jobs on this node, so that no process joins another user's job.

Any process may have any environment, so a job's name in it proves nothing. The owner is determined by the first process
of the job on the node, or by the scheduler's own control group. A later process that names the job belongs to it if a
process of the job started it, or if it has the owner's user or control group. For pods the namespace replaces the user,
because most containers run as root.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import msgspec

from jobmeter.collect.base import NodeIdentity
from jobmeter.collect.discover.member import Process
from jobmeter.collect.process.stat import find_user_name
from jobmeter.collect.state_file import StateFile
from jobmeter.model.event import Level
from jobmeter.model.record import EventRecord, Records
from jobmeter.model.time import HOUR

MOST_JOBS = 10_000
FORGET_MS = 24 * HOUR
"""Time in milliseconds for which the owner of a job without processes is remembered. Names are reused after it."""
_FILE = "owners.json"
_log = logging.getLogger(__name__)


class ProcessOwner(NamedTuple):
    """Mark of a process that others share: ``kind`` is ``user``, ``namespace`` or ``group``."""

    kind: str
    name: str

    def __str__(self) -> str:
        if self.kind == "user":
            return f"user {find_user_name(int(self.name))}"
        return f"{self.kind} {self.name}" if self.name else "a pod"


Principals = tuple[ProcessOwner, ...]
"""Marks of a process. The first one is reported."""


class _Owner(msgspec.Struct):
    """Owner of a job. ``assigned``: by a scheduler's control group."""

    principals: list[tuple[str, str]]
    used_ms: int
    assigned: bool = False

    @property
    def first(self) -> ProcessOwner:
        return ProcessOwner(*self.principals[0])


class Refusal(NamedTuple):
    """Refusal of a process that named a job of another owner."""

    job: str
    claimant: ProcessOwner
    owner: ProcessOwner


class JobOwners:
    """Owners of the jobs on a node. For one thread at a time.

    Beyond the limit, the owner with most jobs loses the oldest of them.
    """

    def __init__(self, folder: Path | None = None) -> None:
        """``folder`` stores the owners over a restart of the agent."""
        self._file = StateFile(
            folder / _FILE if folder else None,
            msgspec.json.Decoder(dict[str, _Owner]),
            "the owners of jobs cannot be read from %s (%s): the first process of each job decides again",
            logging.WARNING,
        )
        self._owners = self._file.load() or {}
        self._jobs = Counter(owner.first for owner in self._owners.values())
        self._changed = False
        self._displaced: set[str] = set()
        self._now_ms = 0
        self._refusals: dict[ProcessOwner, Refusal] = {}
        self._reported: dict[ProcessOwner, int] = {}

    def assign(self, job: str, principals: Principals) -> None:
        """Set the owner of a job from a control group that only a scheduler creates."""
        owner = self._owners.get(job)
        if principals and (owner is None or not owner.assigned):
            if owner is not None and owner.first != principals[0]:
                self._displaced.add(job)
            self._put(job, principals, assigned=True)

    def accepts(self, job: str, principals: Principals) -> bool:
        """Return True if the job has no owner yet, or shares a user, namespace or group with the process."""
        owner = self._owners.get(job)
        if not principals:
            return False
        if owner is None:
            self._put(job, principals)
            return True
        owner.used_ms = self._now_ms
        if {*principals}.isdisjoint(ProcessOwner(*one) for one in owner.principals):
            self._refusals.setdefault(principals[0], Refusal(job, principals[0], owner.first))
            return False
        return True

    def take_displaced(self) -> set[str]:
        """Return the jobs whose owner changed since the last call, so that their processes are classified again."""
        found, self._displaced = self._displaced, set()
        return found

    def refresh(self, jobs: Iterable[str], now_ms: int) -> list[Refusal]:
        """Note the jobs that have processes now, and save the owners.

        Return the refusals since the last call, at most one per claimant and hour.
        """
        for owner in self._owners.values() if not self._now_ms else ():
            owner.used_ms = owner.used_ms or now_ms
        self._now_ms = now_ms
        for job in jobs:
            if job in self._owners:
                self._owners[job].used_ms = now_ms
        self._drop([job for job, owner in self._owners.items() if now_ms - owner.used_ms > FORGET_MS])
        if self._changed:
            self._changed = False
            self._file.save(self._owners)
        self._reported = {one: time_ms for one, time_ms in self._reported.items() if 0 <= now_ms - time_ms < HOUR}
        fresh = [refusal for refusal in self._refusals.values() if refusal.claimant not in self._reported]
        self._reported.update((refusal.claimant, now_ms) for refusal in fresh)
        self._refusals.clear()
        return fresh

    def _put(self, job: str, principals: Principals, *, assigned: bool = False) -> None:
        if job in self._owners:
            self._drop([job])
        elif len(self._owners) >= MOST_JOBS:
            ((most, count),) = self._jobs.most_common(1)
            own = [(owner.used_ms, one) for one, owner in self._owners.items() if owner.first == most]
            self._drop([one for _, one in sorted(own)[: count // 10 + 1]])
        self._owners[job] = _Owner([(kind, name) for kind, name in principals], self._now_ms, assigned)
        self._jobs[principals[0]] += 1
        self._changed = True

    def _drop(self, jobs: Iterable[str]) -> None:
        for job in jobs:
            self._jobs[self._owners.pop(job).first] -= 1
            self._changed = True
        self._jobs += Counter()  # without those that have none left


class OwnerReporter:
    """Record source: an event of the node for each user whose processes name another user's job."""

    def __init__(self, place: NodeIdentity, owners: JobOwners, processes: Callable[[], Iterable[Process]]) -> None:
        self._place = place
        self._owners = owners
        self._processes = processes

    def take_records(self, now_ms: int) -> Records:
        """Return the events since the last call."""
        jobs = {process.member.owner.job for process in self._processes()}
        return Records(events=[self._make_event(now_ms, refusal) for refusal in self._owners.refresh(jobs, now_ms)])

    def _make_event(self, now_ms: int, refusal: Refusal) -> EventRecord:
        message = (
            f"A process of {refusal.claimant} names the job {refusal.job} in its environment, which belongs to "
            f"{refusal.owner}. The process is not counted for that job."
        )
        _log.warning("%s", message)
        return self._place.make_event(now_ms, Level.WARNING, "JobNameRefused", message)
