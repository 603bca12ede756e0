"""Tests of the calls that a page offers for its charts: each works, and gives the values of our own API."""

import json
from pathlib import Path
from urllib.parse import quote

import pytest
from tests.support.fakes import NOW
from tests.support.frames import records, samples

from jobmeter import dialects
from jobmeter.dialects.base.view import KEY
from jobmeter.model.time import parse_time

MINUTE = 60_000
START = NOW - 60 * MINUTE
SPAN = (START + 10 * MINUTE, START + 30 * MINUTE)
RANKS = ("worker-0", "worker-1")
JOB = {
    "job_id": "train-1",
    "start": START,
    "replicas": [{"name": name, "node": "n1", "rank": at, "devices": [f"gpu{at}"]} for at, name in enumerate(RANKS)],
}


def measured(metric, at, **where):
    place = {"metric": metric, "job": JOB["job_id"], "replica": RANKS[at], "node": "n1", **where}
    return place, [(START + n * MINUTE + 1, (n + 10 * at) / 100) for n in range(60)]


@pytest.fixture
def filled(server):
    lines = [
        line
        for at in range(2)
        for line in (
            measured("gpu.utilization", at, device=f"gpu{at}"),
            measured("app.loss", at),
            measured("flink.delay", at),
            measured("cpu.usage", at),
            measured("pressure.cpu", at),
        )
    ]
    server.ingest(records({"jobs": [JOB]}) + samples(lines))
    return server


def path():
    return f"/jobs/{quote(str(JOB['job_id']), safe='')}"


def calls(server, metric, **more):
    query = {"metric": metric, "start": SPAN[0], "end": SPAN[1], "step": 60, **more}
    text = "&".join(f"{name}={value}" for name, value in query.items())
    answer = server.call("GET", f"{path()}/calls?{text}")
    assert answer.status == 200, answer.body
    return {call["operation"]: call for call in answer.json()["calls"]}


def made(server, call):
    """Make a call as a shell would, with the key in place of its placeholder. Return the answer."""
    assert KEY in call["header"]
    assert server.admin.token not in json.dumps(call)
    name, _, value = call["header"].replace(KEY, server.admin.token).partition(": ")
    headers = {name: value, **({"Content-Type": "application/json"} if call["body"] else {})}
    answer = server.raw(call["method"], call["path"], call["body"].encode(), headers)
    assert answer.status == 200, answer.body
    return answer.json()


def expected(server, metric):
    """Return the values of our own API by replica."""
    query = f"metric={metric}&by=replica&start={SPAN[0]}&end={SPAN[1]}&step=60s"
    lines = server.call("GET", f"{path()}/metrics?{query}").json()["lines"]
    assert [len(line["points"]) for line in lines] == [20, 20]
    return {line["replica"]: dict(map(tuple, line["points"])) for line in lines}


def close(values):
    return pytest.approx(values, rel=1e-9)


def test_pai_dlc_gives_what_is_shown(filled):
    body = made(filled, calls(filled, "gpu.utilization")["GetJobMetrics"])
    values = [{one["Time"]: one["Value"] / 100 for one in pod["Metrics"]} for pod in body["PodMetrics"]]
    assert values == [close(one) for one in expected(filled, "gpu.utilization").values()]


def test_pai_studio_gives_what_is_shown(filled):
    body = made(filled, calls(filled, "gpu.utilization")["ListTrainingJobInstanceMetrics"])
    values = [
        {parse_time(one["Time"], ""): one["Value"] / 100 for one in member["Metrics"]}
        for member in body["InstanceMetrics"]
    ]
    assert values == [close(one) for one in expected(filled, "gpu.utilization").values()]


def test_baseten_gives_what_is_shown(filled):
    body = made(filled, calls(filled, "gpu.utilization")["get_training_projects_jobs_metrics"])
    values = {
        node["node_id"]: {
            parse_time(one["timestamp"], ""): one["value"]
            for line in node["metrics"]["gpu_utilization"].values()
            for one in line
        }
        for node in body["per_node_metrics"]
    }
    assert values == {name: close(one) for name, one in expected(filled, "gpu.utilization").items()}


