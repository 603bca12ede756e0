"""The table of features: each cell of Jobmeter's that says yes names a test or a command, and these exist."""

import re

import pytest
from tests.support.documents import ROOT

from jobmeter.cli.registry import VERBS

PAGE = ROOT / "docs" / "comparison.md"
ROWS = [
    [cell.strip() for cell in line.strip("|\n").split("|")]
    for line in PAGE.read_text().splitlines()
    if line.startswith("|") and not line.startswith(("|---", "| feature"))
]


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
