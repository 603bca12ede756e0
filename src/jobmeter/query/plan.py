"""From a query to the reads that answer it: checks, limits, and the source of each part."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from jobmeter.errors import InvalidRequestError, LimitExceededError
from jobmeter.model.catalog import METRICS, Aggregate, Kind, Metric, find
from jobmeter.model.series import MAX_NAME
from jobmeter.model.time import DAY, HOUR, SECOND, TimeRange, ceil_to, floor_to
from jobmeter.query.request import By, GroupRef, JobRef, MetricQuery, NodeRef, Statistic
from jobmeter.settings import Limits
from jobmeter.store.base import Tier

MAX_METRICS = 100


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of the range and where it is read from: a roll-up tier, or raw samples (None)."""

    span: TimeRange
    tier: Tier | None


class MetricSelection(NamedTuple):
    """The catalogue's rows of the requested metrics, each once, and the names of their ``sources``.

    ``own``: each is computed from its own samples alone.
    """

    metrics: tuple[Metric, ...]
    sources: frozenset[str]
    own: bool


def check(query: MetricQuery, limits: Limits) -> MetricSelection:
    """The metrics of a query, from the catalogue.

    Raises InvalidRequestError naming the field that is wrong, LimitExceededError for too many buckets.
    """
    selection = _selection(query.metrics)
    check_by(query.subject, query.by)
    if query.step_ms < 1:
        raise InvalidRequestError(f"step {query.step_ms} ms must be at least 1 ms", "step")
    if query.aggregate is Aggregate.RATIO:
        raise InvalidRequestError(
            "aggregate must be mean, sum, min or max: ratio is the catalogue's choice", "aggregate"
        )
    if query.statistic is Statistic.INCREASE:
        _check_counters(selection.metrics)
    buckets = bucket_count(query.range, query.step_ms)
    if buckets > limits.query_buckets:
        raise LimitExceededError(
            f"a line may have {limits.query_buckets} buckets, this range has {buckets}: take a longer step", "step"
        )
    return selection


@lru_cache(1_000)
def _selection(names: tuple[str, ...]) -> MetricSelection:
    metrics = metrics_of(names)
    return MetricSelection(metrics, sources(metrics), all(map(is_own, metrics)))


def is_own(metric: Metric) -> bool:
    """True for a metric that is computed from its own samples alone."""
    return not (metric.ratio or metric.rate_of or metric.difference)


def _check_counters(metrics: Sequence[Metric]) -> None:
    for metric in metrics:
        if metric.kind is not Kind.COUNTER:
            raise InvalidRequestError(f"statistic increase needs a counter, {metric.name} is a gauge", "statistic")


def check_by(subject: JobRef | NodeRef | GroupRef, by: By) -> None:
    """Refuse lines that the samples of nodes cannot be determined in (field ``by``)."""
    if not isinstance(subject, JobRef) and by not in {By.NODE, By.DEVICE}:
        raise InvalidRequestError(f"by {by} does not apply to a node: use node or device", "by")


def metrics_of(names: Sequence[str]) -> tuple[Metric, ...]:
    """The catalogue's row of each name, each once. InvalidRequestError (field ``metric``) for an unknown one."""
    unique = tuple(dict.fromkeys(names))
    if not 1 <= len(unique) <= MAX_METRICS:
        raise InvalidRequestError(
            f"a question names 1 to {MAX_METRICS} metrics, this one names {len(unique)}", "metric"
        )
    return tuple(_metric(name) for name in unique)


def bucket_count(span: TimeRange, step_ms: int) -> int:
    """How many buckets meet the range."""
    if span.start_ms == span.end_ms:
        return 0
    return -(-span.end_ms // step_ms) - span.start_ms // step_ms


def sources(metrics: Sequence[Metric]) -> frozenset[str]:
    """The names of everything that those metrics are, or may be derived from."""
    names: set[str] = set()
    for metric in metrics:
        names.add(metric.name)
        if metric.rate_of:
            names.add(metric.rate_of)
        for pair in filter(None, (metric.ratio, metric.difference)):
            names |= sources([_metric(name) for name in pair])
    return frozenset(names)


def with_derived(stored: Iterable[str]) -> frozenset[str]:
    """Those metrics, and those of the catalogue that can be derived from them."""
    found = set(stored)
    found |= {one.name for one in METRICS if one.rate_of in found}
    pairs = [(one.name, pair) for one in METRICS for pair in (one.ratio, one.difference) if pair]
    return frozenset(found | {name for name, pair in pairs if found.issuperset(pair)})


def hours_around(span: TimeRange) -> TimeRange:
    """The range widened to whole hours, for ``Store.rolled``: an hour that the range cuts counts."""
    return TimeRange(floor_to(span.start_ms, HOUR), ceil_to(span.end_ms, HOUR))


def segments(span: TimeRange, step_ms: int, rolled: Sequence[TimeRange]) -> list[Segment]:
    """The range in parts, in order of time, each from the coarsest source that answers it exactly.

    ``rolled`` are the hour-aligned parts in which roll-ups may be trusted, sorted. A tier fits when its buckets fill
    the asked ones, and only where the range holds a whole bucket of it; raw samples answer everything else.
    """
    tiers = [tier for tier in sorted(Tier, reverse=True) if step_ms % tier == 0]
    parts: list[Segment] = []
    at = span.start_ms
    for trusted in rolled if tiers else ():
        inside = trusted.intersect(span)
        if inside is None:
            continue
        if at < inside.start_ms:
            parts.append(Segment(TimeRange(at, inside.start_ms), None))
        parts.extend(_tiled(inside, tiers))
        at = inside.end_ms
    if at < span.end_ms:
        parts.append(Segment(TimeRange(at, span.end_ms), None))
    return list(_joined(parts))


def _tiled(span: TimeRange, tiers: Sequence[Tier]) -> Iterator[Segment]:
    """A trusted part, its middle from the coarsest tier, what is left at its ends from the next."""
    if not tiers:
        yield Segment(span, None)
        return
    tier, finer = tiers[0], tiers[1:]
    start, end = ceil_to(span.start_ms, tier), floor_to(span.end_ms, tier)
    if start >= end:
        yield from _tiled(span, finer)
        return
    if span.start_ms < start:
        yield from _tiled(TimeRange(span.start_ms, start), finer)
    yield Segment(TimeRange(start, end), tier)
    if end < span.end_ms:
        yield from _tiled(TimeRange(end, span.end_ms), finer)


def _joined(parts: Sequence[Segment]) -> Iterator[Segment]:
    last: Segment | None = None
    for part in parts:
        if last is not None and last.tier is part.tier:
            last = Segment(TimeRange(last.span.start_ms, part.span.end_ms), part.tier)
            continue
        if last is not None:
            yield last
        last = part
    if last is not None:
        yield last


def _metric(name: str) -> Metric:
    metric = find(name)
    if metric is None:
        raise InvalidRequestError(f"metric {name[:MAX_NAME]!r} is unknown (`jobmeter catalog` lists all)", "metric")
    return metric


def series_since(span: TimeRange, limits: Limits) -> int:
    """Since when a series must have samples to answer a range, in epoch milliseconds: the same for a day of ranges.

    A sample may be dated after it was written by as much as the pipeline lets through.
    """
    return max(floor_to(span.start_ms - limits.future_seconds * SECOND, DAY), 0)
