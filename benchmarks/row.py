"""Rows of the table: the measured quantity, its better direction, Jobmeter's bar, and each contestant's figures."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

OURS = "Jobmeter"
VICTORIA = "VictoriaMetrics"
PROMETHEUS = "Prometheus"


class Better(StrEnum):
    """Direction in which a figure is better."""

    LOWER = "lower"
    HIGHER = "higher"


@dataclass(frozen=True)
class Bar:
    """Bar for Jobmeter's figure: ``times`` as good as that of ``peer`` in the same run.

    With ``times`` of 2 Jobmeter must take half the time or reach twice the rate. With ``strict`` an equal figure does
    not pass. With ``limit`` the figure must be at most that limit, or at least that if higher is better, and the peer
    does not matter.
    """

    text: str
    times: float = 1.0
    strict: bool = False
    limit: float | None = None
    peer: str = VICTORIA


FASTER = Bar("faster", strict=True)
MORE = Bar("more", strict=True)
HALF = Bar("at most half", 2.0)
TENTH = Bar("at most a tenth", 10.0)
AS_MANY = Bar("at least as many")
HALF_AS_MANY = Bar("at least half as many", 0.5)
NO_MORE = Bar("at most that")


def limit(value: float, unit: str) -> Bar:
    """Return a bar that needs no peer: at most ``value``."""
    return Bar(f"at most {value:g} {unit}", limit=value)


def at_least(value: float, unit: str) -> Bar:
    """Return a bar that needs no peer, for a row whose higher figures are better: at least ``value``."""
    return Bar(f"at least {value:,g} {unit}", limit=value)


@dataclass(frozen=True)
class Row:
    """Measured row. ``key`` begins with the name of its stage and a full stop."""

    key: str
    name: str
    unit: str
    better: Better | None = Better.LOWER
    """Better direction; None if neither direction is better."""
    bar: Bar | None = None

    @property
    def stage(self) -> str:
        """Return the name of the stage that measures the row."""
        return self.key.partition(".")[0]


@dataclass
class Result:
    """Figures of a row by contestant, one for each round. Their median counts.

    ``failure`` is the reason why the row is void, empty for a valid row.
    """

    row: Row
    figures: dict[str, list[float]] = field(default_factory=dict)
    failure: str = ""
    notes: list[str] = field(default_factory=list)

    def add(self, contestant: str, value: float | None) -> None:
        """Add one figure; None stands for a figure that could not be measured and is ignored."""
        if value is not None:
            self.figures.setdefault(contestant, []).append(value)

    def median(self, contestant: str) -> float | None:
        """Return the median of a contestant's figures, or None without any."""
        values = self.figures.get(contestant)
        return statistics.median(values) if values else None

    def ratio(self, peer: str) -> float | None:
        """Return how many times better Jobmeter is than a peer; below 1 Jobmeter is worse.

        Returns None if one of them has no figure, or if neither direction is better.
        """
        mine, theirs = self.median(OURS), self.median(peer)
        if not mine or not theirs or self.row.better is None:
            return None
        return theirs / mine if self.row.better is Better.LOWER else mine / theirs

    def met(self) -> bool | None:
        """Return True if the bar is met, or None for a row without a bar or without the figures to judge it.

        A void row does not meet its bar.
        """
        bar, mine = self.row.bar, self.median(OURS)
        if bar is None:
            return None
        if self.failure:
            return False
        if bar.limit is not None:
            if mine is None:
                return None
            return mine >= bar.limit if self.row.better is Better.HIGHER else mine <= bar.limit
        ratio = self.ratio(bar.peer)
        if ratio is None:
            return None
        return ratio > bar.times if bar.strict else ratio >= bar.times


class Table:
    """Results of one run for the chosen rows. Figures of other rows are dropped."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._results = {row.key: Result(row) for row in rows}

    @property
    def results(self) -> list[Result]:
        """Return the results that have figures or a failure, in the order of the rows."""
        return [one for one in self._results.values() if one.figures or one.failure]

    @property
    def stages(self) -> list[str]:
        """Return the names of the stages that the rows need, without duplicates, in the order of the rows."""
        return list(dict.fromkeys(one.row.stage for one in self._results.values()))

    @property
    def passed(self) -> bool:
        """Return True if every bar is met and no row is void. A bar that could not be judged is not met."""
        return all(one.met() if one.row.bar else not one.failure for one in self._results.values())

    def add(self, key: str, contestant: str, value: float | None) -> None:
        """Add a figure to a row."""
        if key in self._results:
            self._results[key].add(contestant, value)

    def fail(self, prefix: str, reason: str) -> None:
        """Void the rows whose keys start with ``prefix``; do nothing if the reason is empty."""
        for key, result in self._results.items():
            if reason and key.startswith(prefix):
                result.failure = result.failure or reason

    def note(self, key: str, text: str) -> None:
        """Add a remark to a row, unless the remark is empty or the row already has it."""
        result = self._results.get(key)
        if result and text and text not in result.notes:
            result.notes.append(text)


def joined(tables: Sequence[Table]) -> list[Result]:
    """Join the results of several runs.

    The figures of a row are then the medians of the runs. A failure in one run is a failure of the joined row.
    """
    if len(tables) == 1:
        return tables[0].results
    whole: dict[str, Result] = {}
    for table in tables:
        for result in table.results:
            one = whole.setdefault(result.row.key, Result(result.row, notes=result.notes))
            one.failure = one.failure or result.failure
            for contestant in result.figures:
                one.add(contestant, result.median(contestant))
    return list(whole.values())


def verdict(row: Row, tables: Sequence[Table]) -> str:
    """Return ``met``, ``NOT MET`` or ``not measured``; over several runs how often; empty without a bar."""
    if row.bar is None:
        return ""
    judged = [one.met() for table in tables for one in table.results if one.row.key == row.key]
    counted = [one for one in judged if one is not None]
    if not counted:
        return "not measured"
    if len(tables) == 1:
        return "met" if counted[0] else "NOT MET"
    return f"met in {sum(counted)} of {len(counted)}"
