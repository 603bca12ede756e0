"""What is remembered of what goes on, in its bounds."""

import pytest

from jobmeter.registry import held
from jobmeter.registry.held import Held, Learned
from jobmeter.registry.intervals import Interval


def learned(job: str, devices: int, end: int) -> Learned:
    ends = {(("p", job), ("w", "n", f"gpu{at}")): Interval(0, end, row=at) for at in range(devices)}
    return Learned(ends, [(("p", job), ("w", 0))])


def test_what_goes_on_for_long_is_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held, "MOST", 20)
    kept = Held(alone=True)
    kept.commit(learned("j", 8, 0))
    for minute in range(1, 100):
        # Only what is new is learned of replicas.
        kept.commit(Learned(learned("j", 8, minute).ends))
        assert kept.runs(("p", "j"), ("w", 0))
    assert [interval.end for interval in kept._intervals["p", "j"].values()] == [99] * 8


def test_more_than_may_be_remembered_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held, "MOST", 20)
    kept = Held(alone=True)
    for number in range(100):
        kept.commit(learned(f"j{number}", 3, number))
        assert sum(map(len, kept._intervals.values())) + sum(map(len, kept._running.values())) <= 20
        if number % 3 == 0:
            kept.forget([("p", f"j{number}"), ("p", "another")])
    kept.clear()
    for _ in range(2):
        kept.commit(learned("j", 18, 1))
        assert kept.runs(("p", "j"), ("w", 0))
