"""Tests of the contract of collectors: it refuses collectors that break one of its rules."""

from dataclasses import replace
from typing import Any

import pytest

from jobmeter.errors import JobmeterError
from jobmeter.model.sample import Sample
from jobmeter.model.series import Series
from jobmeter.testing.collector import CollectorContract

CPU = Series("cpu.time", cluster="c", node="n", job="j", replica="worker-0")
"""Series of a replica's counter."""
CONTRACT = CollectorContract()
FIXTURE: Any = CollectorContract.collections
NAMES = sorted(name for name in dir(CONTRACT) if name.startswith("test_"))


class Collector:
    """Collector of one counter, which grows by ``step`` each time."""

    def __init__(self, series=CPU, step=1.0, metrics=("cpu.time",)):
        self.metrics = frozenset(metrics)
        self._series, self._step, self._value = series, step, 100.0

    def collect(self, now_ms):
        self._value += self._step
        return [Sample(self._series, now_ms, self._value)]


def broken_rules(collector):
    """Return the names of the contract's tests that fail."""
    collections = FIXTURE.__wrapped__(CONTRACT, collector)
    found = []
    for name in NAMES:
        test = getattr(CONTRACT, name)
        arguments = (collector, collections) if "describe" in name and "nothing" in name else (collections,)
        try:
            test(*arguments)
        except (AssertionError, JobmeterError):
            found.append(name)
    return found


def test_a_sound_collector_breaks_no_rule():
    assert broken_rules(Collector()) == []


@pytest.mark.parametrize(
    ("collector", "rule"),
    [
        (Collector(step=-1.0), "test_no_counter_falls"),
        (Collector(metrics=()), "test_it_gives_nothing_that_it_does_not_describe"),
        (Collector(step=float("inf")), "test_every_value_lies_within_the_bounds_of_its_metric"),
        (Collector(replace(CPU, replica="")), "test_a_series_names_what_its_metric_describes"),
        (Collector(replace(CPU, node="a b\n")), "test_every_name_is_legal"),
    ],
)
def test_a_broken_rule_is_found(collector, rule):
    assert rule in broken_rules(collector)


def test_a_series_that_is_given_twice_is_refused():
    one: Any = Collector()
    one.collect = lambda now_ms: [Sample(CPU, now_ms, 1.0), Sample(CPU, now_ms, 2.0)]
    with pytest.raises(AssertionError, match="twice"):
        FIXTURE.__wrapped__(CONTRACT, one)
