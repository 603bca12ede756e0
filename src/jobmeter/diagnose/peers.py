"""Compares the members of a job that do the same: which of them stand apart from the others, when, and by how much.

Members are compared in windows of equal length, whatever the times of their samples. In each window a member's mean is
compared with the median of the others, in units of their median absolute deviation (MAD). Windows in which all members
pause, for example for a checkpoint, are skipped. Short windows show when a difference began. In longer windows noise
averages out, and small differences show.
"""

import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from types import MappingProxyType

import msgspec
import numpy as np

from jobmeter.diagnose.signal import Member, Signal, compute_median
from jobmeter.diagnose.thresholds import Numbers
from jobmeter.model.batch import Bools, Float64s, Int64s
from jobmeter.query.stretches import Stretch, find_steady_stretches

WINDOWS = 10
"""Shortest windows in the hold time of a rule."""
_COARSER = 4
"""Number of windows that become one of the next length."""
_FEWEST = 3
"""Fewest windows in which a member differs."""
_FEW = 8
"""Most members for which each is compared with the others alone: it would move the median of all."""
_NORMAL = 0.6745
"""The MAD of a normal distribution over its standard deviation."""
_TAIL = 0.05
"""Share of the lowest and of the highest members that is ignored in the range of all members."""
_ALIKE = 1 / 3
"""A member was like the others before if it differed by less than this share of its present difference."""
_TURNS = 0.25
"""A member takes turns with others if it differs in the other direction for this share of the rest of the time."""
_PAUSE = 0.5
"""Members pause together while their median is below this share of its usual level."""


class PeerDifference(msgspec.Struct, frozen=True, eq=False):
    """Differences of members in one metric, float64[member, window] each; NaN for a member without samples.

    ``value`` has their means, ``others`` the medians of the other members. ``score`` is the distance from the others in
    units of their spread (a modified z-score), below 0 for a lower member, 0 if unknown.
    """

    value: Float64s
    others: Float64s
    score: Float64s
    relative: Float64s
    """Distance of each member from the others, as a share of their median; 0 where unknown."""
    floor: float

    def find_far(self, least: float) -> Bools:
        """Return the windows in which a member's score is above ``least``, on the side of most of its differences."""
        beyond = np.where(np.abs(self.score) > least, self.score, 0.0)
        side = np.sign(np.sign(beyond).sum(axis=1, keepdims=True))
        found: Bools = beyond * side > 0
        return found

    @classmethod
    def compare(cls, value: Float64s, floor: float) -> "PeerDifference":
        """Compare members; the spread of the others counts as at least ``floor``, a share of their median."""
        others, spread = _measure_others(value)
        size = np.abs(others)
        with np.errstate(invalid="ignore", divide="ignore"):
            score = _NORMAL * (value - others) / np.maximum(np.maximum(spread, floor * size), 1e-12)
            relative = np.where(size > 0, (value - others) / size, 0.0)
        return cls(value, others, np.nan_to_num(score), np.nan_to_num(relative), floor)


class Outlier(msgspec.Struct, frozen=True, eq=False):
    """A member that stood apart from ``start`` to ``end``, in the ``windows`` bool[window].

    ``changed`` is True if it was like the others before.
    """

    row: int
    member: Member
    signal: Signal
    start: int
    end: int
    windows: Bools
    changed: bool


