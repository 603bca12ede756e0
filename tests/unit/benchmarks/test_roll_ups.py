"""Tests of waiting for roll-ups: they have stopped growing, and the question reads them."""

import json
from typing import Any

import pytest
from benchmarks.ours import Jobmeter
from benchmarks.questions import Asked

ASKED = Asked("job", 1_795_300_200_000, 24, 300, "replica")


@pytest.fixture
def server(monkeypatch, tmp_path):
    """Return a server whose minutes grow as listed, a number a second, and which reads them from a hundred on."""
    monkeypatch.setattr("benchmarks.contestant.tempfile.mkdtemp", lambda prefix: str(tmp_path))
    monkeypatch.setattr(Jobmeter, "headers", {})
    now, minutes = [0.0], [0]
    monkeypatch.setattr("benchmarks.ours.time.sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    monkeypatch.setattr("benchmarks.ours.time.monotonic", lambda: now[0])
    questions = list[int]()

    def answered(request: Any) -> bytes:
        if request.path.endswith("/status"):
            return json.dumps({"rows": {"minutes": minutes[0], "hours": 0}}).encode()
        questions.append(minutes[0])
        return json.dumps({"tiers": ["raw", "minute"] if minutes[0] >= 100 else ["raw"]}).encode()

    monkeypatch.setattr("benchmarks.ours.answer", answered)

    def wait(*grown: int) -> list[int]:
        ahead = list(grown)
        status = Jobmeter.status

        def next_status(self: Jobmeter) -> dict[str, Any]:
            minutes[0] = ahead.pop(0) if ahead else minutes[0]
            return status(self)

        monkeypatch.setattr(Jobmeter, "status", next_status)
        Jobmeter().wait_for_roll_ups(ASKED, "minute", quiet=3.0, patience=60.0)
        return questions

    return wait


def test_nothing_is_queried_while_the_roll_ups_grow(server):
    assert server(0, 0, 0, 0, 0, 20, 60, 80, 100, 120) == [120]


def test_a_pause_on_the_way_is_not_the_end(server):
    assert server(20, 20, 20, 20, 20, 60, 100) == [20, 100]


def test_waiting_ends(server):
    with pytest.raises(RuntimeError, match=r"no roll-up \(minute\) of job in 60 s"):
        server(20)
