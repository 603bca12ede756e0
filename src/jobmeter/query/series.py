"""Questions about stored series: their list, their names, and their raw samples.

Samples are neither combined, converted nor turned into rates; a counter has the values that were read. The client
selects series and does the arithmetic. Series outside the caller's scope do not exist, neither as series nor by name.
"""

from collections.abc import Callable, Hashable, Sequence, Sized
from typing import TypeVar

import msgspec
import numpy as np
from msgspec.structs import replace

from jobmeter.access.principal import Scope
from jobmeter.errors import LimitExceededError, NotFoundError
from jobmeter.model.batch import BucketColumns, SampleColumns, SeriesKeys
from jobmeter.model.question import Question
from jobmeter.model.series import SPECIAL, NamePart, Series, compute_job_key
from jobmeter.model.time import DAY, SECOND, TimeRange, floor_to
from jobmeter.query.meter import Meter
from jobmeter.query.source import RAW_IS_QUICK, Source, estimate_rows, read_series_buckets
from jobmeter.settings import Limits
from jobmeter.store.base import SeriesSelector, Store
from jobmeter.store.cache import Cache

R = TypeVar("R", bound=Sized)

_SERIES_BYTES = 1_000
"""Approximate memory of a series in bytes."""
_POINTER_BYTES = 8
"""Memory of a reference to a series in bytes."""
_NAME_BYTES = 100
"""Approximate memory of a name in a question, in bytes."""
_SHORT_LIST = 256
"""Most series with which the event loop may answer."""
_SAMPLES_A_POINT = 4
"""Raw samples that a query may hold in memory per point that an answer may have."""


class FoundSeries(msgspec.Struct, frozen=True, dict=True):
    """Series in any order, and the milliseconds that the search took."""

    series: Sequence[Series]
    milliseconds: int = 0

    @classmethod
    def from_cache(cls, series: Sequence[Series], cache: Cache, milliseconds: int = 0) -> "FoundSeries":
        """Return series whose list is cached. The cache is no field, so that it is not sent to another process."""
        found = cls(series, milliseconds)
        found.__dict__["cache"] = cache
        return found

    def derive(self, name: Hashable, make: Callable[[Sequence[Series]], R], name_bytes: int = 0) -> R:
        """Return the result of ``make``, which reads only the series, cached by ``name``. Callers must not change it.

        The result is cached as long as the list of series. ``name_bytes`` is the memory of a name that a caller chose.
        """
        cache: Cache | None = self.__dict__.get("cache")
        if cache is None:
            return make(self.series)
        whole = (FoundSeries, id(self.series), name)
        found: R | None = cache.get(whole, self.series)
        if found is None:
            found = make(self.series)
            cache.put(whole, self.series, found, _SERIES_BYTES * len(found) + name_bytes)
        return found


class SeriesQuestion(msgspec.Struct, Question[FoundSeries], frozen=True, kw_only=True):
    """Question for the series of some metrics (None: of all), optionally of job keys and (cluster, node) pairs.

    ``since_ms`` leaves out series last written before, if that time is known. ``brief``: the caller processes a short
    list quickly, so the event loop may answer from the cache.
    """

    by_resource = of_job = True

    metrics: frozenset[str] | None = None
    jobs: tuple[int, ...] | None = None
    nodes: tuple[tuple[str, str], ...] | None = None
    since_ms: int | None = None
    brief: bool = False


class NamesQuestion(msgspec.Struct, Question[list[str]], frozen=True, kw_only=True):
    """Question for values of ``part`` in any series: the first ``limit`` names that begin with ``prefix``, sorted.

    ``special``: names of series with special values alone (NaN, infinities, stale markers) count too.
    """

    of_job = True

    part: NamePart
    prefix: str = ""
    limit: int = 25
    special: bool = False


class Samples(msgspec.Struct, frozen=True, eq=False):
    """Raw samples; ``columns.index`` is a position among the series of the query.

    ``expired``: the range has roll-ups of samples that have expired. ``ends``: the end of the job of each series in
    epoch ms, ``NEVER`` for a running job and for a series without a job; empty if no job has ended.
    """

    columns: SampleColumns
    milliseconds: int = 0
    expired: bool = False
    ends: tuple[int, ...] = ()


class SamplesQuestion(msgspec.Struct, Question[Samples], frozen=True, kw_only=True):
    """Question for every sample of those series in the range.

    ``check``: compare the samples with the roll-ups, so that ``Samples.expired`` is known. ``ends``: add the ends of
    the jobs. ``brief_samples`` is the largest number of samples that the caller processes quickly. Up to this number,
    the event loop may answer from memory. None: a worker thread answers.
    """

    of_job = True

    series: tuple[Series, ...]
    range: TimeRange
    check: bool = False
    ends: bool = False
    brief_samples: int | None = None


