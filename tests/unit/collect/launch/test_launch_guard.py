"""Work that may fail, and text that may hold any bytes."""

import os

from hypothesis import given
from hypothesis import strategies as st

from jobmeter.collect.launch.session import RunLimits
from jobmeter.collect.text import valid_text


def test_a_guard_gives_what_the_work_gives_and_reports_each_kind_of_failure_once():
    notices: list[str] = []
    guard = RunLimits(notices.append)

    def fail() -> int:
        raise ValueError("broken")

    assert guard("counting", lambda: 1, 2) == 1
    assert [guard("counting", fail, 2), guard("counting", fail, 3), guard("adding", fail, 4)] == [2, 3, 4]
    assert notices == [
        "counting failed (ValueError: broken), which does not affect the command",
        "adding failed (ValueError: broken), which does not affect the command",
    ]


@given(st.binary())
def test_any_bytes_become_text_that_can_be_written(data):
    text = valid_text(os.fsdecode(data))
    assert text.encode().decode() == text
    if b"\xff" in data:
        assert "\\xff" in text


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_text_stays_as_it_is(text):
    assert valid_text(text) == text


def test_half_of_a_surrogate_pair_can_be_written():
    assert valid_text("a\ud800b") == "a\\ud800b"
