"""Owners of devices from the files that a scheduler's prolog writes and its epilog deletes.

The form is that of NVIDIA's exporter (``--hpc-job-mapping-dir``). Each GPU has a file that is named by its number or
its UUID, ``2.1`` for an instance of GPU 2. Each line begins with the number of a job; the rest is ignored, so that the
files of Princeton's jobstats (``JOB UID``) are read too.
https://docs.nvidia.com/datacenter/dcgm/latest/reference/command-line-reference/dcgm-exporter.html
"""

import logging
import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from jobmeter.collect.accelerators.device import Accelerator
from jobmeter.collect.base import Owner
from jobmeter.collect.discover.member import Member
from jobmeter.model.cluster import make_cluster_job
from jobmeter.model.job import AllocationSource

_NUMBER = re.compile(r"(?P<index>\d{1,4})(?:\.(?P<instance>\d{1,4}))?")
_MOST_FILES = 1024
_MOST_BYTES = 65_536
_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class PrologAllocations:
    """Allocations from the prolog's files, which are read at each call. For one thread.

    A file counts while a process of its job is on this node, because an epilog may have failed. Files name no replica,
    so all replicas of the job here have the device. ``are_numbers_of_node`` returns True if the names of files are
    numbers of devices; else only UUIDs count. ``number`` returns the number on the node of a device by its index.
    """

    source = AllocationSource.PROLOG

    folder: Path
    members: Callable[[], Iterable[Member]]
    are_numbers_of_node: Callable[[], bool] = lambda: True
    number: Callable[[int], int] = int
    _problem: str = ""

    def find_owners(self, devices: Sequence[Accelerator], now_ms: int) -> dict[int, list[Owner]]:  # noqa: ARG002 - see DeviceAllocator
        """Return the replicas of the jobs to which each device number was allocated."""
        jobs = self._read_jobs(devices)
        if not jobs:
            return {}
        replicas: dict[str, dict[Owner, None]] = {}
        for member in self.members():
            for name in _names(member):
                replicas.setdefault(name, {})[member.owner] = None
        return {
            index: owners
            for index, names in jobs.items()
            if (owners := [owner for name in names for owner in replicas.get(name, ())])
        }

    def _read_jobs(self, devices: Sequence[Accelerator]) -> dict[int, list[str]]:
        """Return the jobs in each device's file. An unreadable file is logged once."""
        found: dict[int, list[str]] = {}
        problem = ""
        try:
            with os.scandir(self.folder) as entries:
                names = sorted(entry.name for _, entry in zip(range(_MOST_FILES), entries, strict=False))
        except OSError as error:
            names, problem = [], str(error)
        for name in names:
            index = self._find_device(name, devices)
            try:
                jobs = [] if index is None else _read(self.folder / name)
            except OSError as error:
                jobs, problem = [], str(error)
            if index is not None and jobs:
                found[index] = list(dict.fromkeys([*found.get(index, ()), *jobs]))
        if problem and problem != self._problem:
            _log.warning("the GPUs of jobs cannot be read: %s", problem)
        self._problem = problem
        return found

    def _find_device(self, name: str, devices: Sequence[Accelerator]) -> int | None:
        """Return the device that a file is named after; None for any other file."""
        if not devices:
            return None
        number = _NUMBER.fullmatch(name) if self.are_numbers_of_node() else None
        if number is None:
            return next((one.index for one in devices if one.uuid == name), None)
        index, instance = int(number["index"]), number["instance"]
        same = [one for one in devices if self.number(one.part.parent if one.part else one.index) == index]
        parts = [one for one in same if one.part and str(one.part.instance) == instance]
        whole = [one for one in same if one.part is None]
        return next((one.index for one in (*parts, *whole)), None)


def _names(member: Member) -> set[str]:
    """Return the names of the job in a file: its id, and its number with its cluster."""
    job = member.owner.job
    return {job, make_cluster_job(job, member.cluster)} if member.cluster else {job}


def _read(path: Path) -> list[str]:
    """Return the first word of each line; empty for a deleted file."""
    try:
        with path.open("rb") as file:
            text = file.read(_MOST_BYTES).decode(errors="replace")
    except FileNotFoundError:
        return []
    return [words[0] for line in text.splitlines() if (words := line.split())]
