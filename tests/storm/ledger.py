"""Record of everything that was sent and acknowledged: the source of truth for each answer."""

import threading
import time
from collections import Counter
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tests.support.frames import row, samples

METRIC = "app.number"
_VERSIONS, _REPLICAS = 64, 64

Versions = NDArray[np.int64]


@dataclass(frozen=True)
class Shape:
    """Size of a batch: ``points`` of each replica, ``spacing_ms`` apart. The first batch begins at ``start_ms``."""

    replicas: int
    points: int
    spacing_ms: int
    start_ms: int

    @property
    def size(self) -> int:
        """Number of samples of a batch."""
        return self.replicas * self.points

    def time_of(self, number: int) -> int:
        """Return the time of the first sample of a batch."""
        return self.start_ms + number * self.points * self.spacing_ms

    def values(self, number: int, replica: int, version: Versions | int) -> Versions:
        """Return the unique values of a replica in batches from ``number`` on."""
        version = np.atleast_1d(version)
        points = np.arange(number * self.points, (number + len(version)) * self.points)
        found: Versions = (points * _REPLICAS + replica) * _VERSIONS + np.repeat(version, self.points)
        return found

    def versions(self, number: int, replica: int, values: NDArray[np.float64]) -> Versions:
        """Return the versions of values; a negative number for a value never written there."""
        rest = values - self.values(number, replica, np.zeros(len(values) // self.points, np.int64))
        return np.where((rest > 0) & (rest < _VERSIONS) & (rest == np.floor(rest)), rest, -1).astype(np.int64)


class JobLedger:
    """Batches of one job with the last sent and the last acknowledged version of each.

    One thread writes. Others read without a lock: they read ``acknowledged`` before a question and ``sent`` after it.
    """

    def __init__(self, job: str, shape: Shape) -> None:
        self.job, self.shape = job, shape
        self.sent: list[int] = []
        self.acknowledged: list[int] = []
        self.clean: set[int] = set()
        """Batches without a request of unknown outcome, which may be overwritten."""

    def body(self, number: int) -> bytes:
        """Return the frame of the last version of a batch."""
        shape, version = self.shape, self.sent[number]
        first = shape.time_of(number)
        times = range(first, first + shape.points * shape.spacing_ms, shape.spacing_ms)
        return samples(
            [
                row(METRIC, list(zip(times, map(float, values), strict=True)), job=self.job, replica=f"w{replica}")
                for replica in range(shape.replicas)
                for values in [shape.values(number, replica, version)]
            ]
        )


@dataclass
class Problem:
    """Wrong answer and its time (``time.time``)."""

    kind: str
    text: str
    at: float = field(default_factory=time.time)


class Report:
    """Counts and problems of all threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.counts: Counter[str] = Counter()
        self.problems: list[Problem] = []
        self.acknowledgements = [time.monotonic()]
        """Times of the beginning and of each acknowledgement (``time.monotonic``)."""
        self.answers = [time.monotonic()]

    def count(self, name: str, more: int = 1) -> None:
        """Add to a count."""
        with self._lock:
            self.counts[name] += more

    def note(self, kind: str, text: str) -> None:
        """Add a problem."""
        with self._lock:
            self.counts[kind] += 1
            self.problems.append(Problem(kind, text))
