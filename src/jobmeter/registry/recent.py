"""What was read of a job or project that is asked for again and again, kept for a while: each question needs it."""

import threading
import time
from collections import OrderedDict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from jobmeter.model.time import MAX_TIME_MS

ALONE_SECONDS = 60.0
"""How long something is kept where no other process writes it."""
SHARED_SECONDS = 1.0
"""How long where others may."""
MOST_PARTS = 500_000
"""How many rows of the database are kept in all answers together, some hundred bytes each."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Told(Generic[T]):
    """An answer that holds from ``since_ms`` until before ``until_ms``, as long as nobody writes anything.

    ``parts`` is how many rows it was made of.
    """

    answer: T
    since_ms: int = 0
    until_ms: int = MAX_TIME_MS
    parts: int = 1

    def holds(self, now_ms: int) -> bool:
        """Whether it is the answer at that moment too."""
        return self.since_ms <= now_ms < self.until_ms


@dataclass(slots=True)
class _Known(Generic[T]):
    """The answers about one job, by how it was asked for, and when each is too old (monotonic seconds)."""

    answers: dict[Hashable, tuple[float, Told[T]]] = field(default_factory=dict)

    @property
    def parts(self) -> int:
        return sum(told.parts for _, told in self.answers.values())


class Recent(Generic[T]):
    """Answers by job and by how they were asked for. Safe to use from any thread.

    What this process writes is seen at once, what another one writes within ``seconds``. Where too much is kept, the
    jobs that were read longest ago go.
    """

    def __init__(self, seconds: float = SHARED_SECONDS, most: int = MOST_PARTS) -> None:
        self._seconds = seconds
        self._most = most
        self._lock = threading.Lock()
        self._generation = 0
        self._parts = 0
        self._kept: OrderedDict[str, _Known[T]] = OrderedDict()

    def get(self, job: str, asked: Hashable, now_ms: int) -> tuple[T | None, int]:
        """The answer at a moment, None when it must be read; and the generation to hand to ``put`` then."""
        with self._lock:
            known = self._kept.get(job)
            until, told = (known and known.answers.get(asked)) or (0.0, None)
            if told is None or until <= time.monotonic() or not told.holds(now_ms):
                return None, self._generation
            self._kept.move_to_end(job)
            return told.answer, self._generation

    def put(self, job: str, asked: Hashable, told: Told[T], generation: int) -> None:
        """Keep what was read, unless something was written meanwhile."""
        now = time.monotonic()
        with self._lock:
            if generation != self._generation:
                return
            known = self._pop(job) or _Known()
            known.answers = {key: kept for key, kept in known.answers.items() if kept[0] > now}
            known.answers[asked] = now + self._seconds, told
            self._kept[job] = known
            self._parts += known.parts
            while self._parts > self._most and len(self._kept) > 1:
                self._pop(next(iter(self._kept)))

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._generation += 1
            self._parts = 0
            self._kept.clear()

    def written(self, jobs: Iterable[str]) -> None:
        """Forget those jobs; call it once the change is committed."""
        with self._lock:
            self._generation += 1
            for job in jobs:
                self._pop(job)

    def _pop(self, job: str) -> _Known[T] | None:
        known = self._kept.pop(job, None)
        if known is not None:
            self._parts -= known.parts
        return known
