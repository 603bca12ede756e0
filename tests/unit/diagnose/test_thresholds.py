"""Tests of thresholds: each has an origin, a file can replace any of them, and an error names what is wrong in it."""

import pytest

from jobmeter.diagnose.registry import list_rules
from jobmeter.diagnose.thresholds import load
from jobmeter.errors import ConfigurationError


def written(folder, text):
    path = folder / "rules.toml"
    path.write_text(text)
    return str(path)


def test_every_threshold_has_an_origin_and_belongs_to_a_rule():
    tables = load().tables
    assert all(one.origin for table in tables.values() for one in table.values())
    assert set(tables) - {"common", "causes", "running"} <= {rule.name for rule in list_rules()}


def test_a_file_replaces_some(tmp_path):
    text = '[gpu_idle_allocated]\nhold = "30m"\nidle = { value = 0.02, origin = "ours" }\n'
    numbers = load(written(tmp_path, text))["gpu_idle_allocated"]
    assert (numbers["hold"], numbers["idle"], numbers["critical"]) == (1_800_000, 0.02, 7_200_000)
    assert numbers["coverage"] == 0.8


def test_a_rule_may_have_its_own_of_what_all_share(tmp_path):
    found = load(written(tmp_path, '[hang_hw]\ncoverage = 0.5\nwarm_up = "0s"\n'))
    assert (found["hang_hw"]["coverage"], found["hang_hw"]["warm_up"]) == (0.5, 0)
    assert found["thermal"]["coverage"] == 0.8


def test_minutes_become_seconds(tmp_path):
    numbers = load(written(tmp_path, '[common]\nminute = "1s"\n'))["gpu_idle_allocated"]
    assert numbers["hold"] == 15_000
    assert numbers["warm_up"] == 10_000
    assert numbers["idle"] == 0.01


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[no_such_rule]\nhold = 1\n", "no_such_rule"),
        ("[thermal]\nheat = 1\n", "heat"),
        ("[thermal]\nhold = 5\n", "a time"),
        ('[thermal]\nwarning = "5m"\n', "a number"),
        ("[thermal]\nwarning = -1\n", "thermal.warning"),
        ("[thermal]\nwarning = true\n", "thermal.warning"),
        ('[thermal]\nhold = "soon"\n', "thermal.hold"),
        ("[thermal]\nwarning = { text = 5 }\n", "thermal.warning"),
        ("thermal = 5\n", "thermal"),
        ("not toml", "not TOML"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, text, words):
    with pytest.raises(ConfigurationError, match=words):
        load(written(tmp_path, text))


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigurationError, match=r"nothing\.toml"):
        load(str(tmp_path / "nothing.toml"))


def test_a_very_large_file_is_refused(tmp_path):
    with pytest.raises(ConfigurationError, match="more than"):
        load(written(tmp_path, "#" * 2_000_000))
