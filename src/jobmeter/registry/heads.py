"""The rows of jobs that are asked for again and again, kept for a second: every question about metrics needs one."""

import threading
import time
from collections.abc import Iterable, Sequence
from typing import Any

import sqlalchemy as sa

KEEP_SECONDS = 1.0
MOST_JOBS = 10_000

Projects = frozenset[str] | None
Rows = Sequence[sa.Row[Any]]


class Heads:
    """Rows by job and by the projects that were asked. Safe to use from any thread.

    What this process writes is seen at once, what another one writes within ``KEEP_SECONDS``.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._generation = 0
        self._rows: dict[str, dict[Projects, tuple[float, Rows]]] = {}

    def get(self, projects: Projects, job: str) -> tuple[Rows | None, int]:
        """The rows, None when they must be read; and the generation to hand to ``put`` then."""
        with self._lock:
            until, rows = self._rows.get(job, {}).get(projects, (0.0, None))
            return (rows if until > time.monotonic() else None), self._generation

    def put(self, projects: Projects, job: str, rows: Rows, generation: int) -> None:
        """Keep what was read, unless something was written meanwhile."""
        with self._lock:
            if generation != self._generation:
                return
            if len(self._rows) >= MOST_JOBS:
                self._rows.clear()
            self._rows.setdefault(job, {})[projects] = (time.monotonic() + KEEP_SECONDS, rows)

    def written(self, jobs: Iterable[str]) -> None:
        """Forget those jobs; call it once the change is committed."""
        with self._lock:
            self._generation += 1
            for job in jobs:
                self._rows.pop(job, None)
