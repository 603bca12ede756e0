"""Contract of collectors as tests: inherit ``CollectorContract`` and provide a collector."""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest

from jobmeter.collect.base import Collector
from jobmeter.model.catalog import OPEN_PREFIXES, find
from jobmeter.model.catalog.metric import Kind, Metric, MetricScope
from jobmeter.model.sample import Sample
from jobmeter.model.series import Series, check_series
from jobmeter.wire.native.encode import make_samples_frame

NOW_MS = 1_795_000_000_000


def _metric(series: Series) -> Metric:
    found = find(series.metric)
    assert found is not None
    return found


class CollectorContract:
    """Contract tests. Override the fixture ``collector`` with a collector over a recorded tree or a fake."""

    turns: int = 3
    """Number of collections, ten seconds apart."""

    @pytest.fixture
    def collector(self) -> Collector:
        """Collector under test."""
        raise NotImplementedError

    @pytest.fixture
    def collections(self, collector: Collector) -> Sequence[dict[Series, float]]:
        """Samples of each collection."""
        collections = []
        for turn in range(self.turns):
            now_ms = NOW_MS + 10_000 * turn
            samples = collector.collect(now_ms)
            assert {sample.time_ms for sample in samples} <= {now_ms}
            found = {sample.series: sample.value for sample in samples}
            assert len(found) == len(samples), "one collection has a series twice"
            collections.append(found)
        return collections

    def test_a_collection_has_samples(self, collections: Sequence[dict[Series, float]]) -> None:
        assert any(collections)

    def test_it_gives_nothing_that_it_does_not_describe(
        self, collector: Collector, collections: Sequence[dict[Series, float]]
    ) -> None:
        """Every metric is declared by the collector, and every declared metric is in the catalogue."""
        given = {series.metric for collection in collections for series in collection}
        assert given <= set(collector.metrics)
        assert [name for name in collector.metrics if find(name) is None] == []

    def test_every_name_is_legal(self, collections: Sequence[dict[Series, float]]) -> None:
        for collection in collections:
            for series in collection:
                check_series(replace(series, project=series.project or "default"))

    def test_a_series_names_what_its_metric_describes(self, collections: Sequence[dict[Series, float]]) -> None:
        """A device metric names a device; a replica metric names a job and a replica.

        A metric below an open prefix may describe a node as well.
        """
        for collection in collections:
            for series in collection:
                metric = _metric(series)
                assert series.node
                assert bool(series.device) == (metric.scope is MetricScope.DEVICE)
                if metric.scope is MetricScope.REPLICA and not metric.name.startswith(OPEN_PREFIXES):
                    assert series.job
                    assert series.replica

    def test_every_value_lies_within_the_bounds_of_its_metric(self, collections: Sequence[dict[Series, float]]) -> None:
        """A value outside the catalogue's bounds has the wrong unit."""
        for collection in collections:
            for series, value in collection.items():
                metric = _metric(series)
                assert math.isfinite(value)
                assert metric.minimum is None or value >= metric.minimum, series
                assert metric.maximum is None or value <= metric.maximum, series

    def test_no_counter_falls(self, collections: Sequence[dict[Series, float]]) -> None:
        """A falling counter would be read as a restart."""
        for before, after in pairwise(collections):
            for series, value in before.items():
                metric = _metric(series)
                if metric.kind is Kind.COUNTER and series in after:
                    assert after[series] >= value, series

    def test_what_it_gives_can_be_sent(self, collections: Sequence[dict[Series, float]]) -> None:
        for collection in collections:
            assert make_samples_frame(Sample(series, NOW_MS, value) for series, value in collection.items())