class Buckets(msgspec.Struct, frozen=True, eq=False):
    """Samples reduced to steps, from any exact source; see ``Samples``.

    ``samples`` is the number of stored rows read.
    """

    columns: BucketColumns
    samples: int = 0
    milliseconds: int = 0


class BucketsQuestion(msgspec.Struct, Question[Buckets], frozen=True, kw_only=True):
    """Question for the samples of those series in epoch-aligned steps: number, sum, least, greatest, first and last."""

    of_job = True

    series: tuple[Series, ...]
    range: TimeRange
    step_ms: int


class LastQuestion(msgspec.Struct, Question[Samples], frozen=True, kw_only=True):
    """Question for the last sample of each of those series at or after ``since_ms``."""

    of_job = True

    series: tuple[Series, ...]
    since_ms: int = 0


def find(store: Store, question: SeriesQuestion, scope: Scope, meter: Meter, cache: Cache) -> FoundSeries:
    """Answer a ``SeriesQuestion``. Raises LimitExceededError if more series match than a question may read.

    Lists of the series of jobs are cached per revision of the store.
    """
    selector, revision = _select_series(store, question, scope, meter.limits)
    name = (SeriesQuestion, selector)
    found: tuple[Series, ...] | None = None if revision is None else cache.get(name, revision)
    if found is None:
        found = tuple(store.find(selector))
        if revision is not None:
            names = sum(len(some or ()) for some in (selector.metrics, selector.jobs, selector.nodes))
            cache.put(name, revision, found, _SERIES_BYTES * len(found) + _NAME_BYTES * names)
    took = measure_milliseconds(meter)
    return FoundSeries(found, took) if revision is None else FoundSeries.from_cache(found, cache, took)


def find_cached(
    store: Store, question: SeriesQuestion, scope: Scope, limits: Limits, cache: Cache
) -> FoundSeries | None:
    """Return a short cached list; None if ``find`` has to answer, or policies hide a part of the list."""
    if not question.brief or scope.grant is not None:
        return None
    selector, revision = _select_series(store, question, scope, limits)
    found: tuple[Series, ...] | None = None if revision is None else cache.get((SeriesQuestion, selector), revision)
    return None if found is None or len(found) > _SHORT_LIST else FoundSeries.from_cache(found, cache)


def _select_series(
    store: Store, question: SeriesQuestion, scope: Scope, limits: Limits
) -> tuple[SeriesSelector, Hashable | None]:
    """Return the search for the list, and the revision for which the list is cached; None for an uncached list."""
    jobs = question.jobs
    if scope.job is not None:
        own = _list_shared_jobs(scope)
        jobs = own if jobs is None else tuple(set(own) & set(jobs))
    since = None if question.since_ms is None else max(question.since_ms - limits.future_seconds * SECOND, 0)
    revision = store.get_revision(jobs) if jobs else None
    if since is not None and revision is not None:
        since = floor_to(since, DAY)  # so that the next question finds this list
    selector = SeriesSelector(
        projects=scope.projects,
        jobs=jobs,
        nodes=question.nodes,
        metrics=question.metrics,
        since=since,
        limit=limits.query_series,
    )
    return selector, revision


def list_names(store: Store, question: NamesQuestion, scope: Scope) -> list[str]:
    """Answer a ``NamesQuestion``."""
    jobs = None if scope.job is None else _list_shared_jobs(scope)
    part, limit = question.part, question.limit
    hidden = question.special and part is NamePart.METRIC
    every = question.special and not hidden
    selector = SeriesSelector(projects=scope.projects, jobs=jobs, special=every, limit=limit)
    found = store.list_names(selector, part, question.prefix)
    if hidden:
        special = store.list_names(replace(selector, special=True), part, SPECIAL + question.prefix)
        found = sorted({*found, *(name.removeprefix(SPECIAL) for name in special)})
    return found[:limit]


def find_keys(series: tuple[Series, ...], cache: Cache) -> SeriesKeys:
    """Return the keys of series: the identical object for equal series, because caches identify keys by the object."""
    # Callers that repeat a tuple need not wait until all of its series are hashed.
    itself = (SeriesKeys, id(series))
    found: SeriesKeys | None = cache.get(itself, series)
    if found is None:
        name = (SeriesKeys, series)
        found = cache.get(name, None)
        if found is None:
            found = SeriesKeys.from_series(series)
            cache.put(name, None, found, _SERIES_BYTES * len(series))
        cache.put(itself, series, found, _POINTER_BYTES * len(series))
    return found


