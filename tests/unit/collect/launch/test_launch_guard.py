"""Tests of guarded calls that may fail, and of text that may hold any bytes."""

import os
from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from jobmeter.collect.launch.session import JobRun, RunLimits
from jobmeter.collect.text import escape_invalid


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


def test_no_call_waits_between_the_regular_ticks_and_the_last_tick():
    """The last tick is the end of the job."""
    steps: list[str] = []

    def note(step: str) -> Any:
        return lambda *_args, **_more: steps.append(step)

    def orphans(_ending: object) -> list[object]:
        steps.append("orphans end")
        return []

    def run(stop, *_args):
        stop.wait()
        steps.append("regular ticks end")

    def tick(*, force):
        steps.append("last tick")
        return 7 if force else None

    loop: Any = SimpleNamespace(run=run, tick=tick)
    started: Any = SimpleNamespace(
        _guard=RunLimits(steps.append),
        _tick=lambda loop, stop, interval_ms: loop.run(stop, interval_ms, ()),
        _delivery=SimpleNamespace(start=note("delivery starts")),
        _children=SimpleNamespace(running=frozenset(), wait_for_orphans=orphans),
        _read_final_stat=None,
        _measurement=SimpleNamespace(
            make_poller=lambda *_: SimpleNamespace(start=note("poller starts"), stop=note("poller stops")),
            programs=SimpleNamespace(close=note("reports close")),
        ),
        _finish_output=note("output ends"),
        _list_gone_ranks=None,
        _relay=SimpleNamespace(stop=note("relay closes")),
    )
    assert JobRun.measure(started, loop, 1_000) == 7
    ends = ["output ends", "poller stops", "reports close", "regular ticks end", "last tick", "relay closes"]
    assert steps == ["delivery starts", "poller starts", "orphans end", *ends]


@given(st.binary())
def test_any_bytes_become_text_that_can_be_written(data):
    text = escape_invalid(os.fsdecode(data))
    assert text.encode().decode() == text
    if b"\xff" in data:
        assert "\\xff" in text


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_text_stays_as_it_is(text):
    assert escape_invalid(text) == text


def test_half_of_a_surrogate_pair_can_be_written():
    assert escape_invalid("a\ud800b") == "a\\ud800b"
