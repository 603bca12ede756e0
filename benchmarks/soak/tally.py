"""Reports between the processes of a soak test: counts and latencies of about one second."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from benchmarks.client import summary


@dataclass
class Tally:
    """Counts and times of requests.

    ``accepted`` and ``refused`` count samples. ``retries`` counts responses with 429 or 503, ``broken`` counts broken
    connections. After both the request is repeated. ``times`` are latencies in milliseconds by kind (``write``,
    ``live``, ``list``). ``lags`` are the seconds from the measurement of a frame to its acknowledgement.
    """

    accepted: int = 0
    refused: int = 0
    retries: int = 0
    broken: int = 0
    times: dict[str, list[float]] = field(default_factory=dict)
    lags: list[float] = field(default_factory=list)

    def note(self, kind: str, milliseconds: float) -> None:
        """Add the latency of one response."""
        self.times.setdefault(kind, []).append(milliseconds)

    def add(self, other: "Tally") -> None:
        """Add the counts and times of another tally."""
        self.accepted += other.accepted
        self.refused += other.refused
        self.retries += other.retries
        self.broken += other.broken
        self.lags += other.lags
        for kind, times in other.times.items():
            self.times.setdefault(kind, []).extend(times)

    def quantiles(self, kind: str) -> str:
        """Return median, 99th percentile and maximum of a kind's latencies in milliseconds, or ``-`` without any."""
        times = self.times.get(kind)
        return three(times) if times else "-"


class Reports(Protocol):
    """Queue of tallies between processes."""

    def put(self, tally: Tally, /) -> None:
        """Send a tally."""

    def get(self, block: bool = True, timeout: float | None = None) -> Tally:
        """Receive a tally. Raises queue.Empty when none arrives within ``timeout`` seconds."""
        ...


def three(times: Iterable[float]) -> str:
    """Return median, 99th percentile and maximum of at least one time, with slashes between."""
    found = summary(list(times))
    return "/".join(f"{one:.1f}" if one < 100 else f"{one:,.0f}" for one in (found.p50, found.p99, found.worst))
