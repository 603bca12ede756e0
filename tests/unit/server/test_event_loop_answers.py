"""Tests of threads: answers from memory run on the event loop, other queries and changes take a thread."""

import pytest
from tests.support.fakes import NOW
from tests.support.frames import records, samples

from jobmeter.server.admission import Lane

LIVE = "/jobs/j1/metrics?metric=gpu.utilization&since=1h&step=5m"
DLC = "/api/v1/jobs/j1/metrics?MetricType=GpuCoreUsage&TimeStep=5m"


@pytest.fixture
def turns(monkeypatch):
    """Record the names of the lanes that were taken, in order."""
    taken: list[str] = []
    run = Lane.run

    def counted(self, *arguments, **named):
        taken.append(self.name)
        return run(self, *arguments, **named)

    monkeypatch.setattr(Lane, "run", counted)
    return taken


@pytest.fixture
def stored(server):
    series = {"metric": "gpu.utilization", "job": "j1", "replica": "worker-0", "node": "n1", "device": "gpu0"}
    points = [(NOW - 600_000 + 10_000 * n, n / 100) for n in range(60)]
    assert server.ingest(records({"jobs": [{"job_id": "j1"}]}) + samples([(series, points)])).status == 200
    return server


@pytest.mark.parametrize("target", ["/api/jobmeter/v1" + LIVE, DLC])
def test_a_question_that_was_answered_before_needs_no_thread(stored, turns, target):
    headers = {"Authorization": f"Bearer {stored.admin.token}"}
    first = stored.raw("GET", target, headers=headers)
    assert first.status == 200
    assert turns == ["read"]
    again = stored.raw("GET", target, headers=headers).json()
    assert {**again, "RequestId": ""} == {**first.json(), "RequestId": ""}
    assert turns == ["read"]


def test_new_samples_are_in_the_next_answer_at_once(stored, turns):
    stored.call("GET", LIVE)
    series = {"metric": "gpu.utilization", "job": "j1", "replica": "worker-0", "node": "n1", "device": "gpu0"}
    stored.ingest(samples([(series, [(NOW - 1_000, 1.0)])]))
    turns.clear()
    (line,) = stored.call("GET", LIVE).json()["lines"]
    assert line["points"][-1][0] >= NOW - 300_000
    assert stored.call("GET", LIVE).json()["samples"] == 61
    assert turns.count("read") <= 1


def test_samples_of_series_that_came_before_take_no_thread(stored, turns):
    series = {"metric": "gpu.utilization", "job": "j1", "replica": "worker-0", "node": "n1", "device": "gpu0"}
    reply = stored.ingest(samples([(series, [(NOW - 1_000, 1.0)])]))
    decoded = reply.json()
    assert decoded.pop("time") > 0
    assert (reply.status, decoded) == (200, {"accepted": 1, "records": 0, "rejected": {}})
    assert stored.ingest(samples([(series, [(NOW - 900, 7.0)])])).status == 400
    assert turns == []
    assert stored.ingest(samples([({**series, "device": "gpu1"}, [(NOW - 1_000, 1.0)])])).status == 200
    assert turns == ["write"]
    assert stored.call("GET", LIVE).json()["samples"] == 62


def test_a_new_series_and_a_new_job_are_read(stored, turns):
    stored.call("GET", LIVE)
    series = {"metric": "gpu.utilization", "job": "j1", "replica": "worker-1", "node": "n2", "device": "gpu0"}
    stored.ingest(samples([(series, [(NOW - 1_000, 1.0)])]))
    assert [line["replica"] for line in stored.call("GET", LIVE).json()["lines"]] == ["worker-0", "worker-1"]
    assert stored.call("GET", LIVE.replace("j1", "j2")).status == 404


def test_a_revoked_key_is_refused_at_once(stored):
    key = stored.key("reader")
    assert [stored.call("GET", LIVE, key=key).status for _ in range(2)] == [200, 200]
    assert stored.call("DELETE", f"/keys/{key.id}").status == 200
    assert stored.call("GET", LIVE, key=key).status == 401


def test_the_same_words_mean_what_they_mean_where_they_are_queried_and_to_whom(stored):
    query = LIVE.partition("?")[2]
    own = stored.key("reader", "default")
    foreign = stored.key("reader", "elsewhere")
    for _ in range(2):
        assert stored.call("GET", LIVE, key=own).status == 200
        assert stored.call("GET", LIVE, key=foreign).status == 404
        refusal = stored.call("GET", f"/jobs/j1/latest?{query}")
        assert (refusal.status, refusal.json()["error"]["field"]) == (400, "since")


def test_refusals_are_the_same_at_once_as_on_a_thread(stored):
    wrong = LIVE.replace("5m", "0m")
    answers = [stored.call("GET", wrong) for _ in range(2)]
    assert [one.status for one in answers] == [400, 400]
    assert stored.call("GET", LIVE, headers={"Authorization": "Bearer jm_no"}).status == 401


def test_a_question_of_a_rate_is_counted_once(tmp_path):
    from tests.support.serving import serving

    server = serving(tmp_path / "limited", rate_limits="getJobMetrics=1:3")
    series = {"metric": "gpu.utilization", "job": "j1", "replica": "worker-0", "node": "n1", "device": "gpu0"}
    server.ingest(samples([(series, [(NOW - 1_000, 1.0)])]))
    assert [server.call("GET", LIVE).status for _ in range(4)] == [200, 200, 200, 429]


def test_what_is_answered_at_once_is_on_the_budget_of_its_key(tmp_path):
    from tests.support.serving import serving

    server = serving(tmp_path / "limited", query_budgets="rows=3")
    series = {"metric": "gpu.utilization", "job": "j1", "replica": "worker-0", "node": "n1", "device": "gpu0"}
    server.ingest(samples([(series, [(NOW - 1_000, 1.0)])]))
    assert [server.call("GET", LIVE).status for _ in range(4)] == [200, 200, 200, 429]
    assert server.call("GET", LIVE, key=server.key("reader")).status == 200
    server.application.close()


@pytest.mark.parametrize("how", ["mean", "sum", "min", "max", "whole"])
@pytest.mark.parametrize("by", ["replica", "device", "job"])
def test_members_are_joined_the_same_way_in_memory_as_on_a_thread(stored, turns, how, by):
    other = {"metric": "gpu.utilization", "job": "j1", "replica": "worker-0", "node": "n1", "device": "gpu1"}
    stored.ingest(samples([(other, [(NOW - 600_000 + 10_000 * n, 1.0 - n / 200) for n in range(60)])]))
    target = f"{LIVE}&by={by}&aggregate={how}"
    first = stored.call("GET", target)
    turns.clear()
    again = stored.call("GET", target)
    assert (first.status, again.status, turns) == (200, 200, [])
    assert again.json()["lines"] == first.json()["lines"]


def test_a_time_that_differs_is_read_anew_and_one_that_is_repeated_is_refused(stored):
    query = "/jobs/j1/metrics?metric=gpu.utilization&step=5m"
    for back in (600_000, 300_000, 600_000):
        body = stored.call("GET", f"{query}&start={NOW - back}&end={NOW}").json()
        assert (body["start"], body["end"]) == (NOW - back, NOW)
    twice = stored.call("GET", f"{query}&end={NOW}&start=1&start=2")
    assert (twice.status, twice.json()["error"]["field"]) == (400, "start")
    wrong = stored.call("GET", f"{query}&end=soon")
    assert (wrong.status, wrong.json()["error"]["field"]) == (400, "end")
