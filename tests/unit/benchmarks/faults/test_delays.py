"""Tests of the delay from the beginning of a fault until its finding opens in a running job."""

import numpy as np
import pytest
from benchmarks.faults.build import START
from benchmarks.faults.delays import detection_delay, quantiles
from benchmarks.faults.generated import FAULTS

from jobmeter.diagnose.registry import list_rules
from jobmeter.diagnose.thresholds import load
from jobmeter.model.time import MINUTE, SECOND

THRESHOLDS = load()


@pytest.mark.parametrize("rule", ["cpu_hog", "hang_hw", "net_errors", "swap"])
def test_a_finding_opens_soon_after_its_hold_time_and_not_before(rule):
    made = FAULTS[rule][0](np.random.default_rng(3))
    delay = detection_delay(made, rule, THRESHOLDS)
    assert delay is not None
    numbers = THRESHOLDS[rule]
    assert numbers["hold"] * numbers["steady"] - MINUTE <= delay <= numbers["hold"] + numbers["warm_up"] + 3 * MINUTE
    assert delay % (15 * SECOND) == 0


def test_a_fault_that_begins_late_is_found_as_soon_as_one_that_begins_early():
    early, late = (FAULTS["rank_lost"][0](np.random.default_rng(seed)) for seed in (1, 2))
    delays = [detection_delay(made, "rank_lost", THRESHOLDS) for made in (early, late)]
    assert early.began != late.began
    assert early.began > START
    assert all(delay is not None and delay <= 5 * MINUTE for delay in delays)


def test_no_delay_is_given_for_what_is_found_after_the_end():
    running = {rule.name: rule.running for rule in list_rules()}
    assert not running["cpu_overrequest"]
    for rule in ("cpu_overrequest", "python_exception"):
        assert detection_delay(FAULTS[rule][0](np.random.default_rng(1)), rule, THRESHOLDS) is None


def test_quantiles_are_the_median_and_the_ninetieth_percentile():
    assert quantiles(range(101)) == (50, 90)
    assert quantiles([7]) == (7, 7)
