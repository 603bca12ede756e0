"""Questions about series as they are stored: which there are, what they are called, and their raw readings.

Nothing is joined, converted or made a rate: a counter is what was read. The client chooses among the series and does
the arithmetic. Series outside of the caller's scope do not exist, neither as series nor by a name of theirs.
"""

from collections.abc import Sequence

import msgspec
import numpy as np

from jobmeter.access.principal import Scope
from jobmeter.errors import LimitExceededError, NotFoundError
from jobmeter.model.batch import BucketColumns, SampleColumns, SeriesKeys
from jobmeter.model.question import Question
from jobmeter.model.series import NamePart, Series, job_key
from jobmeter.model.time import SECOND, TimeRange
from jobmeter.query.meter import Meter
from jobmeter.query.source import Source, buckets, expected
from jobmeter.store.base import Selector, Store

_SAMPLES_A_POINT = 4
"""Raw samples that one query may have in memory, for each point that an answer may have."""


class FoundSeries(msgspec.Struct, frozen=True):
    """Series, in no order, and the milliseconds that it took to find them."""

    series: Sequence[Series]
    milliseconds: int = 0


class SeriesQuestion(msgspec.Struct, Question[FoundSeries], frozen=True, kw_only=True):
    """The series of some metrics (None: of all) and, where they are given, of some job keys and (cluster, node) pairs.

    ``since_ms`` leaves out those last written before, where that time is known.
    """

    metrics: frozenset[str] | None = None
    jobs: tuple[int, ...] | None = None
    nodes: tuple[tuple[str, str], ...] | None = None
    since_ms: int | None = None


class NamesQuestion(msgspec.Struct, Question[list[str]], frozen=True, kw_only=True):
    """What occurs as ``part`` of any series: the first ``limit`` names that begin with ``prefix``, sorted."""

    part: NamePart
    prefix: str = ""
    limit: int = 25


class Samples(msgspec.Struct, frozen=True, eq=False):
    """Raw readings; ``columns.index`` is a position among the series of the query."""

    columns: SampleColumns
    milliseconds: int = 0


class SamplesQuestion(msgspec.Struct, Question[Samples], frozen=True, kw_only=True):
    """Every reading of those series inside the range."""

    series: tuple[Series, ...]
    range: TimeRange


class Buckets(msgspec.Struct, frozen=True, eq=False):
    """The readings reduced to steps, from any source that answers exactly; see ``Samples``.

    ``samples`` is how many stored rows were read for it.
    """

    columns: BucketColumns
    samples: int = 0
    milliseconds: int = 0


class BucketsQuestion(msgspec.Struct, Question[Buckets], frozen=True, kw_only=True):
    """The readings of those series in epoch-aligned steps: their number, sum, least, greatest, first and last."""

    series: tuple[Series, ...]
    range: TimeRange
    step_ms: int


class LastQuestion(msgspec.Struct, Question[Samples], frozen=True, kw_only=True):
    """The last reading of each of those series that has one at or after ``since_ms``."""

    series: tuple[Series, ...]
    since_ms: int = 0


def find(store: Store, question: SeriesQuestion, scope: Scope, meter: Meter) -> FoundSeries:
    """See ``SeriesQuestion``. Raises LimitExceededError where more match than one question may read."""
    jobs = question.jobs
    if scope.job is not None:
        own = _own(scope)
        jobs = own if jobs is None else tuple(set(own) & set(jobs))
    limits = meter.limits
    since = None if question.since_ms is None else max(question.since_ms - limits.future_seconds * SECOND, 0)
    selector = Selector(
        projects=scope.projects,
        jobs=jobs,
        nodes=question.nodes,
        metrics=question.metrics,
        since=since,
        limit=limits.query_series,
    )
    return FoundSeries(tuple(store.find(selector)), _milliseconds(meter))


def names(store: Store, question: NamesQuestion, scope: Scope) -> list[str]:
    """See ``NamesQuestion``."""
    jobs = None if scope.job is None else _own(scope)
    selector = Selector(projects=scope.projects, jobs=jobs, limit=question.limit)
    return store.names(selector, question.part, question.prefix)


def samples(store: Store, question: SamplesQuestion, scope: Scope, meter: Meter) -> Samples:
    """See ``SamplesQuestion``. Raises LimitExceededError or QueryTimeoutError."""
    _check(question.series, scope)
    most = _SAMPLES_A_POINT * meter.limits.query_points
    parts: list[SampleColumns] = []
    keys = SeriesKeys.of(question.series)
    budget = meter.budget(expected(keys, question.range))
    for block in store.read(keys, question.range, budget) if question.series else ():
        meter.count(len(block), None)
        parts.append(block)
        if meter.rows > most:
            raise LimitExceededError(
                f"a query may read {most} samples at a time: narrow its range, or use longer steps", "range"
            )
    return Samples(SampleColumns.joined(parts), _milliseconds(meter))


def in_steps(source: Source, question: BucketsQuestion, scope: Scope, meter: Meter) -> Buckets:
    """See ``BucketsQuestion``. Raises LimitExceededError or QueryTimeoutError."""
    _check(question.series, scope)
    readings = np.zeros(len(question.series), np.bool_)
    columns = buckets(
        source, SeriesKeys.of(question.series), readings, question.range, question.step_ms, owned_ms=0, meter=meter
    )
    return Buckets(columns, meter.rows, _milliseconds(meter))


def last(store: Store, question: LastQuestion, scope: Scope, meter: Meter) -> Samples:
    """See ``LastQuestion``. Raises QueryTimeoutError."""
    _check(question.series, scope)
    if not question.series:
        return Samples(SampleColumns.empty())
    before = meter.clock.now_ms() + meter.limits.future_seconds * SECOND + 1
    found = store.previous(SeriesKeys.of(question.series), before, meter.budget())
    return Samples(found.where(found.time >= question.since_ms), _milliseconds(meter))


def _check(series: Sequence[Series], scope: Scope) -> None:
    """A series that the caller may not see is one that does not exist."""
    for one in series:
        if not scope.allows(one.project, one.job):
            raise NotFoundError(f"there is no series of {one.metric}", "series", one.metric)


def _own(scope: Scope) -> tuple[int, ...]:
    """The keys of the one job that a share token is for."""
    return tuple(job_key(project, scope.job or "") for project in scope.projects or ())


def _milliseconds(meter: Meter) -> int:
    return round((meter.clock.monotonic() - meter.started) * 1000)
