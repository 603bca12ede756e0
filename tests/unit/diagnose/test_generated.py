"""Rules on generated series with known truth: noise, missing points, several seeds; and healthy jobs beside them."""

import numpy as np
import pytest

from jobmeter.diagnose.examine import examine
from jobmeter.diagnose.rule import rules
from jobmeter.diagnose.thresholds import load
from jobmeter.examples.faults.generated import CLEAN, FAULTS
from jobmeter.examples.faults.score import Trial, scores

THRESHOLDS = load()
_FAULTS = [(rule, number) for rule, makes in FAULTS.items() for number in range(len(makes))]


@pytest.mark.parametrize("seed", [11, 12, 13])
@pytest.mark.parametrize(("rule", "number"), _FAULTS)
def test_a_fault_is_named_as_the_root_and_nothing_else_is(rule, number, seed):
    case = FAULTS[rule][number](np.random.default_rng(seed)).case()
    trial = Trial(rule, rule, examine(case, THRESHOLDS))
    assert trial.hit, trial.findings
    assert trial.wrong == []
    for one in trial.findings:
        assert one.evidence
        assert one.evidence[0].text
        assert one.advice
        assert one.source.startswith("https://")
        assert 0 < one.confidence <= 1
        assert one.start <= one.end


@pytest.mark.parametrize("seed", range(20, 28))
@pytest.mark.parametrize("name", CLEAN)
def test_a_healthy_job_has_no_finding(name, seed):
    assert examine(CLEAN[name](np.random.default_rng(seed)).case(), THRESHOLDS) == []


def test_every_rule_has_a_fault_that_shows_it():
    assert {rule.name for rule in rules()} == set(FAULTS)


def test_scores_count_what_was_found_rightly_wrongly_and_not():
    made = examine(FAULTS["thermal"][0](np.random.default_rng(1)).case(), THRESHOLDS)
    table = scores([Trial("a", "thermal", made), Trial("b", "thermal", []), Trial("c", "", made)])
    assert (table["thermal"].right, table["thermal"].wrong, table["thermal"].missed) == (1, 1, 1)
    assert (table[""].precision, table[""].recall) == (0.5, 0.5)
