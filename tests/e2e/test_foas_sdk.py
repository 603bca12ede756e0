"""Tests of the vendor's own SDK for Flink against a real server, with nothing but the endpoint changed."""

import http.client
import json
import subprocess
import time
from itertools import product
from pathlib import Path
from urllib.parse import urlencode
from xml.etree import ElementTree as ET

import numpy as np
import pandas as pd
import pytest

from jobmeter.model.catalog import map_dialect_names
from tests.support.frames import records, row, samples
from tests.support.processes import running

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venvs" / "alibaba" / "bin" / "python"
SCRIPT = Path(__file__).parent / "sdk" / "foas.py"
PROJECT, THEIRS = "bayes-team", "bayes_team"
JOB, NAME = "flink-20261120-1", "orders.to.sink v2"
METRICS = {name: metric.name for name, metric in map_dialect_names("foas").items()}
STEP_MS = 5_000
SAMPLE = {
    1574247000: (492900000, "4.929E+8"),
    1574247600: (493500160, "4.9350016E+8"),
    1574248200: (494100352, "494100352"),
    1574248800: (494700544, "494700544"),
    1574249400: (495300736, "495300736"),
    1574250000: (495900896, "495900896"),
}
AGGREGATIONS = {"avg": "mean", "max": "max", "min": "min", "sum": "sum"}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PYTHON.exists(), reason="the environment of the SDK is not built: make sdk"),
]


def _samples(end_ms):
    """Return samples of three replicas over twenty minutes, with gaps, a scale for each metric, and some with tasks."""
    random = np.random.default_rng(11)
    rows = []
    for at, (name, metric) in enumerate(METRICS.items()):
        tasks = ("source", "sink") if at % 3 == 0 else ("",)
        for replica, task in product(("tm-0", "tm-1", "tm-2"), tasks):
            times = np.arange(end_ms - 1_200_000, end_ms, STEP_MS)
            times = times[random.random(len(times)) > 0.3]
            values = random.random(len(times)) * 10.0 ** (at % 13)
            values = np.round(values, 3 if at % 2 else 0)
            rows += [(name, metric, replica, task, int(t), float(v)) for t, v in zip(times, values, strict=True)]
    return pd.DataFrame(rows, columns=["name", "metric", "replica", "task", "time", "value"])


def _jobs(end_ms):
    run = {"project": PROJECT, "state": "Running", "start": end_ms - 1_200_000}
    return [
        {**run, "job_id": JOB, "name": NAME, "type": "FlinkStream", "user": "ada"},
        {**run, "job_id": "ss2", "type": "FlinkStream", "start": 1574247000000},
        {**run, "job_id": "daily-1", "name": "daily", "type": "FlinkBatch", "state": "Succeeded", "end": end_ms},
        {**run, "job_id": "daily-2", "name": "daily", "type": "FlinkBatch"},
        {**run, "job_id": "stopped", "type": "FlinkStream", "state": "Stopped", "end": end_ms},
        {**run, "job_id": "hidden", "type": "FlinkStream", "project": "other", "user": "eve"},
    ]


@pytest.fixture(scope="module")
def ask():
    """Yield a function that sends requests to the SDK, one after the other, in its own process."""
    command = [PYTHON, SCRIPT]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        lines, answers = process.stdin, process.stdout

        def run_sdk(*asks):
            for one in asks:
                lines.write(f"{json.dumps(one)}\n")
            lines.flush()
            return [json.loads(answers.readline()) for _ in asks]

        yield run_sdk
        lines.close()
        assert process.wait(30) == 0


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    folder = tmp_path_factory.mktemp("foas")
    keep = {f"JOBMETER_RETENTION_{tier}_DAYS": "36500" for tier in ("RAW", "MINUTE", "HOUR")}
    with running(folder / "data", environment=keep) as server:
        end_ms = int(time.time() * 1000) // 60_000 * 60_000 - 60_000
        frame = _samples(end_ms)
        written = [
            row(
                metric,
                list(zip(own["time"], own["value"], strict=True)),
                JOB,
                replica,
                project=PROJECT,
                labels=(("task", task),) if task else (),
            )
            for (metric, replica, task), own in frame.groupby(["metric", "replica", "task"])
        ]
        delay = METRICS["delay"]
        sample = [(second * 1000, float(value)) for second, (value, _) in SAMPLE.items()]
        written.append(row(delay, sample, "ss2", "tm-0", project=PROJECT))
        written += [
            row(delay, [(end_ms - 60_000, 7.0)], job, "tm-0", project=project)
            for job, project in (("daily-2", PROJECT), ("stopped", PROJECT), ("hidden", "other"))
        ]
        modes = {"user": 0.6, "idle": 1.0, "iowait": 0.4}
        written += [
            row(
                "node.cpu.time",
                [(end_ms - 120_000 + at * STEP_MS, 100 + used * (index + 1) * at * 5) for at in range(24)],
                job="",
                replica="",
                node=f"n{index}",
                cluster="d6wx",
                project=PROJECT,
                labels=(("mode", mode),),
            )
            for index in range(2)
            for mode, used in modes.items()
        ]
        nodes = [{"name": f"n{index}", "cluster": "d6wx"} for index in range(2)]
        for body in ({"jobs": _jobs(end_ms), "nodes": nodes},):
            server.ingest(records(body))
        receipt = server.ingest(samples(written)).json()
        assert receipt["accepted"] == sum(len(points) for _, points in written), receipt
        yield server, frame, end_ms