def list_owners(series: Sequence[Series], keys: SeriesKeys) -> Sequence[tuple[str, str]]:
    """Return the distinct projects and jobs of series. ``keys``, which are the keys of the series, cache the result."""
    found: Sequence[tuple[str, str]] | None = keys.derived.get(list_owners)
    if found is None:
        found = keys.derived[list_owners] = list(dict.fromkeys((one.project, one.job) for one in series))
    return found


def read_samples(store: Store, question: SamplesQuestion, scope: Scope, meter: Meter, cache: Cache) -> Samples:
    """Answer a ``SamplesQuestion``. Raises LimitExceededError or QueryTimeoutError."""
    keys = find_keys(question.series, cache)
    _check(question.series, keys, scope)
    most = _SAMPLES_A_POINT * meter.limits.query_points
    parts: list[SampleColumns] = []
    recent = _read_memory(store, keys, question.range, most)
    if recent is not None:
        meter.count(len(recent), None)
        return Samples(recent, measure_milliseconds(meter))
    budget = meter.make_budget(estimate_rows(keys, question.range))
    for block in store.read(keys, question.range, budget) if question.series else ():
        meter.count(len(block), None)
        parts.append(block)
        if meter.rows > most:
            raise LimitExceededError(
                f"a query may read {most} samples at a time: narrow its range, or use longer steps", "range"
            )
    return Samples(SampleColumns.concatenate(parts), measure_milliseconds(meter))


def read_samples_in_memory(
    store: Store, question: SamplesQuestion, scope: Scope, meter: Meter, cache: Cache
) -> Samples | None:
    """Answer a ``SamplesQuestion`` of at most ``brief_samples`` from memory; else None. Raises as ``read_samples``.

    None of these samples has expired.
    """
    if not question.brief_samples:
        return None
    keys = find_keys(question.series, cache)
    _check(question.series, keys, scope)
    found = _read_memory(store, keys, question.range, question.brief_samples)
    if found is None:
        return None
    meter.count(len(found), None)
    return Samples(found, measure_milliseconds(meter))


def _read_memory(store: Store, keys: SeriesKeys, span: TimeRange, most: int) -> SampleColumns | None:
    """Return the samples of a range if memory has all of them; None also for more than ``most`` samples."""
    if store.memory is None or not len(keys) or span.length_ms > RAW_IS_QUICK:
        return None
    found = store.memory.read(keys, span, most=most + 1)
    return None if found is None or len(found) > most else found


def read_buckets(source: Source, question: BucketsQuestion, scope: Scope, meter: Meter, cache: Cache) -> Buckets:
    """Answer a ``BucketsQuestion``. Raises LimitExceededError or QueryTimeoutError."""
    check_series(question.series, scope)
    is_counter = np.zeros(len(question.series), np.bool_)
    keys = find_keys(question.series, cache)
    columns = read_series_buckets(source, keys, is_counter, question.range, question.step_ms, owned_ms=0, meter=meter)
    return Buckets(columns, meter.rows, measure_milliseconds(meter))


def read_last(store: Store, question: LastQuestion, scope: Scope, meter: Meter) -> Samples:
    """Answer a ``LastQuestion``. Raises QueryTimeoutError."""
    check_series(question.series, scope)
    if not question.series:
        return Samples(SampleColumns.make_empty())
    before = meter.clock.now_ms() + meter.limits.future_seconds * SECOND + 1
    found = store.read_previous(SeriesKeys.from_series(question.series), before, meter.make_budget())
    return Samples(found.select(found.time >= question.since_ms), measure_milliseconds(meter))


def _check(series: Sequence[Series], keys: SeriesKeys, scope: Scope) -> None:
    """Check as ``check_series``, by the cached owners of the series."""
    if not all(scope.allows(project, job) for project, job in list_owners(series, keys)):
        check_series(series, scope)


def check_series(series: Sequence[Series], scope: Scope) -> None:
    """Raise NotFoundError for series that the caller may not see."""
    for one in series:
        if not scope.allows(one.project, one.job):
            raise NotFoundError(f"there is no series of {one.metric}", "series", one.metric)


def _list_shared_jobs(scope: Scope) -> tuple[int, ...]:
    """Return the job keys of a share token."""
    return tuple(compute_job_key(project, scope.job or "") for project in scope.projects or ())


def measure_milliseconds(meter: Meter) -> int:
    """Return the time since the start of the question."""
    return round((meter.clock.monotonic() - meter.started) * 1000)
