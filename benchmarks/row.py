"""A row of the table: what is measured, which way is better, the bar for ours, and the figures of each contestant."""

import statistics
from collections.abc import Sequence
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

    ``strict``: a draw does not pass. ``limit``: ours must be at most that (at least, where higher is
    better), whatever the peer has.
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
    """A bar that needs no peer."""
    return Bar(f"at most {value:g} {unit}", limit=value)


def at_least(value: float, unit: str) -> Bar:
    """The same for a row of which more is better."""
    return Bar(f"at least {value:,g} {unit}", limit=value)


@dataclass(frozen=True)
class Row:
    """Measured row. ``key`` begins with the name of its stage and a full stop."""

    key: str
    name: str
    unit: str
    better: Better | None = Better.LOWER
    """None where neither way is better."""
    bar: Bar | None = None

    @property
    def stage(self) -> str:
        """The stage that measures it."""
        return self.key.partition(".")[0]


@dataclass
class Result:
    """The figures of a row by contestant, one a round; their median counts. ``failure``: why the row is void."""

    row: Row
    figures: dict[str, list[float]] = field(default_factory=dict)
    failure: str = ""
    notes: list[str] = field(default_factory=list)

    def add(self, contestant: str, value: float | None) -> None:
        """Add one figure; None is one that could not be measured."""
        if value is not None:
            self.figures.setdefault(contestant, []).append(value)

    def median(self, contestant: str) -> float | None:
        """The contestant's figure; None where it has none."""
        values = self.figures.get(contestant)
        return statistics.median(values) if values else None

    def ratio(self, peer: str) -> float | None:
        """How many times better ours is than that peer; below 1 it is worse. None where one of them has no figure."""
        mine, theirs = self.median(OURS), self.median(peer)
        if not mine or not theirs or self.row.better is None:
            return None
        return theirs / mine if self.row.better is Better.LOWER else mine / theirs

    def met(self) -> bool | None:
        """Whether the bar is met; None for a row without a bar, or without the figures to judge it."""
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
    """The results of one run: of the rows that were chosen. Figures of other rows are dropped."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._results = {row.key: Result(row) for row in rows}

    @property
    def results(self) -> list[Result]:
        """Those with figures or a failure, in the order of the rows."""
        return [one for one in self._results.values() if one.figures or one.failure]

    @property
    def stages(self) -> list[str]:
        """The stages that the rows need, each once, in their order."""
        return list(dict.fromkeys(one.row.stage for one in self._results.values()))

    @property
    def passed(self) -> bool:
        """Whether every bar is met and no row is void; a bar that could not be judged is not met."""
        return all(one.met() if one.row.bar else not one.failure for one in self._results.values())

    def add(self, key: str, contestant: str, value: float | None) -> None:
        """Add a figure to a row."""
        if key in self._results:
            self._results[key].add(contestant, value)

    def fail(self, prefix: str, reason: str) -> None:
        """Void the rows whose keys begin so; nothing happens when the reason is empty."""
        for key, result in self._results.items():
            if reason and key.startswith(prefix):
                result.failure = result.failure or reason

    def note(self, key: str, text: str) -> None:
        """Add a remark to a row, once; nothing happens when it is empty."""
        result = self._results.get(key)
        if result and text and text not in result.notes:
            result.notes.append(text)


def joined(tables: Sequence[Table]) -> list[Result]:
    """The results of several runs as one: each figure is the median of a run, a failure in one of them is one."""
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
    """``met``, ``not met`` or ``not measured``, over several runs how often; empty without a bar."""
    if row.bar is None:
        return ""
    judged = [one.met() for table in tables for one in table.results if one.row.key == row.key]
    counted = [one for one in judged if one is not None]
    if not counted:
        return "not measured"
    if len(tables) == 1:
        return "met" if counted[0] else "NOT MET"
    return f"met in {sum(counted)} of {len(counted)}"
