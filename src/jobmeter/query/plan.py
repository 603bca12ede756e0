"""From a question to the reads that answer it: what is legal, what is too large, which source holds which part."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from jobmeter.errors import InvalidRequestError, LimitExceededError
from jobmeter.model.catalog import METRICS, Aggregate, Kind, Metric, find
from jobmeter.model.series import MAX_NAME
from jobmeter.model.time import HOUR, TimeRange, ceil_to, floor_to
from jobmeter.query.request import By, GroupRef, JobRef, MetricQuery, NodeRef, Statistic
from jobmeter.settings import Limits
from jobmeter.store.base import Tier

MAX_METRICS = 100


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of the range and where it is read from: a roll-up tier, or raw samples (None)."""

    span: TimeRange
    tier: Tier | None


def check(query: MetricQuery, limits: Limits) -> tuple[Metric, ...]:
    """The catalogue's rows of the metrics asked for, each once.

    Raises InvalidRequestError naming the field that is wrong, LimitExceededError where too many buckets are asked for.
    """
    metrics = metrics_of(query.metrics)
    check_by(query.subject, query.by)
    if query.step_ms < 1:
        raise InvalidRequestError(f"step {query.step_ms} ms must be at least 1 ms", "step")
    if query.aggregate is Aggregate.RATIO:
        raise InvalidRequestError(
            "aggregate must be mean, sum, min or max: ratio is the catalogue's choice", "aggregate"
        )
    gauges = [metric.name for metric in metrics if metric.kind is not Kind.COUNTER]
    if query.statistic is Statistic.INCREASE and gauges:
        raise InvalidRequestError(f"statistic increase needs a counter, {gauges[0]} is a gauge", "statistic")
    buckets = bucket_count(query.range, query.step_ms)
    if buckets > limits.query_buckets:
        raise LimitExceededError(
            f"a line may have {limits.query_buckets} buckets, this range has {buckets}: take a longer step", "step"
        )
    return metrics


def check_by(subject: JobRef | NodeRef | GroupRef, by: By) -> None:
    """Refuse lines that the samples of nodes cannot be told in (field ``by``)."""
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
    if span.length_ms == 0:
        return 0
    return (ceil_to(span.end_ms, step_ms) - floor_to(span.start_ms, step_ms)) // step_ms


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
    """The whole hours that hold the range: asked of ``Store.rolled``, so that an hour that the range cuts counts."""
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
