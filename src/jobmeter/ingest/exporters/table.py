"""Series that other systems send, recognised by their encoded labels: everything in arrays, but what is new."""

import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jobmeter.errors import InvalidRequestError
from jobmeter.ingest.exporters.place import Placed, place
from jobmeter.ingest.join import distinct, used
from jobmeter.kernel.table import Texts, new_table
from jobmeter.model.batch import Float64s, Int64s, SampleBatch, Uint32s
from jobmeter.model.interner import SeriesInterner, SeriesList, current, listed
from jobmeter.model.time import MAX_TIME_MS

_MOST = 500_000
_MOST_BYTES = 512 * 2**20
"""Of all keys together: a sender chooses how long they are."""
_UNKNOWN = -1
_REASONS = ("name", "labels")
"""Why a series is not stored; its number is below ``_UNKNOWN``, in this order."""
_FIRST = 1024
_MOST_LISTED = 1_000_000
"""Keys in all the lists that are stored."""
_DIGITS = 12
"""Of a value in our unit. A percentage divided by 100 in binary carries noise in its last bits, which costs a column
codec several bytes a value; rounded to significant digits, it is again the number that a person would write."""
_EXACT = 22  # 10**22 is the largest power of ten that a double holds exactly

Place = Callable[[Any, str], Placed]
"""The place of what a sender calls a series, in a project. Raises InvalidRequestError naming metric or labels."""
_Names = tuple[str, str]
_Columns = tuple[Uint32s, Int64s, Float64s]


@dataclass(frozen=True, slots=True, eq=False)
class _List:
    """What the keys of a request mean, one after the other.

    ``series`` int64[n]: numbers of a interner; below ``_UNKNOWN``: why there is none. ``listed``: those that there are,
    each once, and ``places`` uint32[n] where each is among them (None: its own place). ``factors`` float64[n] (None:
    all are 1), ``lowest`` and ``highest`` float64[n]; a value between ``floor`` and ``ceiling`` is right for all.
    """

    series: Int64s
    listed: SeriesList
    places: Uint32s | None
    factors: Float64s | None
    lowest: Float64s
    highest: Float64s
    floor: float
    ceiling: float


class _LabelCache:
    """The labels of one project, by the number of their key: a series, and a rule for its values."""

    def __init__(self, interner: SeriesInterner) -> None:
        self.interner = interner
        self.table = new_table()
        self._series: Int64s = np.empty(_FIRST, np.int64)
        self._rules: Float64s = np.empty((3, _FIRST))

    def learn(self, keys: Texts, places: Sequence[Placed | str]) -> None:
        """Take in what some labels mean."""
        numbers = self.table.add(keys)
        more = len(self.table) - len(self._series)
        if more > 0:
            more = max(more, len(self._series))
            self._series = np.concatenate((self._series, np.empty(more, np.int64)))
            self._rules = np.concatenate((self._rules, np.empty((3, more))), axis=1)
        good = [at for at, placed in enumerate(places) if isinstance(placed, Placed)]
        found_places = [placed for placed in places if isinstance(placed, Placed)]
        refused = [_UNKNOWN - 1 - _REASONS.index(one) if isinstance(one, str) else 0 for one in places]
        self._series[numbers] = refused
        self._rules[:, numbers] = np.array([[1.0], [-np.inf], [np.inf]])
        self._series[numbers[good]] = self.interner.numbers([placed.series for placed in found_places])
        rules = [(one.factor, one.lowest, one.highest) for one in found_places]
        self._rules[:, numbers[good]] = np.reshape(rules, (-1, 3)).T

    def list(self, numbers: Int64s) -> _List:
        """What keys of these numbers mean."""
        series = self._series[numbers]
        factors, lowest, highest = (rule[numbers] for rule in self._rules)
        there = series >= 0
        own, places = distinct(self.interner, series[there])
        if not there.all():
            found = np.zeros(len(series), np.uint32)
            found[there] = np.arange(len(own), dtype=np.uint32) if places is None else places
            places = found
        plain = bool((factors == 1.0).all())
        floor, ceiling = float(lowest.max(initial=-np.inf)), float(highest.min(initial=np.inf))
        return _List(series, own, places, None if plain else factors, lowest, highest, floor, ceiling)