def test_modelarts_gives_the_life_of_the_chosen_task(filled):
    call = calls(filled, "gpu.utilization", replica="worker-1")["ShowTrainingJobMetrics"]
    assert "worker-1" in call["note"]
    (own,) = [one["value"] for one in made(filled, call)["metrics"] if one["metric"] == "gpuUtil"]
    shown = expected(filled, "gpu.utilization")["worker-1"]
    assert [own[(time - START) // MINUTE] / 100 for time in shown] == close(list(shown.values()))


def test_opentsdb_gives_what_is_shown(filled):
    found = made(filled, calls(filled, "gpu.utilization")["/api/query"])
    values = {one["tags"]["replica"]: {int(at): value for at, value in one["dps"].items()} for one in found}
    assert values == {name: close(one) for name, one in expected(filled, "gpu.utilization").items()}


@pytest.mark.parametrize("metric", ["gpu.utilization", "cpu.usage"])
def test_cloudmonitor_gives_what_is_shown(filled, metric):
    call = calls(filled, metric)["DescribeMetricList"]
    values: dict[str, dict[int, float]] = {}
    for one in json.loads(made(filled, call)["Datapoints"]):
        values.setdefault(one["pod"].removeprefix("train-1-"), {})[one["timestamp"]] = one["Average"]
    unit = 100 if metric == "gpu.utilization" else 1
    shown = expected(filled, metric)
    assert values == {name: close({at: v * unit for at, v in own.items()}) for name, own in shown.items()}


def test_cloudmonitor_is_queried_for_the_next_period_that_it_has_and_says_so(filled):
    call = calls(filled, "gpu.utilization", step=120)["DescribeMetricList"]
    assert "Period=300" in call["path"]
    assert "300 seconds" in call["note"]
    made(filled, call)
    longer = calls(filled, "gpu.utilization", start=SPAN[0] - 40 * 86_400_000)
    assert "DescribeMetricList" not in longer


def test_every_dialect_that_answers_about_a_jobs_metrics_has_a_command(filled):
    """A dialect with queries for a job's metrics has a ``view.py``, and the registry offers it."""
    # These cover metrics of nodes, alerts, runs and traces only, or only accept data.
    without = {"alertmanager", "eas", "eflo", "mlflow", "otlp", "pai_llm_trace", "prometheus"}
    folder = Path(dialects.__file__).parent
    own = {one.parent.name for one in folder.rglob("SPEC.md")}
    assert {one.parent.name for one in folder.rglob("view.py") if one.parent.name != "base"} == own - without
    offered = set(calls(filled, "gpu.utilization")) | set(calls(filled, "flink.delay"))
    assert len(offered) == len(own - without)


def test_flink_gives_what_is_shown_while_the_job_runs(filled):
    found = made(filled, calls(filled, "flink.delay")["GetInstanceMetric"])["metrics"]
    values = {one["tags"]["replica"]: {int(at) * 1000: float(v) for at, v in one["dps"].items()} for one in found}
    assert values == {name: close(one) for name, one in expected(filled, "flink.delay").items()}
    filled.call("POST", "/jobs", {"job_id": JOB["job_id"], "state": "Succeeded", "end": NOW})
    assert "GetInstanceMetric" not in calls(filled, "flink.delay")


def test_what_a_program_reported_is_requested_as_such(filled):
    found = calls(filled, "app.loss")
    reports = made(filled, found["ListTrainingJobMetrics"])["Metrics"]
    assert {one["Name"] for one in reports} == {"loss"}
    assert made(filled, found["ShowFtMetrics"])["data"]["metrics"][0]["name_en"] == "loss"


def test_only_apis_that_have_the_metric_are_offered(filled):
    assert calls(filled, "pressure.cpu") == {}
    assert set(calls(filled, "gpu.utilization")) == {
        "GetJobMetrics",
        "ListTrainingJobInstanceMetrics",
        "DescribeMetricList",
        "ShowTrainingJobMetrics",
        "get_training_projects_jobs_metrics",
        "/api/query",
    }


@pytest.mark.parametrize(
    "query", ["", "metric=gpu.utilization", "metric=none&start=1&end=2", "metric=cpu.usage&start=2&end=2"]
)
def test_what_cannot_be_shown_is_refused(filled, query):
    assert filled.call("GET", f"{path()}/calls?{query}").status == 400
