"""Resolves the series of other systems by their encoded labels, in arrays; only new labels are parsed."""

import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from jobmeter.errors import InvalidRequestError
from jobmeter.ingest.exporters.resolve import ResolvedSeries, resolve
from jobmeter.ingest.join import drop_unused
from jobmeter.kernel.text_table import Texts, TextTable
from jobmeter.model.batch import Float64s, Int64s, SampleBatch, SeriesKeys, Uint32s, Uint64s
from jobmeter.model.series_table import Names, SeriesList, SeriesTable, find_distinct, list_of, make_batch
from jobmeter.model.special import STALE_CODE
from jobmeter.model.time import DAY, MAX_TIME_MS

_MOST = 500_000
_MOST_BYTES = 512 * 2**20
"""Most bytes of all keys together: a sender chooses their length."""
_UNKNOWN = -1
_NEVER = 2**62
_REASONS = ("name", "labels")
"""Reasons to reject a series, by number."""
_ACCEPTED = len(_REASONS)
ABSENT = "absent"
"""Reason for a value that means that there is no measurement. The answer does not mention it."""
_NO_RULE = np.array([[1.0], [-np.inf], [np.inf], [-np.inf], [np.inf]])
"""Factor, bounds and ``measured`` of a series without a rule; see ``ResolvedSeries``."""
_FIRST = 1024
_MOST_LISTED = 1_000_000
"""Most keys in all cached lists."""
_DIGITS = 12
"""Significant digits of a converted value.

A percentage divided by 100 in binary has noise in its last bits, which costs a column codec several bytes a value.
Rounding gives back the number that a person would write.
"""
_EXACT = 22  # 10**22 is the largest power of ten that a double holds exactly

Resolve = Callable[[Any, str], ResolvedSeries]
"""Resolves a sender's description of a series, in a project. Raises InvalidRequestError naming metric or labels."""
_Names = tuple[str, str]
_Columns = tuple[Uint32s, Int64s, Float64s]


@dataclass(frozen=True, slots=True, eq=False)
class _ResolvedKeys:
    """The series of a request's keys, one after the other.

    ``reasons`` int64[n]: the number of the reason of a rejection, ``_ACCEPTED`` without one. ``listed``: the accepted
    series, each once. ``places`` uint32[n]: the position of each key's series in ``listed`` (None: the key's own
    position). ``factors`` float64[n] (None: all are 1), ``lowest`` and ``highest`` float64[n], ``measured``
    float64[2, n], see ``ResolvedSeries``. A value between ``floor`` and ``ceiling`` is valid for every series.
    """

    reasons: Int64s
    listed: SeriesList
    places: Uint32s | None
    factors: Float64s | None
    lowest: Float64s
    highest: Float64s
    measured: Float64s
    floor: float
    ceiling: float


class SentLabels(NamedTuple):
    """Samples that store the sent labels of mapped series; see ``ResolvedSeries.sent``.

    ``confirm`` is to be called when they are durable. The labels are then left out for the rest of the day.
    """

    batch: SampleBatch
    confirm: Callable[[], None]


class ResolvedBatch(NamedTuple):
    """The valid samples of a request, the number of rejected samples by reason, and labels that are to be stored."""

    batch: SampleBatch
    refused: Counter[str]
    sent: SentLabels | None


