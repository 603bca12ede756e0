"""Tests of the feature table: each "yes" of Jobmeter names an existing test or command."""

import re

import pytest
from tests.support.documents import ROOT

from jobmeter.cli.registry import VERBS

PAGE = ROOT / "docs" / "comparison.md"
FEATURES, _, PAGES = PAGE.read_text().partition("\n## The page beside other pages\n")


def cells(text):
    """Return the rows of the tables in a text, without headers."""
    lines = [line for line in text.splitlines() if line.startswith("|") and not line.startswith(("|---", "| feature"))]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


ROWS = cells(FEATURES)


@pytest.mark.parametrize(("feature", "state", "shown", "_others"), ROWS)
def test_what_shows_a_feature_exists(feature, state, shown, _others):
    named = re.findall(r"`([^`]+)`", shown)
    assert named or state == "no", feature
    for one in named:
        if one.startswith("tests/"):
            assert (ROOT / one).exists(), one
        else:
            program, verb = one.split()
            assert program == "jobmeter"
            assert verb in VERBS, one


def test_every_feature_is_there_once_and_some_are_missing():
    features = [feature for feature, *_ in ROWS]
    assert len(features) == len(set(features)) >= 50
    assert {state for _, state, *_ in ROWS} == {"yes", "no", "1"}


def test_pages_are_compared_question_by_question():
    (_, *systems), *questions = cells(PAGES)
    assert all(f"### {name}" in PAGES for name in systems if name != "Jobmeter")
    assert len(questions) >= 5
    assert all(len(row) == 1 + len(systems) for row in questions)
    assert any(ours.startswith("no") for _, ours, *_ in questions), "where Jobmeter is worse too"
