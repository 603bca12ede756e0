"""A row of the table: figures by contestant, which way is better, and the bar that ours must pass."""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

OURS = "Jobmeter"
VICTORIA = "VictoriaMetrics"
PROMETHEUS = "Prometheus"


class Better(StrEnum):
    """Which way a figure should go."""

    LOWER = "lower"
    HIGHER = "higher"


@dataclass(frozen=True)
class Bar:
    """Ours must be ``times`` as good as ``peer`` in the same run: 2 is half the time, or twice the rate.

    ``strict``: a draw does not pass.
    """

    text: str
    times: float = 1.0
    strict: bool = False
    peer: str = VICTORIA

    def passed(self, ratio: float) -> bool:
        """Whether a ratio (above 1: ours is better) is enough."""
        return ratio > self.times if self.strict else ratio >= self.times


FASTER = Bar("faster", strict=True)
MORE = Bar("more", strict=True)
HALF = Bar("at most half", 2.0)
TENTH = Bar("at most a tenth", 10.0)
AS_MANY = Bar("at least as many")
NO_MORE = Bar("at most that")


@dataclass
class Row:
    """One line of the table: the figures of each contestant are those of the rounds, the median is what counts."""

    name: str
    unit: str
    better: Better
    bar: Bar | None = None
    note: str = ""
    figures: dict[str, list[float]] = field(default_factory=dict)

    def add(self, contestant: str, value: float | None) -> None:
        """Keep one figure; None is one that could not be had."""
        if value is not None:
            self.figures.setdefault(contestant, []).append(value)

    def median(self, contestant: str) -> float | None:
        """The contestant's figure; None where it has none."""
        values = self.figures.get(contestant)
        return statistics.median(values) if values else None

    def ratio(self, peer: str) -> float | None:
        """How many times better ours is than that peer; below 1 it is worse. None where one of them has no figure."""
        mine, theirs = self.median(OURS), self.median(peer)
        if not mine or not theirs:
            return None
        return theirs / mine if self.better is Better.LOWER else mine / theirs

    def met(self) -> bool | None:
        """Whether the bar is met; None for a row without a bar, or whose peer has no figure."""
        ratio = self.ratio(self.bar.peer) if self.bar else None
        return None if ratio is None or self.bar is None else self.bar.passed(ratio)


def lower(name: str, unit: str, bar: Bar | None = None, note: str = "") -> Row:
    """A row whose figures should be small."""
    return Row(name, unit, Better.LOWER, bar, note)


def higher(name: str, unit: str, bar: Bar | None = None, note: str = "") -> Row:
    """A row whose figures should be large."""
    return Row(name, unit, Better.HIGHER, bar, note)


def joined(runs: Sequence[Iterable[Row]]) -> list[Row]:
    """The rows of several runs as one table: each figure is a run's median."""
    result: dict[str, Row] = {}
    for rows in runs:
        for row in rows:
            kept = result.setdefault(row.name, Row(row.name, row.unit, row.better, row.bar, row.note))
            for contestant in row.figures:
                kept.add(contestant, row.median(contestant))
    return list(result.values())


@dataclass(frozen=True)
class Verdict:
    """How often a bar was met, and the ratio of each run (above 1: ours is better)."""

    name: str
    bar: Bar
    met: int
    ratios: tuple[float, ...]


def verdicts(runs: Sequence[Iterable[Row]]) -> list[Verdict]:
    """What became of each bar, over the runs; one without a ratio could not be judged."""
    found: dict[str, tuple[Bar, list[float]]] = {}
    for rows in runs:
        for row in rows:
            ratio = row.ratio(row.bar.peer) if row.bar else None
            if row.bar is not None:
                found.setdefault(row.name, (row.bar, []))[1].extend([] if ratio is None else [ratio])
    return [Verdict(n, bar, sum(map(bar.passed, ratios)), tuple(ratios)) for n, (bar, ratios) in found.items()]
