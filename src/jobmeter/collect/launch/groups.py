"""Own control groups of a job, created if permitted; without them its processes are measured individually."""

import logging
import os
import re
from collections.abc import Sequence
from pathlib import Path

from jobmeter.collect import files
from jobmeter.collect.cgroup.paths import UNIFIED, Groups, Hierarchies, groups_of
from jobmeter.collect.process.stat import Key, read_stat

_OWNER = re.compile(r"jobmeter-.+-(\d+)-(\d+)")
"""The name of a run's group ends with the number and the start of the run's own process."""

_log = logging.getLogger(__name__)


class OwnGroups:
    """Group per replica below the groups of this process, named after the job and this process.

    Groups that an earlier run left behind, because a process of its command outlived it, are removed if they are empty
    now. ``problem`` is the reason why no group counts CPU time, empty if one does.
    """

    def __init__(self, job: str, replicas: Sequence[str], hierarchies: Hierarchies, proc_root: str = "/proc") -> None:
        self._hierarchies = hierarchies
        self._proc = proc_root
        self._made: list[Path] = []
        self.paths: dict[str, Groups] = {}
        """Groups that could be created, by replica."""
        self.problem = "no control groups are mounted"
        own = self._own = groups_of(proc_root, os.getpid()) or {}
        stat = read_stat(proc_root, os.getpid())
        key = stat.key if stat else Key(os.getpid(), 0)
        # Beside version 1, the group of version 2 counts only pressure.
        self._counts_cpu = UNIFIED if hierarchies.top("memory") is None else "cpuacct"
        for controller in (UNIFIED,) if self._counts_cpu == UNIFIED else (UNIFIED, "memory", "cpuacct"):
            if controller in own:
                above = own[controller].rstrip("/")
                self._sweep(controller, above)
                problem = self._make(controller, f"{above}/jobmeter-{job}-{key.pid}-{key.start}", replicas)
                self.problem = problem if controller == self._counts_cpu else self.problem

    def entries(self, replica: str) -> list[str]:
        """Return the files into which a process writes its number to enter the groups of a replica."""
        directories = (
            self._hierarchies.directory(controller, path) for controller, path in self.paths.get(replica, {}).items()
        )
        return [f"{directory}/cgroup.procs" for directory in directories if directory]

    def entered(self, replica: str, pid: int) -> Groups:
        """Return the groups of a replica that the process is in."""
        found = groups_of(self._proc, pid) or {}
        entered = {name: path for name, path in self.paths.get(replica, {}).items() if found.get(name) == path}
        if not self.problem and self._counts_cpu not in entered:
            self.problem = "the control group could not be entered"
        return entered

    def replica_of(self, pid: int) -> tuple[str, bool] | None:
        """Find the replica of a process, which may have ended, by its groups. Also returns whether it is in them.

        A program that this process starts for itself stays in the groups of this process. A process of the command
        begins in the groups of its replica. Outside both, it belongs to the only replica; None if there are several.
        """
        found = groups_of(self._proc, pid) or {}
        for replica, paths in self.paths.items():
            if any(f"{found.get(name, '')}/".startswith(f"{path}/") for name, path in paths.items()):
                return replica, True
        if len(self.paths) != 1:
            return None
        ((replica, paths),) = self.paths.items()
        left = any(found.get(name, self._own[name]) != self._own[name] for name in paths)
        return (replica, False) if left else None

    def remaining(self) -> set[int]:
        """The processes that are still in the groups."""
        return {int(word) for folder in self._made for word in (files.read(f"{folder}/cgroup.procs") or b"").split()}

    def remove(self) -> None:
        """Remove the groups. One that still has processes stays for a later run to remove."""
        for directory in reversed(self._made):
            _remove(directory)

    def _sweep(self, controller: str, above: str) -> None:
        directory = self._hierarchies.directory(controller, above)
        if directory is None:
            return
        for folder in Path(directory).glob("jobmeter-*"):
            owner = _OWNER.fullmatch(folder.name)
            if owner is None:
                continue
            stat = read_stat(self._proc, int(owner[1]))
            if stat is None or stat.key.start != int(owner[2]):
                for inner in [*folder.glob("*/"), folder]:
                    _remove(inner)

    def _make(self, controller: str, path: str, replicas: Sequence[str]) -> str:
        """Create the groups. Returns the reason of a failure, else an empty text."""
        for replica in ("", *replicas):
            directory = self._hierarchies.directory(controller, f"{path}/{replica}".rstrip("/"))
            if directory is None:
                return "the control group of this process is not visible here"
            try:
                Path(directory).mkdir()
            except OSError as error:
                return error.strerror or str(error)
            self._made.append(Path(directory))
            if replica:
                self.paths.setdefault(replica, {})[controller] = f"{path}/{replica}"
        return ""


def _remove(directory: Path) -> None:
    try:
        directory.rmdir()
    except OSError as error:
        _log.debug("a control group stays: %s", error)


def enter(entries: Sequence[str]) -> None:
    """Put the calling process into groups. Groups that cannot be entered are skipped. Runs between fork and exec."""
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
