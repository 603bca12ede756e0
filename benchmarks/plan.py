"""How much of everything a run does."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.contestant import Contestant


@dataclass(frozen=True)
class Plan:
    """The names of rows say what ``quick`` and ``full`` measure; ``small`` only shows that everything works."""

    name: str = "quick"
    rounds: int = 3
    seconds: float = 1.0
    """The length of one round of questions."""
    day_hours: int = 24
    month_hours: int = 30 * 24
    months: int = 1
    """How often a month is imported."""
    start_samples: int = 6_000_000
    log_lines: int = 10_000_000
    agents: int = 1_000
    series: int = 7_040
    agent_seconds: float = 20.0
    busy: int = 4
    """Processes that only compute, beside a busy machine's questions."""
    gentd26: Path | None = None
    """The folder of that trace; None without it."""

    def turns(self, everybody: Sequence[Contestant]) -> Iterator[list[tuple[int, Contestant]]]:
        """Who is measured in which order, with its place, round by round: the order alternates."""
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
"""By the name that ``--scale`` takes."""