class Places:
    """Places of series, stored between requests. Safe for several threads.

    Half a million keys at most, and ``bound`` bytes of them, are cached at a time, of all projects together; then all
    are forgotten. What a list of keys means as a whole is stored too, up to a million keys; lists that did not come for
    longest go first.
    """

    def __init__(self, place: Place = place, bound: int | None = None) -> None:
        """``place``: by default, that of labels of Prometheus. ``bound``: bytes of all keys together."""
        self._place = place
        self._bound = _MOST_BYTES if bound is None else bound
        self._lock = threading.Lock()
        self._caches: dict[_Names, _LabelCache] = {}
        self._lists: OrderedDict[tuple[_Names, bytes], _List] = OrderedDict()
        self._listed = 0

    @property
    def size(self) -> int:
        """Bytes that the keys take."""
        with self._lock:
            return sum(cache.table.size for cache in self._caches.values())

    def batch(
        self,
        names: _Names,
        keys: Sequence[bytes],
        labels: Callable[[int], Any],
        columns: tuple[Uint32s, Int64s, Float64s],
    ) -> tuple[SampleBatch, Counter[str]]:
        """The samples that can be stored, and the count of the others by reason: name, labels, time, value.

        ``names``: the project and the kind of key. ``keys`` stand for the labels of the series, which ``labels`` reads
        by position; ``columns`` are index, time and value of the samples. Keys that come in the same order again give
        a batch with the very same list of series.
        """
        meant = self._look_up(names, Texts.of(keys), labels)
        refused: Counter[str] = Counter()
        index, time, value = _timely(*_described(meant, *columns, refused), refused)
        if meant.factors is not None:
            value = _in_our_units(value, meant.factors[index])
        if len(value) and not (value.min() >= meant.floor and value.max() <= meant.ceiling):
            good = (value >= meant.lowest[index]) & (value <= meant.highest[index])
            index, time, value = _selected(good, index, time, value, refused, "value")
        if meant.places is not None:
            index = meant.places[index]
        return used(listed(meant.listed, index, time, value)), +refused

    def _look_up(self, names: _Names, keys: Texts, labels: Callable[[int], Any]) -> _List:
        with self._lock:
            cache = self._of(names)
            numbers = cache.table.find(keys)
            missing = np.flatnonzero(numbers == _UNKNOWN)
            if not len(missing):
                return self._list(names, cache, numbers)
        # Outside of the lock: this takes a while, and others need not wait for it.
        places = [self._placed(labels, at, names[0]) for at in missing.tolist()]
        with self._lock:
            cache.learn(keys.take(missing), places)
            return self._list(names, cache, cache.table.find(keys))

    def _list(self, names: _Names, cache: _LabelCache, numbers: Int64s) -> _List:
        if self._caches.get(names) is not cache:  # forgotten meanwhile
            return cache.list(numbers)
        key = names, numbers.astype(np.uint32).tobytes()
        found = self._lists.get(key)
        if found is not None:
            self._lists.move_to_end(key)
            return found
        found = self._lists[key] = cache.list(numbers)
        self._listed += len(numbers)
        while self._listed > _MOST_LISTED and len(self._lists) > 1:
            self._listed -= len(self._lists.popitem(last=False)[1].series)
        return found

    def _of(self, names: _Names) -> _LabelCache:
        interner = current()
        cache = self._caches.get(names)
        tables = [cache.table for cache in self._caches.values()]
        full = sum(map(len, tables)) > _MOST or sum(table.size for table in tables) > self._bound
        if full or (cache is not None and cache.interner is not interner):
            # Numbers of keys begin anew, so that what is stored by them is of no use.
            self._caches.clear()
            self._lists.clear()
            self._listed = 0
            cache = None
        if cache is None:
            cache = self._caches[names] = _LabelCache(interner)
        return cache

    def _placed(self, labels: Callable[[int], Any], at: int, project: str) -> Placed | str:
        try:
            return self._place(labels(at), project)
        except InvalidRequestError as error:
            return "name" if error.field == "metric" else "labels"


def _described(meant: _List, index: Uint32s, time: Int64s, value: Float64s, refused: Counter[str]) -> _Columns:
    """The samples whose labels mean a series."""
    if not (meant.series < 0).any():
        return index, time, value
    row = meant.series[index]
    for at, reason in enumerate(_REASONS):
        refused[reason] += int(np.count_nonzero(row == _UNKNOWN - 1 - at))
    good = row >= 0
    return index[good], time[good], value[good]


def _timely(index: Uint32s, time: Int64s, value: Float64s, refused: Counter[str]) -> _Columns:
    """The samples between 1970 and 2100."""
    if not len(time) or (time.min() >= 0 and time.max() <= MAX_TIME_MS):
        return index, time, value
    return _selected((time >= 0) & (time <= MAX_TIME_MS), index, time, value, refused, "time")


def _selected(
    good: NDArray[np.bool_], index: Uint32s, time: Int64s, value: Float64s, refused: Counter[str], reason: str
) -> _Columns:
    refused[reason] += len(good) - int(np.count_nonzero(good))
    return index[good], time[good], value[good]


def _in_our_units(value: Float64s, factor: Float64s) -> Float64s:
    changed = factor != 1.0
    value = value.copy()
    value[changed] = round_significant(value[changed] * factor[changed])
    return value


def round_significant(values: Float64s) -> Float64s:
    """Each value as the double nearest to its decimal form of 12 significant digits. Infinities and NaN pass."""
    result = values.astype(np.float64)
    usual = np.isfinite(result) & (result != 0)
    magnitude = np.zeros(result.shape, np.int64)
    magnitude[usual] = np.floor(np.log10(np.abs(result[usual]))).astype(np.int64)
    shift = _DIGITS - 1 - magnitude
    # A whole number below 2**53 divided or multiplied by an exact power of ten rounds once: to the nearest double.
    small, large = usual & (shift >= 0) & (shift <= _EXACT), usual & (shift < 0) & (shift >= -_EXACT)
    power = 10.0 ** np.abs(shift).clip(0, _EXACT)
    result[small] = np.rint(result[small] * power[small]) / power[small]
    result[large] = np.rint(result[large] / power[large]) * power[large]
    for at in np.flatnonzero(usual & ~small & ~large).tolist():
        result[at] = float(f"{result[at]:.{_DIGITS - 1}e}")
    return result
