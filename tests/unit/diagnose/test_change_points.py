"""Tests of level changes and peaks of warnings on series with a known truth, and of the events of a job's nodes."""

import numpy as np
import pytest
from benchmarks.faults.build import START, STEP, batch
from tests.support.frames import records
from tests.support.serving import serving

from jobmeter.diagnose.change_points import WINDOW, find_metric_changes, log_peaks
from jobmeter.model.event import Level
from jobmeter.model.time import MINUTE


@pytest.mark.parametrize("seed", range(5))
def test_a_change_of_level_is_found_where_it_is(seed):
    made = batch(np.random.default_rng(seed))
    at = len(made.time) // 2
    made.series["cpu.usage", "worker-1", ""][at:] *= 0.2
    [turn] = find_metric_changes(made.case())
    assert (turn.name, turn.replica) == ("cpu.usage", "worker-1")
    assert abs(turn.time - (START + at * STEP)) <= 2 * STEP
    assert turn.text.startswith("cpu.usage of worker-1 fell from 1.")


@pytest.mark.parametrize(("before", "after", "text"), [(0.21, 1.0, "from 0.21 to 1"), (0.1, 0.91, "from 0.1 to 0.91")])
def test_a_share_is_shown_whole_and_without_a_unit(before, after, text):
    made = batch(np.random.default_rng(0))
    value = made.series["cpu.utilization", "worker-1", ""]
    value[:] = before
    value[len(value) // 2 :] = after
    made.gap = None
    [turn] = find_metric_changes(made.case())
    assert turn.text == f"cpu.utilization of worker-1 rose {text}"


@pytest.mark.parametrize("seed", range(5))
def test_noise_is_no_change(seed):
    assert find_metric_changes(batch(np.random.default_rng(seed)).case()) == []


def test_too_few_points_say_nothing():
    made = batch(np.random.default_rng(1))
    made.length = WINDOW * STEP
    made.series = {key: value[:WINDOW] for key, value in made.series.items()}
    made.nodes = {}
    assert find_metric_changes(made.case()) == []


def test_a_minute_of_many_warnings_is_a_peak():
    made = batch(np.random.default_rng(1))
    for minute in range(10):
        made.say("slow", minute * MINUTE, level=Level.WARNING)
    for at in range(40):
        made.say("failed", 5 * MINUTE + at, level=Level.ERROR)
    [peak] = log_peaks(made.case())
    assert (peak.time, peak.replica) == (START + 5 * MINUTE, "worker-0")
    assert peak.text == "41 warnings and errors in a minute"


def test_events_of_a_node_are_there_while_the_job_had_it(tmp_path):
    server = serving(tmp_path / "data")
    try:
        now = server.clock.now_ms()
        replica = {"name": "w-0", "node": "n", "start": now - 60_000, "end": now - 20_000, "state": "Succeeded"}
        job = {"job_id": "j", "start": now - 100_000, "end": now, "state": "Succeeded", "replicas": [replica]}
        events = [
            {"time": now - back, "node": "n", "source": "node", "reason": f"R{back}"} for back in (70_000, 40_000, 9)
        ]
        other = {"time": now - 40_000, "node": "n", "job": "k", "source": "replica", "reason": "Theirs"}
        assert server.ingest(records({"jobs": [job], "events": [*events, other]})).status == 200
        moments = server.call("GET", "/jobs/j/timeline").json()
        assert [one["name"] for one in moments if one["kind"] == "node"] == ["R40000"]
        assert {one["kind"] for one in server.call("GET", "/jobs/j/timeline?kind=state").json()} == {"state"}
    finally:
        server.application.close()
