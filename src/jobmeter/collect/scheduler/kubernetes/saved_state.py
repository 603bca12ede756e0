"""State across restarts: the names of jobs, and the first attempt of each pod."""

import hashlib
import logging
from pathlib import Path

import msgspec

from jobmeter.collect.state_file import StateFile
from jobmeter.model.pod import parse_pod_job

_NAMES = 100_000
"""Most remembered names of jobs. The oldest are dropped first."""
_FILE = "kubernetes.json"


class SavedPod(msgspec.Struct, array_like=True):
    """Replica of a pod, the attempt of its first run, and the number of its ``runs``."""

    replica: str
    first: int
    runs: int = 1
    rank: int | None = None
    failed: bool = False


class SavedJob(msgspec.Struct, omit_defaults=True):
    """Job that was not finished when it was last read: its id, and its pods by uid, oldest first."""

    job_id: str
    project: str = ""
    pods: dict[str, SavedPod] = {}


class SavedState(msgspec.Struct, omit_defaults=True):
    """Saved state. ``names`` maps (project, job id) to the key of the root owner; ``jobs`` are living jobs by key."""

    names: dict[str, str] = {}
    jobs: dict[str, SavedJob] = {}

    def adopt(self, key: str, name: str, project: str) -> SavedJob:
        """Return the job of a root owner, added if missing."""
        if key not in self.jobs:
            self.jobs[key] = SavedJob(self._claim(project, name, key), project)
        return self.jobs[key]

    def _claim(self, project: str, name: str, key: str) -> str:
        """Choose the id of the job: its name, or, if another job has it, its name and the first part of its uid.

        Kubernetes names are reused: by a recreated job, and in other namespaces. An id by which agents report a pod of
        an unknown job is never used.
        """
        uid = key.rpartition("/")[2]
        digest = hashlib.sha256(key.encode()).hexdigest()[:16]
        candidates = [name[:120], f"{name[:119]}~{uid[:8]}", f"{name[:103]}~{digest}"]
        free = (one for one in candidates if self.names.get(f"{project}/{one}", key) == key)
        candidate = next((one for one in free if not parse_pod_job(one)), digest)
        self._take(project, candidate, key)
        return candidate

    def _take(self, project: str, job_id: str, key: str) -> None:
        """Store the id of the job. Beyond the limit the oldest names are dropped."""
        name = f"{project}/{job_id}"
        self.names.pop(name, None)
        self.names[name] = key
        while len(self.names) > _NAMES:
            del self.names[next(iter(self.names))]


def make_saved_state_file(folder: Path | None) -> StateFile[SavedState]:
    """Return the file of the state; without ``folder``: no file."""
    unreadable = "%s cannot be read (%s): earlier names are lost"
    return StateFile(folder / _FILE if folder else None, msgspec.json.Decoder(SavedState), unreadable, logging.WARNING)
