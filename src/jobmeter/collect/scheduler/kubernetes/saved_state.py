"""State across restarts: the names of jobs, and the attempt of its replica that a pod began with."""

import logging
from pathlib import Path

import msgspec

from jobmeter.collect.state_file import StateFile

_NAMES = 100_000
"""Names of jobs that are remembered; those that were heard of longest ago are forgotten first."""
_FILE = "kubernetes.json"


class SavedPod(msgspec.Struct, array_like=True):
    """The replica of a pod, the attempt of its first run, and its ``runs`` so far."""

    replica: str
    first: int
    runs: int = 1
    rank: int | None = None
    failed: bool = False


class SavedJob(msgspec.Struct, omit_defaults=True):
    """A job that was not finished when last read: its id, and its pods by uid, oldest first."""

    job_id: str
    project: str = ""
    pods: dict[str, SavedPod] = {}


class SavedState(msgspec.Struct, omit_defaults=True):
    """``names`` maps (project, job id) to the owner's uid; ``jobs`` are the living jobs by uid."""

    names: dict[str, str] = {}
    jobs: dict[str, SavedJob] = {}

    def claim(self, project: str, name: str, uid: str) -> str:
        """The id of the job: its name, or where another job has that already, its name and the first part of its uid.

        Names of Kubernetes are reused: by a job that is made anew, and in another namespace.
        """
        plain = name[:120]
        for candidate in (plain, f"{plain[:119]}~{uid[:8]}"):
            key = f"{project}/{candidate}"
            if self.names.get(key, uid) == uid:
                self.names.pop(key, None)
                self.names[key] = uid
                break
        else:
            candidate = uid
        while len(self.names) > _NAMES:
            del self.names[next(iter(self.names))]
        return candidate


def saved_state_file(folder: Path | None) -> StateFile[SavedState]:
    """Where the state is stored; ``folder`` None: nowhere."""
    unreadable = "%s cannot be read (%s): earlier names are lost"
    return StateFile(folder / _FILE if folder else None, msgspec.json.Decoder(SavedState), unreadable, logging.WARNING)
