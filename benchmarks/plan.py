"""How much of everything a run does."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

Someone = TypeVar("Someone")


@dataclass(frozen=True)
class Plan:
    """``seconds`` is the length of one round of questions; ``gentd26`` the folder of that trace, None without it."""

    rounds: int = 3
    seconds: float = 1.0
    agent_seconds: float = 30.0
    hours: float = 24 * 7
    """How far back the longest question reaches."""
    start_samples: int = 0
    """Samples of the folder with which the start is measured, at least; 0: those that are there anyhow."""
    tiers: bool = False
    """Whether to wait until random values are rolled up too, a minute or two."""
    gentd26: Path | None = None

    def turns(self, everybody: Sequence[Someone]) -> Iterator[list[Someone]]:
        """Who is asked in which order, round by round: it alternates."""
        for turn in range(self.rounds):
            yield list(everybody if turn % 2 == 0 else reversed(everybody))


def quick() -> Plan:
    """What ``make bench`` does."""
    return Plan()


def full() -> Plan:
    """What ``make bench-full`` does: longer rounds, a month of samples, the start with many."""
    return Plan(rounds=5, seconds=4.0, agent_seconds=120.0, hours=24 * 30, start_samples=10_000_000, tiers=True)