class _LabelCache:
    """The resolved labels of one project, by the number of their key: a series, and a rule for its values.

    ``_sent`` has the series that holds the sent labels, and ``_days`` the day of its last sample (``_NEVER``: there is
    no such series).
    The series objects come from ``series_table``, in one generation.
    """

    def __init__(self, series_table: SeriesTable) -> None:
        self._series_table = series_table
        self.generation = series_table.generation
        self.table = TextTable()
        self._reasons: Int64s = np.empty(_FIRST, np.int64)
        self._days: Int64s = np.empty(_FIRST, np.int64)
        self._names: Names = np.empty(_FIRST, np.object_)
        self._sent: Names = np.empty(_FIRST, np.object_)
        self._keys: Uint64s = np.empty((2, _FIRST), np.uint64)
        self._rules: Float64s = np.empty((len(_NO_RULE), _FIRST))

    def add(self, keys: Texts, results: Sequence[ResolvedSeries | str]) -> None:
        """Add the series of some keys."""
        numbers = self.table.add(keys)
        more = len(self.table) - len(self._days)
        if more > 0:
            more = max(more, len(self._days))
            columns = self._reasons, self._days, self._names, self._sent, self._keys, self._rules
            self._reasons, self._days, self._names, self._sent, self._keys, self._rules = (
                np.concatenate((one, np.empty((*one.shape[:-1], more), one.dtype)), axis=-1) for one in columns
            )
        good = [at for at, result in enumerate(results) if isinstance(result, ResolvedSeries)]
        accepted = [result for result in results if isinstance(result, ResolvedSeries)]
        self._reasons[numbers] = [_REASONS.index(one) if isinstance(one, str) else _ACCEPTED for one in results]
        self._rules[:, numbers] = _NO_RULE
        series = self._series_table.intern([one.series for one in accepted])
        self._names[numbers[good]] = series.names
        self._keys[:, numbers[good]] = series.keys.job, series.keys.series
        self._days[numbers] = _NEVER
        mapped = [at for at, one in zip(good, accepted, strict=True) if one.sent is not None]
        sent = [one.sent for one in accepted if one.sent is not None]
        self._sent[numbers[mapped]], self._days[numbers[mapped]] = self._series_table.intern(sent).names, _UNKNOWN
        rules = [(one.factor, one.lowest, one.highest, *one.measured) for one in accepted]
        self._rules[:, numbers[good]] = np.reshape(rules, (-1, len(_NO_RULE))).T

    def look_up(self, numbers: Int64s) -> _ResolvedKeys:
        """Return the series of the keys with these numbers."""
        reasons = self._reasons[numbers]
        factors, lowest, highest, *measured = (rule[numbers] for rule in self._rules)
        there = reasons == _ACCEPTED
        accepted = numbers[there]
        own, places = find_distinct(SeriesList(self._names[accepted], SeriesKeys(*self._keys[:, accepted])))
        if not there.all():
            found = np.zeros(len(numbers), np.uint32)
            found[there] = np.arange(len(own), dtype=np.uint32) if places is None else places
            places = found
        plain = bool((factors == 1.0).all())
        floor = float(max(lowest.max(initial=-np.inf), measured[0].max(initial=-np.inf)))
        ceiling = float(min(highest.min(initial=np.inf), measured[1].min(initial=np.inf)))
        bounds = lowest, highest, np.array(measured)
        return _ResolvedKeys(reasons, own, places, None if plain else factors, *bounds, floor, ceiling)

    def find_unconfirmed(self, numbers: Int64s, day: int) -> Int64s:
        """Return the keys whose sent labels are not stored on that day."""
        due: Int64s = numbers[self._days[numbers] < day]
        return due

    def find_sent(self, numbers: Int64s) -> SeriesList:
        """Return the series that hold the sent labels of these keys."""
        return find_distinct(list_of(self._sent[numbers].tolist()))[0]

    def confirm(self, numbers: Int64s, day: int) -> None:
        """Leave these keys out of ``find_unconfirmed`` for a day."""
        self._days[numbers] = day


