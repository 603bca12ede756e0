"""Sizes of a run: rounds, durations, and amounts of data."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.contestant import Contestant


@dataclass(frozen=True)
class Plan:
    """Size of a run. The names of rows hold for ``quick`` and ``full``; ``small`` only shows that everything works."""

    name: str = "quick"
    rounds: int = 3
    seconds: float = 1.0
    """Seconds of one round of queries."""
    day_hours: int = 24
    month_hours: int = 30 * 24
    months: int = 1
    """Number of imports of a month."""
    start_samples: int = 6_000_000
    log_lines: int = 10_000_000
    agents: int = 1_000
    series: int = 7_040
    agent_seconds: float = 20.0
    busy: int = 4
    """Processes in busy loops, which make the machine busy for some queries."""
    gentd26: Path | None = None
    """Folder of the trace GenTD26; None without the trace."""

    def turns(self, everybody: Sequence[Contestant]) -> Iterator[list[tuple[int, Contestant]]]:
        """Yield the contestants with their indexes in the order of each round. The order alternates."""
        places = list(enumerate(everybody))
        for turn in range(self.rounds):
            yield places if turn % 2 == 0 else places[::-1]


PLANS = {
    "small": Plan(
        "small",
        2,
        0.2,
        6,
        26,
        start_samples=200_000,
        agents=20,
        series=704,
        agent_seconds=2.0,
        busy=1,
        log_lines=1_000_100,
    ),
    "quick": Plan(),
    "full": Plan("full", rounds=5, seconds=4.0, months=3, agent_seconds=120.0),
}
"""Plans by the name that ``--scale`` takes."""
