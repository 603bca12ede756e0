"""Tests of rules on generated series with known truth (noise, missing points, several seeds), and on healthy jobs."""

import re

import numpy as np
import pytest
from benchmarks.faults.__main__ import generated
from benchmarks.faults.generated import FAULTS
from benchmarks.faults.healthy import CLEAN
from benchmarks.faults.score import Trial, interval, scores
from hypothesis import given
from hypothesis import strategies as st

from jobmeter.diagnose.examine import examine
from jobmeter.diagnose.registry import list_rules
from jobmeter.diagnose.thresholds import load

THRESHOLDS = load()
_FAULTS = [(rule, number) for rule, makes in FAULTS.items() for number in range(len(makes))]


@pytest.mark.parametrize("seed", [11, 12])
@pytest.mark.parametrize(("rule", "number"), _FAULTS)
def test_a_fault_is_named_as_the_root_and_nothing_else_is(rule, number, seed):
    case = FAULTS[rule][number](np.random.default_rng(seed)).case()
    trial = Trial(rule, rule, examine(case, THRESHOLDS))
    assert trial.hit, trial.findings
    assert trial.wrong == []
    for one in trial.findings:
        is_readable(case, one)
        assert one.evidence
        assert one.evidence[0].text
        assert one.advice
        assert one.source.startswith("https://")
        assert 0 < one.confidence <= 1
        assert one.start <= one.end


_RAW = re.compile(
    r"\d\.\d{3,}|(?<![\d,.])\d{6,}|\b\d+ (?:\{|1/)|\bNone\b|\bnan\b|e[+-]\d\d|1 (?:times|errors|processes)\b"
)
"""Figures without a unit, figures with too many digits, and plurals of one."""


def is_readable(case, one):
    """Check the form of a finding: a subject that people know, figures with units, and the advice at the end."""
    kind, name = one.subject.kind, one.subject.name
    node, _, part = name.partition(":" if kind == "filesystem" else "/")
    if kind == "replica":
        [place] = {replica.node for replica in case.view.replicas if replica.name == name}
        assert one.sentence.startswith(f"{name} ({place})"), one.sentence
        assert one.replicas == [name]
    elif kind == "device":
        [owner] = one.replicas
        assert one.sentence.startswith(f"{owner} ({node}, {part})"), one.sentence
    elif kind != "job":
        ranks = ", ".join(case.list_replicas_on(node))
        assert one.sentence.startswith(f"{part} of {node} ({ranks})" if part else f"{node} ({ranks})"), one.sentence
    assert set(one.replicas) <= {replica.name for replica in case.view.replicas}
    written = [one.sentence] if one.evidence[0].kind in {"metric", "status"} else []
    written += [part.text for part in one.evidence if part.kind in {"metric", "status"}]
    for text in written:
        assert not _RAW.search(text), text
        assert text == text.strip()
    for part in one.evidence:
        if part.kind == "metric" and part.value is not None and one.rule not in _FLAGS:
            assert part.unit, part
    assert "\n" not in one.sentence


_FLAGS = {"remap_pending", "remap_failure", "gpu_missing", "throttle_power"}
"""Rules whose metrics are a flag or a state, which has no unit."""


@pytest.mark.parametrize("seed", range(20, 23))
@pytest.mark.parametrize("name", CLEAN)
def test_a_healthy_job_has_no_finding(name, seed):
    assert examine(CLEAN[name](np.random.default_rng(seed)).case(), THRESHOLDS) == []


@pytest.mark.slow
def test_drawn_jobs_of_any_shape_are_diagnosed():
    """Draw sizes, sampling, levels, onsets, places and wordings: one job of each fault, and as many healthy ones."""
    trials = list(generated(seed=20, count=1))
    whole = scores(trials)[""]
    assert whole.precision >= 0.95, [(one.name, one.wrong) for one in trials if one.wrong]
    assert whole.recall >= 0.95, [one.name for one in trials if one.rule and not one.hit]
    healthy = [one for one in trials if not one.rule]
    assert sum(not one.findings for one in healthy) >= 0.98 * len(healthy)


@given(st.integers(1, 500), st.floats(0, 1))
def test_an_interval_of_a_share_is_that_of_wilson(total, share):
    right = round(share * total)
    low, high = interval(right, total)
    found = by_definition(right, total)
    assert (low, high) == pytest.approx(found, abs=1e-6)


def by_definition(right, total):
    """Solve |p - share| = z * sqrt(p (1 - p) / total) for p, which defines the interval."""
    share, z2 = right / total, 1.959964**2
    roots = np.roots([1 + z2 / total, -(2 * share + z2 / total), share**2])
    return max(0.0, min(roots.real)), min(1.0, max(roots.real))


def test_every_rule_has_a_fault_that_shows_it():
    assert {rule.name for rule in list_rules()} == set(FAULTS)


def test_scores_count_what_was_found_rightly_wrongly_and_not():
    made = examine(FAULTS["thermal"][0](np.random.default_rng(1)).case(), THRESHOLDS)
    table = scores([Trial("a", "thermal", made), Trial("b", "thermal", []), Trial("c", "", made)])
    assert (table["thermal"].right, table["thermal"].wrong, table["thermal"].missed) == (1, 1, 1)
    assert (table[""].precision, table[""].recall) == (0.5, 0.5)