class LabelResolver:
    """Resolves labels to series, and caches the results between requests. Safe for several threads.

    The cache holds at most half a million keys, and ``bound`` bytes of keys, of all projects together; when it is full,
    it is emptied. Whole lists of keys are cached too, up to a million keys; the least recently used lists are dropped.
    """

    def __init__(
        self, series_table: SeriesTable | None = None, resolve: Resolve = resolve, bound: int | None = None
    ) -> None:
        """``resolve`` is for Prometheus labels by default. ``bound``: bytes of all keys together."""
        self._series_table = SeriesTable() if series_table is None else series_table
        self._resolve = resolve
        self._bound = _MOST_BYTES if bound is None else bound
        self._lock = threading.Lock()
        self._caches: dict[_Names, _LabelCache] = {}
        self._lists: OrderedDict[tuple[_Names, bytes], _ResolvedKeys] = OrderedDict()
        self._listed = 0

    @property
    def size(self) -> int:
        """Bytes of the keys."""
        with self._lock:
            return sum(cache.table.size for cache in self._caches.values())

    def resolve_batch(
        self,
        names: _Names,
        keys: Sequence[bytes],
        labels: Callable[[int], Any],
        columns: tuple[Uint32s, Int64s, Float64s],
        now_ms: int | None = None,
    ) -> ResolvedBatch:
        """Return the valid samples, and the number of rejected ones by reason: name, labels, time, ``ABSENT``, value.

        At ``now_ms``, the result also has the sent labels that are not stored yet on this day; None leaves them out.
        ``names``: the project and the kind of key. ``keys`` stand for the labels of the series, which ``labels`` reads
        by position; ``columns`` are index, time and value of the samples. Keys in the same order again give a batch
        with the same list object of series.
        """
        resolved, sent = self._look_up(names, Texts.from_texts(keys), labels, now_ms)
        refused: Counter[str] = Counter()
        index, time, value = _select_timely(*_select_resolved(resolved, *columns, refused), refused)
        if resolved.factors is not None:
            value = _convert_units(value, resolved.factors[index])
        if len(value) and not (value.min() >= resolved.floor and value.max() <= resolved.ceiling):
            for bounds, reason in ((resolved.measured, ABSENT), ((resolved.lowest, resolved.highest), "value")):
                good = (value >= bounds[0][index]) & (value <= bounds[1][index])
                index, time, value = _select_and_count(good, index, time, value, refused, reason)
        if resolved.places is not None:
            index = resolved.places[index]
        return ResolvedBatch(drop_unused(make_batch(resolved.listed, index, time, value)), +refused, sent)

    def _look_up(
        self, names: _Names, keys: Texts, labels: Callable[[int], Any], now_ms: int | None
    ) -> tuple[_ResolvedKeys, SentLabels | None]:
        with self._lock:
            cache = self._find_cache(names)
            numbers = cache.table.find(keys)
            missing = np.flatnonzero(numbers == _UNKNOWN)
            if not len(missing):
                return self._list(names, cache, numbers), self._sent(cache, numbers, now_ms)
        # Outside of the lock: resolving takes a while, and other threads must not wait for it.
        results = [self._resolve_or_explain(labels, at, names[0]) for at in missing.tolist()]
        with self._lock:
            cache.add(keys.take(missing), results)
            numbers = cache.table.find(keys)
            return self._list(names, cache, numbers), self._sent(cache, numbers, now_ms)

    def _sent(self, cache: _LabelCache, numbers: Int64s, now_ms: int | None) -> SentLabels | None:
        if now_ms is None or not len(numbers := cache.find_unconfirmed(numbers, now_ms // DAY)):
            return None
        series = cache.find_sent(numbers)
        index = np.arange(len(series), dtype=np.uint32)
        batch = make_batch(series, index, np.full(len(series), now_ms, np.int64), np.full(len(series), STALE_CODE))
        return SentLabels(batch, partial(self._confirm, cache, numbers, now_ms // DAY))

    def _confirm(self, cache: _LabelCache, numbers: Int64s, day: int) -> None:
        with self._lock:
            cache.confirm(numbers, day)

    def _list(self, names: _Names, cache: _LabelCache, numbers: Int64s) -> _ResolvedKeys:
        if self._caches.get(names) is not cache:  # dropped meanwhile
            return cache.look_up(numbers)
        key = names, numbers.astype(np.uint32).tobytes()
        found = self._lists.get(key)
        if found is not None:
            self._lists.move_to_end(key)
            return found
        found = self._lists[key] = cache.look_up(numbers)
        self._listed += len(numbers)
        while self._listed > _MOST_LISTED and len(self._lists) > 1:
            self._listed -= len(self._lists.popitem(last=False)[1].reasons)
        return found

    def _find_cache(self, names: _Names) -> _LabelCache:
        cache = self._caches.get(names)
        tables = [cache.table for cache in self._caches.values()]
        full = sum(map(len, tables)) > _MOST or sum(table.size for table in tables) > self._bound
        if full or (cache is not None and cache.generation != self._series_table.generation):
            # Key numbers restart at 0, so the cached lists become invalid.
            self._caches.clear()
            self._lists.clear()
            self._listed = 0
            cache = None
        if cache is None:
            cache = self._caches[names] = _LabelCache(self._series_table)
        return cache

    def _resolve_or_explain(self, labels: Callable[[int], Any], at: int, project: str) -> ResolvedSeries | str:
        try:
            return self._resolve(labels(at), project)
        except InvalidRequestError as error:
            return "name" if error.field == "metric" else "labels"


def _select_resolved(
    resolved: _ResolvedKeys, index: Uint32s, time: Int64s, value: Float64s, refused: Counter[str]
) -> _Columns:
    """Return the samples whose labels resolve to a series."""
    if (resolved.reasons == _ACCEPTED).all():
        return index, time, value
    row = resolved.reasons[index]
    for at, reason in enumerate(_REASONS):
        refused[reason] += int(np.count_nonzero(row == at))
    good = row == _ACCEPTED
    return index[good], time[good], value[good]


def _select_timely(index: Uint32s, time: Int64s, value: Float64s, refused: Counter[str]) -> _Columns:
    """Return the samples between 1970 and 2100."""
    if not len(time) or (time.min() >= 0 and time.max() <= MAX_TIME_MS):
        return index, time, value
    return _select_and_count((time >= 0) & (time <= MAX_TIME_MS), index, time, value, refused, "time")


def _select_and_count(
    good: NDArray[np.bool_], index: Uint32s, time: Int64s, value: Float64s, refused: Counter[str], reason: str
) -> _Columns:
    refused[reason] += len(good) - int(np.count_nonzero(good))
    return index[good], time[good], value[good]


def _convert_units(value: Float64s, factor: Float64s) -> Float64s:
    changed = factor != 1.0
    value = value.copy()
    value[changed] = round_significant(value[changed] * factor[changed])
    return value


def round_significant(values: Float64s) -> Float64s:
    """Round each value to the double nearest to its decimal form of 12 significant digits. Infinities and NaN pass."""
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