def _call(server, call, values, key=None, **options):
    key = key or server.admin
    return {
        "endpoint": server.url,
        "key": key["access_key_id"],
        "secret": key["access_key_secret"],
        "call": call,
        "set": values,
        **options,
    }


def _metric(server, queries, start, end, job=NAME, number=-1, project=THEIRS, **options):
    limit = {"limit": options.pop("limit")} if "limit" in options else {}
    text = json.dumps({"start": start, "end": end, **limit, "queries": queries})
    values = {"projectName": project, "jobName": job, "instanceId": number, "metricJson": text}
    return _call(server, "GetInstanceMetric", values, **options)


def _query(name="delay", job=NAME, downsample="20s-avg", granularity="20s", aggregator="max", **more):
    metric = f"blink.{THEIRS}.{job}.{name}"
    return {
        "metric": metric,
        "downsample": downsample,
        "granularity": granularity,
        "aggregator": aggregator,
        **more,
    }


def _key(server, **values):
    return json.loads(server.request("POST", "/keys", {"name": "foas", "role": "reader", **values}).body)


def _points(own, downsample_ms, function, granularity_ms, aggregator):
    """Compute {second: value} with pandas: bucket each series, and join the buckets by the granularity."""
    series = ["replica", "task", own.time // downsample_ms * downsample_ms]
    buckets = own.groupby(series)["value"].agg(AGGREGATIONS[function])
    buckets = buckets.reset_index()
    joined = buckets.groupby(buckets.time // granularity_ms * granularity_ms)["value"].agg(AGGREGATIONS[aggregator])
    return {int(moment) // 1000: value for moment, value in joined.items()}


def _found(line):
    return {int(second): float(text) for second, text in line["dps"].items()}


def test_every_metric_and_function_equals_pandas(stored, ask):
    server, frame, end_ms = stored
    start_ms = end_ms - 1_000_000
    inside = frame[(frame.time >= start_ms) & (frame.time <= end_ms)]
    cases = [("20s", "avg", "20s", "max"), ("30s", "max", "60s", "avg"), ("1m", "min", "5m", "sum")]
    cases += [("10s", "sum", "20s", "min")]
    steps = {"10s": 10_000, "20s": 20_000, "30s": 30_000, "60s": 60_000, "1m": 60_000, "5m": 300_000}
    asks = [
        _metric(server, [_query(name, NAME, f"{a}-{f}", g, h) for name in METRICS], start_ms, end_ms)
        for a, f, g, h in cases
    ]
    for (a, f, g, h), answer in zip(cases, ask(*asks), strict=True):
        body = json.loads(answer["body"])
        assert [line["metricName"] for line in body["metrics"]] == [f"blink.{THEIRS}.{NAME}.{name}" for name in METRICS]
        for name, line in zip(METRICS, body["metrics"], strict=True):
            expected = _points(inside[inside.name == name], steps[a], f, steps[g], h)
            assert _found(line) == pytest.approx(expected, rel=1e-12), (name, a, f, g, h)
            assert line["summary"] == pytest.approx(np.mean(list(expected.values())), rel=1e-12)
            assert line["tags"] == {}


FUNCTIONS = {
    **AGGREGATIONS,
    "count": "count",
    "first": "first",
    "last": "last",
    "dev": lambda values: values.std(ddof=0),
    "median": lambda values: values.sort_values().iloc[len(values) // 2],
    "squareSum": lambda values: (values**2).sum(),
    "zimsum": "sum",
    "mimmax": "max",
    "ep90r7": lambda values: values.quantile(0.9),
}
"""Functions of OpenTSDB, written in pandas."""


def _lines(own, downsample_ms, function, aggregator, rate, keys):
    """Compute {grouping tags: {second: value}}: buckets of each series, then rates, then the aggregate."""
    buckets = own.groupby(["replica", "task", own.time // downsample_ms * downsample_ms])["value"]
    points = buckets.agg(FUNCTIONS[function]).reset_index()
    if rate:
        series = points.groupby(["replica", "task"])
        points["value"] = series["value"].diff() / (series["time"].diff() / 1000)
        points = points.dropna()
    points = points.sort_values(["time", "replica", "task"], kind="stable")
    if aggregator == "none":
        keys, aggregator = ["replica", "task"], "last"
    joined = points.groupby([*keys, "time"])["value"].agg(FUNCTIONS[aggregator])
    found: dict[tuple[str, ...], dict[int, float]] = {}
    for (*names, moment), value in ((index if keys else (index,), value) for index, value in joined.items()):
        found.setdefault(tuple(names), {})[int(moment) // 1000] = value
    return found


def test_every_part_of_opentsdbs_query_equals_pandas(stored, ask):
    """Compare random queries with functions, rates, filters, wildcards, seconds and relative times."""
    server, frame, end_ms = stored
    random = np.random.default_rng(31)
    metrics = [name for at, name in enumerate(METRICS) if at % 3 == 0]
    selections: list[tuple[dict[str, object], list[str], list[str]]] = [
        ({}, [], ["tm-0", "tm-1", "tm-2"]),
        ({"tags": {"replica": "*"}}, ["replica"], ["tm-0", "tm-1", "tm-2"]),
        ({"tags": {"replica": "tm-*", "task": "*"}}, ["replica", "task"], ["tm-0", "tm-1", "tm-2"]),
        ({"tags": {"replica": "tm-0|tm-2"}}, ["replica"], ["tm-0", "tm-2"]),
        ({"filters": [{"type": "regexp", "tagk": "replica", "filter": "[12]$"}]}, [], ["tm-1", "tm-2"]),
        (
            {"filters": [{"type": "not_literal_or", "tagk": "replica", "filter": "tm-1", "groupBy": True}]},
            ["replica"],
            ["tm-0", "tm-2"],
        ),
    ]
    asks, wanted = [], []
    for number in range(60):
        name, step_s = metrics[random.integers(len(metrics))], int(random.choice([10, 20, 30, 60]))
        function = str(random.choice(sorted(FUNCTIONS)))
        aggregator = str(random.choice([*sorted(FUNCTIONS), "none"]))
        selection, keys, replicas = selections[random.integers(len(selections))]
        # Use whole steps, so that the range cuts neither a step nor the step before it that a rate needs.
        start_ms, last_ms = end_ms - 600_000, end_ms - 60_000
        rate = bool(random.integers(2))
        form = number % 2
        query = _query(name, NAME, f"{step_s}s-{function}", f"{step_s}s", aggregator, rate=rate, **selection)
        asks.append(_metric(server, [query], start_ms // (1000 if form else 1), last_ms // (1000 if form else 1)))
        own = frame[(frame.name == name) & frame.replica.isin(replicas) & (frame.time <= last_ms)]
        own = own[own.time >= start_ms - (600_000 if rate else 0)]
        lines = _lines(own, step_s * 1000, function, aggregator, rate, keys)
        inside = {key: {at: one for at, one in line.items() if at * 1000 >= start_ms} for key, line in lines.items()}
        wanted.append((query, keys, {key: line for key, line in inside.items() if line}))
    for (query, keys, lines), answer in zip(wanted, ask(*asks), strict=True):
        body = json.loads(answer["body"])
        tags = ["replica", "task"] if query["aggregator"] == "none" else keys
        found = {tuple(line["tags"][name] for name in tags): _found(line) for line in body["metrics"]}
        assert found.keys() == lines.keys(), query
        for key, line in lines.items():
            assert found[key] == pytest.approx(line, rel=1e-9, abs=1e-9), (query, key)


def test_a_relative_range_ends_now(stored, ask):
    server, frame, _ = stored
    asks = [
        _metric(server, [_query(tags={"replica": "*"})], start, end)
        for start, end in (("2h-ago", "now"), ("1h-ago", ""))
    ]
    for answer in ask(*asks):
        lines = json.loads(answer["body"])["metrics"]
        assert [line["tags"]["replica"] for line in lines] == ["tm-0", "tm-1", "tm-2"]
        own = frame[(frame.name == "delay") & (frame.replica == "tm-0")]
        assert len(lines[0]["dps"]) == own.time.floordiv(20_000).nunique()


def _forwarded(server, call, job=NAME, project=THEIRS):
    return _call(server, call, {"projectName": project, "jobName": job, "instanceId": "-1"})


def test_what_the_job_manager_would_say(stored, ask):
    """Details, configuration, checkpoints and exceptions are JSON texts in the form of Flink's REST interface."""
    server, frame, end_ms = stored
    failures = [
        {
            "time": end_ms - 9_000,
            "reason": "Restarted",
            "level": "warning",
            "message": "java.lang.Exception: a\n\tat x",
        },
        {"time": end_ms - 5_000, "reason": "JobFailed", "level": "error", "message": "java.io.IOException: ü <&>"},
        {"time": end_ms - 1_000, "reason": "Noted", "level": "warning", "message": "no failure"},
    ]
    server.ingest(records({"events": [{**one, "job": JOB, "project": PROJECT} for one in failures]}))
    detail, config, checkpoints, exceptions, resource, stopped, unknown = ask(
        *(
            _forwarded(server, call)
            for call in (
                *("GetInstanceDetail", "GetInstanceConfig", "GetInstanceCheckpoint", "GetInstanceExceptions"),
                "GetInstanceResource",
            )
        ),
        _forwarded(server, "GetInstanceDetail", "stopped"),
        _forwarded(server, "GetInstanceCheckpoint", "nobody"),
    )
    assert "body" in detail, detail
    found = json.loads(json.loads(detail["body"])["Detail"])
    assert (found["jid"], found["name"], found["state"], found["job-type"]) == (JOB, NAME, "RUNNING", "STREAMING")
    assert (found["start-time"], found["end-time"]) == (end_ms - 1_200_000, -1)
    assert [one["name"] for one in found["vertices"]] == ["sink", "source"]
    assert json.loads(json.loads(config["body"])["Config"])["jid"] == JOB

    def last(name):
        own = frame[frame.name == name]
        own = own[own.time // 3_600_000 == own.time.max() // 3_600_000]
        # Series of one replica that differ only in a label are averaged.
        return own.sort_values("time").groupby(["replica", "task"]).value.last().groupby("replica").mean().max()

    found = json.loads(json.loads(checkpoints["body"])["Checkpoints"])
    assert found["counts"]["total"] == pytest.approx(last("checkpoints"))
    latest = found["latest"]["completed"]
    names = ("lastCheckpointDuration", "lastCheckpointSize", "state.state_size")
    assert [latest[name] for name in ("end_to_end_duration", "checkpointed_size", "state_size")] == pytest.approx(
        list(map(last, names))
    )
    found = json.loads(json.loads(exceptions["body"])["Exceptions"])
    assert found["root-exception"] == failures[1]["message"]
    assert [one["exception"] for one in found["all-exceptions"]] == [failures[1]["message"], failures[0]["message"]]
    assert found["truncated"] is False
    assert json.loads(resource["body"])["Resource"] == {}, "nobody says what it is allowed"
    found = json.loads(json.loads(stopped["body"])["Detail"])
    assert (found["state"], found["end-time"]) == ("CANCELED", end_ms)
    assert (unknown["code"], unknown["status"]) == ("JobNotFound", 404)


def test_what_an_instance_and_its_queue_have(stored, ask):
    server, _, end_ms = stored
    limits = {"cpu": 1.5, "memory": 3 * 2**30}
    replicas = [{"name": f"tm-{at}", "node": "q0", "state": "Running"} for at in range(3)]
    job = {
        "job_id": "queued",
        "project": "queue-team",
        "type": "FlinkStream",
        "state": "Running",
        "resource_group": "root.q",
    }
    node = {"name": "q0", "resource_group": "root.q", "info": {"cores": 64, "memory": 256 * 2**30}}
    extra = {"foas": {"Properties": "blink.ttl=5\n# nothing\nx = y", "parameterJson": {"ts": 7}}}
    full = {**job, "limits": limits, "replicas": replicas, "extra": extra, "start": end_ms}
    server.ingest(records({"jobs": [full], "nodes": [node]}))
    resource, config = ask(
        *(_forwarded(server, call, "queued", "queue_team") for call in ("GetInstanceResource", "GetInstanceConfig"))
    )
    assert json.loads(resource["body"])["Resource"] == {
        "AllocatedMB": 3 * 3 * 1024, "AllocatedVirtualCores": 5, "TotalMB": 256 * 1024, "TotalVirtualCores": 64,
    }  # fmt: skip
    found = json.loads(json.loads(config["body"])["Config"])["execution-config"]
    assert found["user-config"] == {"blink.ttl": "5", "x": "y", "ts": "7"}


def test_the_sample_of_the_document(stored, ask):
    server, _, _ = stored
    query = _query("delay", "ss2", "600s-avg", "600s")
    (answer,) = ask(_metric(server, [query], 1574247000000, 1574250000000, "ss2", limit="avg:sample:50"))
    request_id = json.loads(answer["body"])["requestId"]
    dps = ",".join(f'"{second}":"{text}"' for second, (_, text) in SAMPLE.items())
    assert answer["body"] == (
        f'{{"requestId":"{request_id}","metrics":[{{"metricName":"blink.bayes_team.ss2.delay","dps":{{{dps}}},'
        '"summary":494400448,"tags":{}}]}'
    )


def test_every_encoding_and_form(stored, ask):
    server, _, _ = stored
    query = _query("delay", "ss2", "600s-avg", "600s")
    asks = [
        _metric(server, [query], 1574247000000, 1574250000000, "ss2", **options)
        for options in (
            {},
            {"content_type": "application/json"},
            {"content_type": "application/xml"},
            {"accept": "RAW"},
            {"accept": "XML"},
            {"accept": "XML", "content_type": "application/json"},
        )
    ]
    answers = ask(*asks)
    texts = {str(second): text for second, (_, text) in SAMPLE.items()}
    for answer in answers[:4]:
        (line,) = json.loads(answer["body"])["metrics"]
        assert line["dps"] == texts
    for answer in answers[4:]:
        assert (answer["status"], answer["headers"]["content-type"]) == (200, "application/xml;charset=utf-8")
        assert f"<requestId>{answer['headers']['x-acs-request-id']}</requestId>" in answer["body"]
        elements = "".join(f"<{second}>{text}</{second}>" for second, text in texts.items())
        assert f"<dps>{elements}</dps><summary>494400448</summary><tags/></metrics>" in answer["body"]


def _post(server, path, values, **headers):
    """Send one request as any HTTP client does, with a token."""
    connection = http.client.HTTPConnection(server.url.partition("//")[2], timeout=60)
    head = {"Authorization": f"Bearer {server.admin['token']}", "Content-Type": "application/x-www-form-urlencoded"}
    try:
        connection.request("POST", path, urlencode(values).encode(), head | headers)
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read().decode()
    finally:
        connection.close()


def test_plain_http_with_a_token_and_what_typed_sdks_read(stored):
    server, _, _ = stored
    path = f"/api/v2/projects/{THEIRS}/jobs/ss2/metric"
    run_sdk = {"start": 1574247000000, "queries": [{"metric": "delay"}]}
    status, _, text = _post(server, path, {"metricJson": json.dumps(run_sdk)}, Accept="text/xml")
    assert (status, json.loads(text)["Code"]) == (400, "InvalidParameter")
    assert "granularity" in json.loads(text)["Message"]
    run_sdk = {**run_sdk, "end": 1574250000000, "queries": [{"metric": "delay", "granularity": "600s"}]}
    values = {"metricJson": json.dumps(run_sdk)}
    root = ET.fromstring(_post(server, path, values, Accept="text/xml")[2])
    points = {point.tag: point.text for point in root.findall("metrics/dps/*")}
    assert points == {f"_{second}": text for second, (_, text) in SAMPLE.items()}
    status, headers, text = _post(server, path, values, **{"x-sdk-client": "Java/2.0.0"})
    read = json.loads(text)
    assert (status, read["RequestId"]) == (200, headers["x-acs-request-id"])
    (metric,) = read["Metrics"]["Metric"]
    assert metric["Dps"] == {str(second): text for second, (_, text) in SAMPLE.items()}
    assert (metric["MetricName"], metric["Summary"], metric["Tags"]) == ("delay", 494400448, {})


def test_lines_and_their_limit(stored, ask):
    server, frame, end_ms = stored
    own = frame[(frame.name == "tps.rate") & (frame.time >= end_ms - 600_000)]
    means = own.groupby(["replica", own.time // 60_000])["value"].mean().groupby("replica")
    order = {"avg": means.mean().sort_values(), "max": means.max().sort_values(), "min": means.min().sort_values()}
    query = _query("tps.rate", NAME, "60s-avg", "60s", tags={"replica": "*"})
    limits = ["avg:above:1", "max:above:2", "min:bottom:2", "avg:sample:2", "avg:sample:50"]
    asks = [_metric(server, [query], end_ms - 600_000, end_ms, limit=limit) for limit in limits]
    for limit, answer in zip(limits, ask(*asks), strict=True):
        judge, take, count = limit.split(":")
        names = list(order[judge].index)
        wanted = {"above": names[-int(count) :], "bottom": names[: int(count)], "sample": [names[0], names[-1]]}[take]
        lines = json.loads(answer["body"])["metrics"]
        assert [line["tags"]["replica"] for line in lines] == sorted(names if count == "50" else wanted)


def test_a_program_finds_its_instances(stored, ask):
    server, _, end_ms = stored
    here = {"projectName": THEIRS}
    listed, batches, jobs, job = ask(
        _call(server, "ListInstance", {**here, "jobType": "FLINK_STREAM", "actualState": "RUNNING"}),
        _call(server, "ListInstance", {**here, "jobType": "flink_batch", "jobName": "daily"}),
        _call(server, "ListJob", {**here, "pageSize": 2}),
        _call(server, "GetJob", {**here, "jobName": NAME}),
    )
    streams = {one["EngineJobHandler"]: one for one in json.loads(listed["body"])["Instances"]["Instance"]}
    assert set(streams) == {JOB, "ss2"}
    assert (streams[JOB]["JobName"], streams[JOB]["Starter"]) == (NAME, "ada")
    runs = {one["EngineJobHandler"]: one for one in json.loads(batches["body"])["Instances"]["Instance"]}
    assert {job: one["ActualState"] for job, one in runs.items()} == {"daily-1": "SUCCESS", "daily-2": "RUNNING"}
    page = json.loads(jobs["body"])
    assert (page["TotalCount"], page["TotalPage"], len(page["Jobs"]["Job"])) == (4, 2, 2)
    assert json.loads(job["body"])["Job"]["JobId"] == JOB
    span = (end_ms - 600_000, end_ms)
    read, ended, current, summary = ask(
        _metric(server, [_query("delay", "daily")], *span, "daily", runs["daily-2"]["Id"]),
        _metric(server, [_query("delay", "daily")], *span, "daily", runs["daily-1"]["Id"]),
        _metric(server, [_query("delay", "daily")], *span, "daily"),
        _call(server, "GetInstanceRunSummary", {**here, "jobName": NAME, "instanceId": "-1"}),
    )
    assert json.loads(read["body"])["metrics"][0]["summary"] == 7
    assert (ended["code"], current["code"]) == ("InstanceNotRunning", "InvalidParameter")
    summary_body = json.loads(summary["body"])["RunSummary"]
    assert (summary_body["Id"], summary_body["ActualState"]) == (streams[JOB]["Id"], "RUNNING")


def test_a_job_is_registered_and_stopped(stored, ask):
    server, _, _ = stored
    here = {"projectName": THEIRS, "jobName": "new job"}
    one = {**here, "instanceId": "-1"}
    made, started, again, running_, stopped, ended, restarted = ask(
        _call(server, "CreateJob", {**here, "jobType": "FLINK_STREAM", "apiType": "SQL", "code": "select 'ä'"}),
        _call(server, "StartJob", {**here, "parameterJson": '{"startOffset":"1574247000000"}'}),
        _call(server, "StartJob", here),
        _call(server, "GetInstance", one),
        _call(server, "ModifyInstanceState", {**one, "expectState": "TERMINATED"}),
        _call(server, "GetInstance", one),
        _call(server, "StartJob", here),
    )
    assert list(json.loads(made["body"])) == ["RequestId"]
    number = json.loads(started["body"])["instanceId"]
    assert again["code"] == "OperationConflict"
    assert json.loads(stopped["body"])["RequestId"]
    instance = json.loads(running_["body"])["Instance"]
    assert (instance["Id"], instance["ActualState"], instance["JobName"]) == (number, "RUNNING", "new job")
    assert json.loads(ended["body"])["Instance"]["ActualState"] == "TERMINATED"
    assert json.loads(restarted["body"])["instanceId"] == number


def test_the_nodes_of_a_cluster(stored, ask):
    server, _, end_ms = stored
    text = {
        "start": end_ms - 100_000,
        "end": end_ms - 20_000,
        "limit": "avg:sample:50",
        "queries": [
            {"metric": f"d6wx.system.cpu.{mode}", "aggregator": "avg", "granularity": "20s", "downsample": "avg"}
            for mode in ("user", "iowait")
        ],
    }
    own_job, unknown = ask(
        _call(server, "GetClusterMetrics", {"clusterId": "d6wx", "metricJson": json.dumps(text)}),
        _call(
            server,
            "GetClusterMetrics",
            {"clusterId": "d6wy", "metricJson": json.dumps({**text, "queries": [{"metric": "delay"}]})},
        ),
    )
    user, iowait = json.loads(own_job["body"])["metrics"]
    assert {round(value, 6) for value in _found(user).values()} == {30.0}
    assert {round(value, 6) for value in _found(iowait).values()} == {20.0}
    assert unknown["code"] == "ClusterNotFound"


def test_refusals_are_the_vendors_own(stored, ask):
    server, _, end_ms = stored
    own = _key(server, project=PROJECT)
    span = (end_ms - 600_000, end_ms)
    query = [_query()]
    hidden = [{"metric": "delay"}]
    wrong = {**server.admin, "access_key_secret": "wrong"}
    nobody = {**server.admin, "access_key_id": "nobody"}
    cases = [
        ("SignatureDoesNotMatch", 400, _metric(server, query, *span, key=wrong)),
        ("InvalidAccessKeyId.NotFound", 404, _metric(server, query, *span, key=nobody)),
        ("InvalidAccessKeyId.NotFound", 404, _metric(server, query, *span, key=nobody, sts="token")),
        ("SignatureDoesNotMatch", 400, _metric(server, query, *span, key=wrong, sts="token")),
        ("InstanceNotRunning", 404, _metric(server, hidden, *span, "stopped")),
        ("JobNotFound", 404, _metric(server, hidden, *span, "nothing")),
        ("JobNotFound", 404, _metric(server, hidden, *span, "hidden", project="other", key=own)),
        ("JobNotFound", 404, _metric(server, hidden, *span, "hidden", key=own)),
        ("Forbidden.RAM", 403, _call(server, "StartJob", {"projectName": THEIRS, "jobName": "x"}, key=own)),
        ("InvalidParameter", 400, _metric(server, [_query(job="another")], *span)),
        ("InvalidParameter", 400, _metric(server, [_query(downsample="1s-avg")], end_ms - 86_400_000, end_ms)),
        ("MissingParameter", 400, _call(server, "GetInstanceMetric", {"projectName": THEIRS, "jobName": NAME})),
        (
            "InvalidAction.NotFound",
            404,
            _call(server, "GetRawPlanJson", {"projectName": "p", "jobName": "j"}),
        ),
    ]
    answers = ask(*(one for _, _, one in cases))
    for (code, status, one), answer in zip(cases, answers, strict=True):
        assert (answer.get("error"), answer.get("code"), answer.get("status")) == ("ServerException", code, status), one
        assert answer["request_id"]
        assert "eve" not in json.dumps(answer)
    visible, listed = ask(
        _metric(server, hidden, *span, "hidden", project="other"),
        _call(server, "ListInstance", {"projectName": "other", "jobType": "FLINK_STREAM"}, key=own),
    )
    assert json.loads(visible["body"])["metrics"][0]["summary"] == 7
    assert json.loads(listed["body"])["TotalCount"] == 0