class Peers(msgspec.Struct, frozen=True, eq=False):
    """Members that do the same, in windows of ``length`` ms at the times ``time`` int64[window] of their work.

    ``signals`` has one signal of each member, ``metrics`` their differences.
    """

    signals: Sequence[Signal]
    time: Int64s
    length: int
    metrics: Mapping[str, PeerDifference]

    def __len__(self) -> int:
        return len(self.signals)

    @property
    def shape(self) -> tuple[int, int]:
        """Number of members and of windows."""
        return len(self.signals), len(self.time)

    def find_outliers(
        self, apart: Bools, numbers: Numbers, least: int = 1, weaker: Bools | None = None
    ) -> list[Outlier]:
        """Return the few members for which a condition, bool[member, window], lasted for the hold time.

        Noise may hide the condition at first: an outlier begins where the ``weaker`` condition began to last.
        ``share`` is the share of that time in which the condition must hold. If more members than the share ``most``
        always differed, they do so by design. Of few members, ``least`` may differ. If more than a third of the members
        differ, and more than two of five, the odd ones cannot be told apart, and none is returned.
        """
        rows = np.flatnonzero(apart.any(axis=1)).tolist()
        weaker = apart if weaker is None else apart | weaker
        found = [one for row in rows if (one := self._make_outlier(row, apart, weaker, numbers))]
        if len(self) == 2 and len(found) == 2:  # either may be the odd one: the lower one is named
            found = [min(found, key=self._measure_height)]
        lasting = [one for one in found if not one.changed]
        changed = [one for one in found if one.changed]
        if len(lasting) > max(least, numbers["most"] * len(self)) and not self._share_one_node(lasting):
            lasting = []
        odd = [*lasting, *changed]
        return odd if len(odd) <= max(1.0, len(self) / 3, min(len(self) // 2.5, 2.0)) else []

    def _measure_height(self, one: Outlier) -> float:
        """Return the distance of an outlier above the others, over all metrics together."""
        return sum(self.measure_distance(metric, one) for metric in self.metrics)

    def _find_stretches(self, condition: Bools, numbers: Numbers) -> list[Stretch]:
        """Return the stretches of at least the hold time in which a condition, bool[window], held."""
        begin = self.length * np.arange(len(self.time), dtype=np.int64)  # without the pauses
        hold_ms = max(numbers["hold"], _FEWEST * self.length)
        return find_steady_stretches(begin, begin + self.length, condition, hold_ms, numbers["share"])

    def _make_outlier(self, row: int, apart: Bools, weaker: Bools, numbers: Numbers) -> Outlier | None:
        stretches = self._find_stretches(apart[row], numbers)
        if not stretches:
            return None
        last, longest = stretches[-1], max(stretches, key=lambda stretch: stretch.length)
        half = numbers["hold"] / 2 / self.length
        one = last if last.last >= len(self.time) - 1 - half else longest
        windows = np.zeros(len(self.time), np.bool_)
        windows[one.first : one.last + 1] = apart[row, one.first : one.last + 1]
        rest = np.arange(len(windows))
        if self._takes_turns(row, windows, (rest < one.first) | (rest > one.last)):
            return None
        around = self._find_stretches(weaker[row], numbers)
        first = next((other.first for other in around if other.first <= one.first <= other.last), one.first)
        start, end = int(self.time[first]), int(self.time[one.last]) + self.length
        signal = self.signals[row]
        before = (rest < first) & (self.time >= signal.time[0])
        changed = int(before.sum()) >= max(half, _FEWEST) and self._was_alike(row, windows, before)
        return Outlier(row, signal.member, signal, start, end, windows, changed)

    def _was_alike(self, row: int, windows: Bools, before: Bools) -> bool:
        """True if a member was near the others before, in its farthest metric."""
        relative = self._find_farthest_metric(row, windows)
        return float(np.abs(relative[before]).mean()) < _ALIKE * abs(float(relative[windows].mean()))

    def _takes_turns(self, row: int, windows: Bools, rest: Bools) -> bool:
        """True if a member differs in the other direction for much of the other windows, and for half as long."""
        relative = self._find_farthest_metric(row, windows)
        distance = float(relative[windows].mean())
        reverse = rest & (relative * np.sign(distance) < -_ALIKE * abs(distance))
        return int(reverse.sum()) >= max(int(windows.sum()) / 2, _TURNS * int(rest.sum()))

    def _find_farthest_metric(self, row: int, windows: Bools) -> Float64s:
        """Return a member's relative distances from the others, in its farthest metric in the windows."""
        relative = [one.relative[row] for one in self.metrics.values()]
        return max(relative, key=lambda one: abs(float(one[windows].mean())))

    def coarsen(self) -> "Peers | None":
        """Return the same members in windows of several times the length, while there are enough windows."""
        count = len(self.time) // _COARSER
        if count < _FEWEST + 1:
            return None
        first = len(self.time) - count * _COARSER  # the newest windows are complete
        metrics = {}
        for metric, one in self.metrics.items():
            parts = one.value[:, first:].reshape(len(self), count, _COARSER)
            metrics[metric] = PeerDifference.compare(
                _means(parts.reshape(-1, _COARSER)).reshape(len(self), count), one.floor
            )
        return Peers(self.signals, self.time[first::_COARSER], self.length * _COARSER, metrics)

    def _share_one_node(self, odd: Sequence[Outlier]) -> bool:
        """True if the outliers are on one of at least four nodes: a slow node slows all of its members."""
        nodes = {signal.node for signal in self.signals}
        return len(nodes) >= 4 and len({one.signal.node for one in odd}) == 1

    def average_members(self, metric: str, windows: Bools) -> Float64s:
        """Return the mean of each member in some windows, float64[member]."""
        return _means(self.metrics[metric].value[:, windows])

    def measure_distance(self, metric: str, one: Outlier) -> float:
        """Return the mean distance of an outlier from the others, as a share of their median."""
        return float(self.metrics[metric].relative[one.row, one.windows].mean())

    def is_parted(self, metric: str, one: Outlier, odd: AbstractSet[int], gap: float) -> bool:
        """True if a gap separates an outlier from all other members: at least the share ``gap`` of their range."""
        levels = self.average_members(metric, one.windows)
        rest = np.delete(levels, sorted(odd))
        rest = rest[~np.isnan(rest)]
        if not len(rest) or np.isnan(levels[one.row]):
            return False
        low, high = np.quantile(rest, (_TAIL, 1 - _TAIL), method="closest_observation").tolist()
        distance = max(float(rest.min()) - levels[one.row], levels[one.row] - float(rest.max()))
        return bool(distance > gap * (high - low))


def iterate_peers(
    signals: Mapping[str, Sequence[Signal]],
    load: Sequence[str],
    least: float,
    floors: Mapping[str, float],
    numbers: Numbers,
    models: Mapping[Member, Hashable] = MappingProxyType({}),
) -> Iterator[list[Peers]]:
    """Yield the members of each role for a comparison, in all their metrics, in shorter and longer windows.

    ``load`` are metrics for how busy members are; the first one with samples decides about pauses. A role has at least
    ``least`` members. ``floors`` are the smallest spreads of metrics. Members of different ``models`` are not compared.
    """
    by_role: dict[Hashable, dict[str, list[Signal]]] = {}
    for metric, some in signals.items():
        for signal in some:
            like = name_role(signal), models.get(signal.member)
            by_role.setdefault(like, {}).setdefault(metric, []).append(signal)
    for own in by_role.values():
        everything = [signal for some in own.values() for signal in some]
        one_of_each = list({signal.member: signal for signal in everything}.values())
        start, end = min(int(one.time[0]) for one in everything), max(one.span[1] for one in everything)
        if len(one_of_each) < least or end - start < numbers["hold"]:
            continue
        length = max(int(numbers["hold"] / WINDOWS), 2 * max(one.interval for one in everything), 1)
        rows = {signal.member: row for row, signal in enumerate(one_of_each)}
        values = {
            metric: _fill_windows(some, rows, start, length, -(-(end - start) // length))
            for metric, some in own.items()
        }
        busy = ~_pauses(next((values[name] for name in load if name in values), None), next(iter(values.values())))
        time = (start + length * np.arange(len(busy), dtype=np.int64))[busy]
        metrics = {metric: PeerDifference.compare(value[:, busy], floors[metric]) for metric, value in values.items()}
        peers: Peers | None = Peers(one_of_each, time, length, metrics)
        scales: list[Peers] = []
        while peers is not None:
            scales.append(peers)
            peers = peers.coarsen()
        yield scales


def name_role(signal: Signal) -> str:
    """Return the common name of members that do the same: the name of their replica without its number."""
    return re.sub(r"\d+$", "", signal.replica)


def _fill_windows(
    signals: Sequence[Signal], rows: Mapping[Member, int], start: int, length: int, count: int
) -> Float64s:
    found = np.full((len(rows), count), np.nan)
    for signal in signals:
        place = (signal.time - start) // length
        number = np.bincount(place, minlength=count)
        total = np.bincount(place, signal.value, count)
        np.divide(total, number, out=found[rows[signal.member]], where=number > 0)
    return found


def _pauses(load: Float64s | None, other: Float64s) -> Bools:
    """Return the windows to skip, bool[window]: a pause of all members, or no measurement.

    In a pause the median of the members falls far below its usual level. If the usual level itself is far below the
    level of the busiest member, one member computes while the others wait. Then the busiest member has to fall, too.
    """
    value = other if load is None else load
    missing: Bools = np.logical_and.reduce(np.isnan(value), axis=0)
    if load is None or missing.all():
        return missing
    middle, highest = np.nan_to_num(compute_median(value)), np.nan_to_num(value).max(axis=0)
    quiet = _is_far_below_usual(middle)
    if np.median(middle[~missing]) < _PAUSE * np.median(highest[~missing]):
        quiet &= _is_far_below_usual(highest)
    return quiet | missing


def _is_far_below_usual(level: Float64s) -> Bools:
    """Return in which windows a level falls below a share of its median without zeros, bool[window]."""
    above = level[level > 0]
    found: Bools = level < (_PAUSE * float(np.median(above)) if len(above) else 0.0)
    return found


def _measure_others(value: Float64s) -> tuple[Float64s, Float64s]:
    """Return the median and the MAD of the other members, float64[member, window] each."""
    if len(value) > _FEW:
        middle = compute_median(value)
        spread = compute_median(np.abs(value - middle))
        return np.broadcast_to(middle, value.shape), np.broadcast_to(spread, value.shape)
    rows = np.arange(len(value))
    rest = value[[np.delete(rows, row) for row in rows]]  # float64[member, other, window]
    middle = compute_median(rest, axis=1)
    return middle, compute_median(np.abs(rest - middle[:, np.newaxis]), axis=1)


def _means(value: Float64s) -> Float64s:
    """Return the mean of each row; NaN for one without values."""
    found = np.full(len(value), np.nan)
    measured = ~np.isnan(value).all(axis=1)
    found[measured] = np.nanmean(value[measured], axis=1)
    return found
