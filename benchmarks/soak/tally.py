"""Messages between the processes of a soak: counts and times of about one second."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from benchmarks.client import summary


@dataclass
class Tally:
    """``times`` are milliseconds by kind (``write`` ``live`` ``list``), ``lags`` seconds from measured to kept."""

    accepted: int = 0
    refused: int = 0
    retries: int = 0
    broken: int = 0
    times: dict[str, list[float]] = field(default_factory=dict)
    lags: list[float] = field(default_factory=list)

    def note(self, kind: str, milliseconds: float) -> None:
        """One answer."""
        self.times.setdefault(kind, []).append(milliseconds)

    def add(self, other: "Tally") -> None:
        """All that the other one has."""
        self.accepted += other.accepted
        self.refused += other.refused
        self.retries += other.retries
        self.broken += other.broken
        self.lags += other.lags
        for kind, times in other.times.items():
            self.times.setdefault(kind, []).extend(times)

    def quantiles(self, kind: str) -> str:
        """Median, 99 of 100, most; in whole or tenths of milliseconds."""
        times = self.times.get(kind)
        return three(times) if times else "-"


class Reports(Protocol):
    """A queue of tallies between processes."""

    def put(self, tally: Tally, /) -> None:
        """Tell."""

    def get(self, block: bool = True, timeout: float | None = None) -> Tally:
        """Hear; queue.Empty when nothing was told within ``timeout`` seconds."""
        ...


def three(times: Iterable[float]) -> str:
    """Median/p99/most."""
    found = summary(list(times))
    return "/".join(f"{one:.1f}" if one < 100 else f"{one:,.0f}" for one in (found.p50, found.p99, found.worst))
