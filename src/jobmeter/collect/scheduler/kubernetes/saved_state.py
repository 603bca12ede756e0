"""State across restarts: the names of jobs, and the attempt of its replica that a pod began with."""

import logging
from pathlib import Path

import msgspec

_NAMES = 100_000
"""Names of jobs that are remembered; those that were heard of longest ago are forgotten first."""
_FILE = "kubernetes.json"

_log = logging.getLogger(__name__)


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


class SavedStateFile:
    """Stores a ``SavedState`` in a folder, None: nowhere."""

    def __init__(self, folder: Path | None) -> None:
        self._path = folder / _FILE if folder else None
        self._written = b""

    def load(self) -> SavedState:
        """The stored state; an empty one where it cannot be read."""
        if self._path is None or not self._path.exists():
            return SavedState()
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=SavedState)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
            _log.warning("%s cannot be read (%s): earlier names are lost", self._path, error)
            return SavedState()

    def save(self, saved: SavedState) -> None:
        """Store it where it has changed."""
        if self._path is None:
            return
        body = msgspec.json.encode(saved)
        if body == self._written:
            return
        fresh = self._path.with_suffix(".new")
        try:
            fresh.write_bytes(body)
            fresh.replace(self._path)
            self._written = body
        except OSError as error:
            _log.warning("%s cannot be written: %s", self._path, error)
