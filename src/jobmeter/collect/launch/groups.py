"""Control groups of a job's own, made where this is allowed; without them its processes are measured one by one."""

import logging
import os
from collections.abc import Sequence
from pathlib import Path

from jobmeter.collect.cgroup.paths import UNIFIED, Groups, Hierarchies, groups_of

_log = logging.getLogger(__name__)


class OwnGroups:
    """A group a replica below the groups that this process is in."""

    def __init__(self, job: str, replicas: Sequence[str], hierarchies: Hierarchies, proc_root: str = "/proc") -> None:
        self._hierarchies = hierarchies
        self._made: list[Path] = []
        self.paths: dict[str, Groups] = {}
        """By replica: the groups that could be made."""
        own = groups_of(proc_root, os.getpid()) or {}
        memory = hierarchies.top("memory") is not None
        for controller in ("cpuacct", "memory") if memory else (UNIFIED,):
            if controller in own:
                self._make(controller, f"{own[controller].rstrip('/')}/jobmeter-{job}", replicas)

    def entries(self, replica: str) -> list[str]:
        """The files that a process writes its number into to enter the groups of a replica."""
        directories = (
            self._hierarchies.directory(controller, path) for controller, path in self.paths.get(replica, {}).items()
        )
        return [f"{directory}/cgroup.procs" for directory in directories if directory]

    def entered(self, replica: str, pid: int, proc_root: str = "/proc") -> Groups:
        """The groups of a replica that the process really is in."""
        found = groups_of(proc_root, pid) or {}
        return {name: path for name, path in self.paths.get(replica, {}).items() if found.get(name) == path}

    def remove(self) -> None:
        """Remove the groups. One that still has processes stays: they are not ours to end."""
        for directory in reversed(self._made):
            try:
                directory.rmdir()
            except OSError as error:
                _log.debug("a control group stays: %s", error)

    def _make(self, controller: str, path: str, replicas: Sequence[str]) -> None:
        for replica in ("", *replicas):
            directory = self._hierarchies.directory(controller, f"{path}/{replica}".rstrip("/"))
            if directory is None:
                return
            try:
                Path(directory).mkdir()
            except OSError:
                return
            self._made.append(Path(directory))
            if replica:
                self.paths.setdefault(replica, {})[controller] = f"{path}/{replica}"


def enter(entries: Sequence[str]) -> None:
    """Put the calling process into groups. What cannot be entered is left out; made for the time before an exec."""
    for entry in entries:
        try:
            descriptor = os.open(entry, os.O_WRONLY)
        except OSError:
            continue
        try:
            os.write(descriptor, b"0")
        except OSError:
            continue
        finally:
            os.close(descriptor)
