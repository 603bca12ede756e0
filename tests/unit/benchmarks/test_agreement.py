"""A contestant that answers something else than what was asked is found out."""

import json

import pytest
from benchmarks import agreement
from benchmarks.contestant import Asked
from benchmarks.ours import Jobmeter
from benchmarks.peers import VictoriaMetrics

ASKED = Asked("job", 1_795_300_000_000, 1, 300, "device", "worker-3")


@pytest.fixture
def compared(monkeypatch, tmp_path):
    monkeypatch.setattr("benchmarks.contestant.folder", lambda: tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "admin.key").write_text('{"token": "t"}')
    ours, theirs = Jobmeter(), VictoriaMetrics()

    def compare(mine: list[list[float]], other: list[list[float]]) -> None:
        answers = {
            ours.port: {"lines": [{"points": [[0, value] for value in line]} for line in mine]},
            theirs.port: {"data": {"result": [{"values": [[0, str(value)] for value in line]} for line in other]}},
        }
        monkeypatch.setattr(agreement, "answer", lambda request: json.dumps(answers[request.port]).encode())
        agreement.compare([ours, theirs], ASKED, 2)

    return compare


def test_the_same_answer_passes_with_a_step_more_at_the_end(compared):
    compared([[0.5, 0.6], [0.7, 0.8]], [[0.4, 0.5, 0.6], [0.7, 0.7, 0.8]])


@pytest.mark.parametrize(
    ("mine", "other"),
    [
        ([[0.5], [0.7]], [[0.5]]),
        ([[0.5], [0.7]], [[], []]),
        ([[0.5] * 3, [0.7] * 3], [[0.5] * 6, [0.7] * 6]),
        ([[0.5, 0.6] * 6, [0.7, 0.8] * 6], [[0.5, 0.6] * 6, [0.8, 0.9] * 6]),
    ],
)
def test_another_answer_does_not(compared, mine, other):
    with pytest.raises(RuntimeError, match="VictoriaMetrics answers"):
        compared(mine, other)
