"""What was read of a job or project that is asked for again and again, kept for a second: each question needs it."""

import threading
import time
from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

KEEP_SECONDS = 1.0
MOST_JOBS = 10_000

T = TypeVar("T")


class Recent(Generic[T]):
    """Answers by job and by how they were asked for. Safe to use from any thread.

    What this process writes is seen at once, what another one writes within ``KEEP_SECONDS``.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._generation = 0
        self._kept: dict[str, dict[Hashable, tuple[float, T]]] = {}

    def get(self, job: str, asked: Hashable) -> tuple[T | None, int]:
        """The answer, None when it must be read; and the generation to hand to ``put`` then."""
        with self._lock:
            until, answer = self._kept.get(job, {}).get(asked, (0.0, None))
            return (answer if until > time.monotonic() else None), self._generation

    def put(self, job: str, asked: Hashable, answer: T, generation: int) -> None:
        """Keep what was read, unless something was written meanwhile."""
        now = time.monotonic()
        with self._lock:
            if generation != self._generation:
                return
            if len(self._kept) >= MOST_JOBS:
                self._kept.clear()
            fresh = {key: kept for key, kept in self._kept.get(job, {}).items() if kept[0] > now}
            self._kept[job] = {**fresh, asked: (now + KEEP_SECONDS, answer)}

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._generation += 1
            self._kept.clear()

    def written(self, jobs: Iterable[str]) -> None:
        """Forget those jobs; call it once the change is committed."""
        with self._lock:
            self._generation += 1
            for job in jobs:
                self._kept.pop(job, None)
