"""Stores each kind of metric.

Histograms and summaries become the series that Prometheus defines for them
(https://opentelemetry.io/docs/specs/otel/compatibility/prometheus_and_openmetrics/#otlp-metric-points-to-prometheus).
"""

import math
from collections.abc import Sequence
from itertools import pairwise

import msgspec

from jobmeter.wire.otlp.written import Builder, Named, WrittenHeader, WrittenKind

CUMULATIVE = 2
_DELTA = 1
NO_VALUE = 1
"""The flag of a data point without a value."""


class MetricPoint(msgspec.Struct, frozen=True):
    """A data point of a histogram or a summary. ``own`` holds its attributes, encoded as in a key."""

    own: bytes
    time_ns: int
    flags: int
    count: int
    sum: float | None


def find_refusal(temporality: int) -> str:
    """Return the reason to reject a sum or a histogram of that temporality; empty if there is no reason.

    Deltas (changes since the last export) are not stored: a repeated or lost delta would make every later total wrong.
    """
    return "" if temporality == CUMULATIVE else "delta" if temporality == _DELTA else "temporality"


def add_number(into: Builder, header: WrittenHeader, own: bytes, time_ns: int, flags: int, value: float | None) -> None:
    """Add a data point of a gauge or a sum."""
    if flags & NO_VALUE:
        into.stale += 1
    elif value is None:
        into.refuse("no-value")
    elif into.accept(own):
        into.add_head(header, own, time_ns, value)


def add_histogram(
    into: Builder, named: Named, point: MetricPoint, counts: Sequence[int], bounds: Sequence[float]
) -> None:
    """Add a data point of a histogram with explicit bounds: ``_count``, ``_sum``, and ``_bucket`` with ``le``."""
    if point.flags & NO_VALUE:
        into.stale += 1
        return
    if not into.accept(point.own):
        return
    if (counts or bounds) and not _sound(counts, bounds, point.count):
        into.refuse("buckets")
        return
    _count_and_sum(into, named, point, point.sum)
    total = 0
    for bound, count in zip(bounds, counts, strict=False):
        total += count
        _add_bucket(into, named, point, ("le", repr(float(bound))), total)
    _add_bucket(into, named, point, ("le", "+Inf"), point.count)


def add_summary(into: Builder, named: Named, point: MetricPoint, quantiles: Sequence[tuple[float, float]]) -> None:
    """Add a data point of a summary: ``_count``, ``_sum``, and the quantiles under the metric's own name."""
    if point.flags & NO_VALUE:
        into.stale += 1
        return
    if not into.accept(point.own):
        return
    _count_and_sum(into, named, point, point.sum or 0.0)
    for quantile, value in quantiles:
        header = into.find_header(named, WrittenKind.GAUGE, "", ("quantile", repr(float(quantile))))
        into.count()
        into.add_more(header, point.own, point.time_ns, value)


def _sound(counts: Sequence[int], bounds: Sequence[float], count: int) -> bool:
    return (
        len(counts) == len(bounds) + 1
        and sum(counts) == count
        and all(math.isfinite(bound) for bound in bounds)
        and all(lower < upper for lower, upper in pairwise(bounds))
    )


def _count_and_sum(into: Builder, named: Named, point: MetricPoint, total: float | None) -> None:
    into.add_head(into.find_header(named, WrittenKind.COUNTER, "_count"), point.own, point.time_ns, float(point.count))
    if total is not None:
        # The sum is a counter only if no value is negative. The protocol does not say so.
        into.add_more(into.find_header(named, WrittenKind.GAUGE, "_sum"), point.own, point.time_ns, total)


def _add_bucket(into: Builder, named: Named, point: MetricPoint, extra: tuple[str, str], value: int) -> None:
    into.count()
    into.add_more(
        into.find_header(named, WrittenKind.COUNTER, "_bucket", extra), point.own, point.time_ns, float(value)
    )
