"""Tests that the benchmark detects a contestant with an answer to another question, point by point."""

import json

import pytest
from benchmarks import agreement
from benchmarks.agreement import FRESH_MS, difference
from benchmarks.ours import Jobmeter
from benchmarks.peers import VictoriaMetrics
from benchmarks.questions import Asked

NOW = 1_795_300_200_000
STEP = 300_000
ASKED = Asked("job", NOW + 1_000, 1, 300, "device", "worker-3")
FIRST = NOW - 12 * STEP
"""Bucket that the range cuts, because the range begins a second later."""


@pytest.fixture
def compared(monkeypatch, tmp_path):
    monkeypatch.setattr("benchmarks.contestant.tempfile.mkdtemp", lambda prefix: str(tmp_path))
    monkeypatch.setattr(agreement, "now_ms", lambda: NOW + FRESH_MS)
    everybody = [Jobmeter(), VictoriaMetrics()]

    def compare(mine, other, lines=2) -> str:
        ours = [
            {"replica": "worker-3", "device": device, "points": [[at, value] for at, value in points.items()]}
            for device, points in mine.items()
        ]
        theirs = [
            {
                "metric": {"replica": "worker-3", "device": device},
                "values": [[(at + STEP) / 1000, str(value)] for at, value in points.items()],
            }
            for device, points in other.items()
        ]
        bodies = [{"lines": ours}, {"data": {"result": theirs}}]
        return difference(everybody, [json.dumps(body).encode() for body in bodies], ASKED, lines)

    return compare


def lines(**changed):
    points = {FIRST + number * STEP: number / 7 for number in range(13)}
    return {"gpu0": dict(points), "gpu1": {**points, **changed.get("gpu1", {})}}


def test_the_same_answer_passes(compared):
    assert compared(lines(), lines()) == ""


def test_the_buckets_that_the_range_cuts_are_not_compared(compared):
    assert compared(lines(gpu1={FIRST: 0.9, NOW: 0.9}), lines()) == ""


def test_buckets_that_just_ended_are_not_compared(compared, monkeypatch):
    newest = {NOW - STEP: 9.0}
    assert "disagrees" in compared(lines(gpu1=newest), lines())
    monkeypatch.setattr(agreement, "now_ms", lambda: NOW + FRESH_MS - 1_000)
    assert compared(lines(gpu1=newest), lines()) == ""


def test_a_rounding_error_is_no_difference(compared):
    assert compared(lines(), lines(gpu1={FIRST + STEP: 1 / 7 + 1e-12})) == ""


@pytest.mark.parametrize(
    "other",
    [
        lines(gpu1={FIRST + 5 * STEP: 0.7142}),
        lines(gpu1={FIRST + STEP // 2: 0.1}),
        {"gpu0": lines()["gpu0"], "gpu2": lines()["gpu0"]},
        {"gpu0": lines()["gpu0"], "gpu1": dict.fromkeys(list(lines()["gpu1"])[:6], 0.1)},
    ],
)
def test_another_answer_does_not(compared, other):
    assert compared(lines(), other).startswith("VictoriaMetrics disagrees: ")


@pytest.mark.parametrize(
    "other", [{"gpu0": lines()["gpu0"]}, {**lines(), "gpu1": {}}, {**lines(), "gpu2": lines()["gpu0"]}]
)
def test_other_lines_do_not(compared, other):
    assert compared(lines(), other).startswith("VictoriaMetrics answers ")


def test_agreement_on_nothing_is_none(compared):
    assert compared({}, {}).startswith("Jobmeter answers 0 lines")
