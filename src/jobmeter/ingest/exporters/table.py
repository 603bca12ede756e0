"""Series that Prometheus sends, known again by their encoded labels: everything in arrays, but what is new."""

import threading
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from jobmeter.errors import InvalidRequestError
from jobmeter.ingest.exporters.place import Placed, place
from jobmeter.ingest.join import merged
from jobmeter.ingest.units import round_significant
from jobmeter.kernel.table import Texts, new_table
from jobmeter.model.batch import Float64s, Int64s, SampleBatch, Uint32s
from jobmeter.model.roster import Roster, current
from jobmeter.model.time import MAX_TIME_MS

_MOST = 500_000
_UNKNOWN = -1
_REASONS = ("name", "labels")
"""Why a series is not kept; its number is below ``_UNKNOWN``, in this order."""
_FIRST = 1024

Labels = Sequence[tuple[str, str]]
_Names = tuple[str, str]


class _Known:
    """What is known of the labels of one project, by the number of their key: a series, and a rule for its values."""

    def __init__(self, roster: Roster) -> None:
        self.roster = roster
        self.table = new_table()
        self.series: Int64s = np.empty(_FIRST, np.int64)
        self.rules: Float64s = np.empty((_FIRST, 3))

    def learn(self, keys: Texts, places: Sequence[Placed | str]) -> None:
        """Take in what some labels mean."""
        numbers = self.table.add(keys)
        more = len(self.table) - len(self.series)
        if more > 0:
            more = max(more, len(self.series))
            self.series = np.concatenate((self.series, np.empty(more, np.int64)))
            self.rules = np.concatenate((self.rules, np.empty((more, 3))))
        good = [at for at, placed in enumerate(places) if isinstance(placed, Placed)]
        kept = [placed for placed in places if isinstance(placed, Placed)]
        refused = [_UNKNOWN - 1 - _REASONS.index(one) if isinstance(one, str) else 0 for one in places]
        self.series[numbers] = refused
        self.rules[numbers] = 1.0, -np.inf, np.inf
        self.series[numbers[good]] = self.roster.numbers([placed.series for placed in kept])
        self.rules[numbers[good]] = np.reshape([(one.factor, one.lowest, one.highest) for one in kept], (-1, 3))


class Places:
    """Places of series, kept between requests. Safe for several threads.

    Half a million keys at most are known at a time, of all projects together; then all are forgotten.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[_Names, _Known] = {}

    def batch(
        self,
        names: _Names,
        keys: Sequence[bytes],
        labels: Callable[[int], Labels],
        columns: tuple[Uint32s, Int64s, Float64s],
    ) -> tuple[SampleBatch, Counter[str]]:
        """The samples that can be kept, and the count of the others by reason: name, labels, time, value.

        ``names``: the project and the kind of key. ``keys`` stand for the labels of the series, which ``labels`` reads
        by position; ``columns`` are index, time and value of the samples.
        """
        known, series, rules = self._look_up(names, Texts.of(keys), labels)
        index, time, value = columns
        refused: Counter[str] = Counter()
        if (series < 0).any():
            row = series[index]
            for at, reason in enumerate(_REASONS):
                refused[reason] += int(np.count_nonzero(row == _UNKNOWN - 1 - at))
            index, time, value = _kept(row >= 0, index, time, value)
        good = (time >= 0) & (time <= MAX_TIME_MS)
        refused["time"] += len(good) - int(np.count_nonzero(good))
        index, time, value = _kept(good, index, time, value)
        value = _in_our_units(value, rules[:, 0], index)
        good = (value >= rules[index, 1]) & (value <= rules[index, 2])
        refused["value"] += len(good) - int(np.count_nonzero(good))
        return _batch(known.roster, series, *_kept(good, index, time, value)), +refused

    def _look_up(self, names: _Names, keys: Texts, labels: Callable[[int], Labels]) -> tuple[_Known, Int64s, Float64s]:
        """For each key the number of its series (below 0: why there is none), and its rule."""
        with self._lock:
            known = self._of(names)
            numbers = known.table.find(keys)
            missing = np.flatnonzero(numbers == _UNKNOWN)
            if not len(missing):
                return known, known.series[numbers], known.rules[numbers]
        # Outside of the lock: this takes a while, and others need not wait for it.
        places = [_placed(labels, at, names[0]) for at in missing.tolist()]
        with self._lock:
            known.learn(keys.take(missing), places)
            numbers = known.table.find(keys)
            return known, known.series[numbers], known.rules[numbers]

    def _of(self, names: _Names) -> _Known:
        roster = current()
        if sum(len(known.table) for known in self._known.values()) > _MOST:
            self._known.clear()
        known = self._known.get(names)
        if known is None or known.roster is not roster:
            known = self._known[names] = _Known(roster)
        return known


def _placed(labels: Callable[[int], Labels], at: int, project: str) -> Placed | str:
    try:
        return place(labels(at), project)
    except InvalidRequestError as error:
        return "name" if error.field == "metric" else "labels"


def _kept(good: NDArray[np.bool_], index: Uint32s, time: Int64s, value: Float64s) -> tuple[Uint32s, Int64s, Float64s]:
    return (index, time, value) if good.all() else (index[good], time[good], value[good])


def _in_our_units(value: Float64s, factors: Float64s, index: Uint32s) -> Float64s:
    if (factors == 1.0).all():
        return value
    factor = factors[index]
    changed = factor != 1.0
    value = value.copy()
    value[changed] = round_significant(value[changed] * factor[changed])
    return value


def _batch(roster: Roster, series: Int64s, index: Uint32s, time: Int64s, value: Float64s) -> SampleBatch:
    """Only the series that have a sample, in the order in which the request has them."""
    there = np.bincount(index, minlength=len(series)) > 0
    if not there.all():
        index = (np.cumsum(there) - 1).astype(np.uint32)[index]
        series = series[there]
    return merged(roster, series, index, time, value)
