"""Tests of benchmark questions: they never repeat, and each contestant is asked for the same buckets."""

import itertools
from urllib.parse import parse_qs, urlsplit

import pytest
from benchmarks.agreement import FRESH_MS
from benchmarks.data import PHASE_MS, STEP_MS, utilization
from benchmarks.ours import Jobmeter
from benchmarks.peers import Prometheus, VictoriaMetrics
from benchmarks.questions import Asked, live, moving

NOW = 1_795_300_005_123


@pytest.fixture(params=[Jobmeter, VictoriaMetrics, Prometheus])
def contestant(request, monkeypatch, tmp_path):
    return _in(request.param, monkeypatch, tmp_path)


def _in(kind, monkeypatch, tmp_path):
    monkeypatch.setattr("benchmarks.contestant.tempfile.mkdtemp", lambda prefix: str(tmp_path))
    (tmp_path / "data").mkdir(exist_ok=True)
    (tmp_path / "data" / "admin.key").write_text('{"token": "t"}')
    return kind()


@pytest.mark.parametrize("clock", [lambda: NOW, iter(range(NOW, NOW + 10**6, 7)).__next__])
@pytest.mark.parametrize("questions", [live("job"), [Asked("job", 0, 24, 300, "device")]])
def test_no_question_repeats_whatever_the_clock_does(questions, clock):
    asked = list(itertools.islice(moving(questions, clock), 20_000))
    assert len(set(asked)) == 20_000
    assert {one.replica for one in asked} == {one.replica for one in questions}
    assert all(b.end_ms >= a.end_ms for a, b in itertools.pairwise(asked))
    assert min(one.end_ms for one in asked) >= NOW


def test_the_range_ends_now_while_the_clock_moves_faster_than_the_questions():
    times = iter(range(NOW, NOW + 10**6, 50))
    assert [
        one.end_ms for one in itertools.islice(moving([Asked("job", 0, 1, 300, "replica")], times.__next__), 3)
    ] == [
        NOW,
        NOW + 50,
        NOW + 100,
    ]


@pytest.mark.parametrize("cached", [True, False])
def test_no_message_repeats(contestant, cached):
    messages = list(itertools.islice(contestant.messages(live("job"), cached=cached), 5_000))
    assert len(set(messages)) == 5_000


def test_only_an_uncached_question_sends_the_peer_no_cache(monkeypatch, tmp_path):
    victoria = _in(VictoriaMetrics, monkeypatch, tmp_path)
    asked = Asked("job", NOW, 24, 300, "replica")
    assert b"nocache=1" in victoria.message(asked, cached=False)
    assert b"nocache" not in victoria.message(asked)


@pytest.mark.parametrize("asked", [*live("job", NOW)[:2], Asked("job", NOW, 24, 300, "device")])
def test_everybody_is_queried_for_the_same_buckets(asked, monkeypatch, tmp_path):
    mine = parse_qs(urlsplit(_in(Jobmeter, monkeypatch, tmp_path).path(asked)).query)
    theirs = parse_qs(urlsplit(_in(VictoriaMetrics, monkeypatch, tmp_path).path(asked)).query)
    step = asked.step_s * 1000
    # Our buckets start at their time, and theirs end at it. Both ranges have the same end.
    assert int(mine["start"][0]) // step * step == int(theirs["start"][0]) * 1000 - step
    assert int(mine["end"][0]) == round(float(theirs["end"][0]) * 1000) == NOW
    assert mine["step"] == [f"{asked.step_s}s"]
    assert theirs["step"] == [str(asked.step_s)]
    assert f'job="{asked.job}"' in theirs["query"][0]
    assert ("replica=" in theirs["query"][0]) == ("replica" in mine)


def test_no_sample_lies_on_the_edge_of_a_bucket():
    data = utilization(NOW, 1)
    assert set(data.time % STEP_MS) == {PHASE_MS}
    assert NOW - STEP_MS < data.end_ms <= NOW
    assert FRESH_MS > STEP_MS
