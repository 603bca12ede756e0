"""PaiStudio's own SDK, of two generations, and a plain HTTP client of the URL form, against a real server.

pandas computes the expected answers from the stored samples. The samples form two blocks with a pause between them, so
that no answer depends on the exact time of the question.
"""

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import urllib3

from tests.e2e.conversation import converse
from tests.support.frames import records, samples
from tests.support.processes import running

ROOT = Path(__file__).parents[2]
SCRIPT = Path(__file__).parent / "sdk" / "pai_studio.py"
USERS = 1_200
GROUP = "rgf0zhfqn1d4ity2"
JOB = "train-x1"
STEP_S = 30
GIB = 2**30
RATES = {
    "NetworkInputRate": "network.receive",
    "NetworkOutputRate": "network.transmit",
    "DiskReadRate": "disk.read",
    "DiskWriteRate": "disk.write",
}
URL = "/api/PaiStudio/2022-01-12/"

pytestmark = pytest.mark.slow


def _job(number):
    """Return the record of job ``j7`` of user ``u7`` on one of forty nodes. Every third job has two GPUs."""
    node = f"n{number % 40}"
    devices = [f"gpu{2 * (number // 120)}", f"gpu{2 * (number // 120) + 1}"] if number % 3 == 0 else []
    return {
        "job_id": f"j{number}",
        "user": f"u{number}",
        "type": "PyTorchJob" if number % 2 else "TFJob",
        "workspace": f"w{number % 2}",
        "resource_group": GROUP,
        "state": "Running",
        "limits": {"cpu": 1 + number % 4, "memory": (1 + number % 3) * GIB},
        "instance_type": {"gpu_type": "A100", "gpu_count": len(devices)},
        "replicas": [{"name": "worker-0", "node": node, "devices": devices}],
    }


def _block(random, number, start_ms, count, base):
    """Yield the series of one job over one block. Counters continue from ``base``."""
    times = start_ms + np.arange(count) * STEP_S * 1000
    job = _job(number)
    names = {"job": job["job_id"], "replica": "worker-0", "node": job["replicas"][0]["node"]}
    cores, memory = job["limits"]["cpu"], job["limits"]["memory"]
    yield {**names, "metric": "cpu.usage"}, times, np.round(random.random(count) * cores, 4)
    yield {**names, "metric": "memory.usage"}, times, np.floor(random.random(count) * memory)
    for metric in RATES.values():
        values = base + np.cumsum(np.floor(random.random(count) * 1e8))
        yield {**names, "metric": metric}, times, values
    for device in job["replicas"][0]["devices"]:
        yield {**names, "metric": "gpu.utilization", "device": device}, times, np.round(random.random(count), 4)


def _samples(now_ms):
    random = np.random.default_rng(11)
    series: list[tuple[dict[str, str], list[tuple[int, float]]]] = []
    rows = []
    for number in range(USERS):
        if number % 100 == 99:  # some users have no measurements
            continue
        for start_ms, base in ((now_ms - 2_400_000, 0.0), (now_ms - 600_000, 1e12)):
            for names, times, values in _block(random, number, start_ms, 8, base):
                series.append((names, list(zip(times.tolist(), values.tolist(), strict=True))))
                who = (f"u{number}", names["metric"], names.get("device", ""))
                rows += [(*who, *point) for point in series[-1][1]]
    return series, pd.DataFrame(rows, columns=["user", "metric", "device", "time", "value"])


def _reported(now_ms):
    """Return the reported and the measured series of the training job."""
    times = [now_ms - 600_000 + 1_000 * at for at in range(250)]
    loss = [(time_ms, round(2.0 / (1 + at), 6)) for at, time_ms in enumerate(times)]
    names = {"job": JOB, "replica": "worker-0", "node": "m1"}
    host = {"node": "m1"}
    cpu = [(time_ms, 1.5) for time_ms in times]
    return [
        ({**names, "metric": "app.loss"}, loss),
        ({**names, "metric": "app.accuracy"}, [(times[-1], 0.75)]),
        ({**names, "metric": "cpu.usage"}, cpu),
        ({**host, "metric": "node.memory.total"}, [(time_ms, 100.0) for time_ms in times]),
        ({**host, "metric": "node.memory.available"}, [(time_ms, 25.0) for time_ms in times]),
    ], loss


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pai-studio")
    with running(folder / "data") as server:
        now_ms = int(time.time() * 1000)
        series, frame = _samples(now_ms)
        more, loss = _reported(now_ms)
        jobs = [_job(number) for number in range(USERS)]
        training = {
            "job_id": JOB,
            "user": "trainer",
            "resource_group": "rg-train",
            "start": now_ms - 700_000,
            "state": "Running",
            "limits": {"cpu": 4, "memory": 8 * GIB},
            "replicas": [{"name": "worker-0", "node": "m1", "pod_id": "pod-abc"}, "worker-1"],
        }
        nodes = [
            {
                "name": "m1",
                "resource_group": "rg-train",
                "info": {"cores": 64, "memory": 256 * GIB, "devices": [{"name": "NVIDIA A100-SXM4"}]},
            }
        ]
        events = [
            {"time": now_ms - 60_000, "job": JOB, "replica": name, "level": "error", "reason": "OOMKilled"}
            for name in ("worker-0", "worker-1")
        ]
        body = {"jobs": [*jobs, training], "nodes": nodes, "events": events}
        receipt = server.ingest(records(body) + samples([*series, *more])).json()
        assert receipt["rejected"] == {}
        foreign = {"job_id": "secret", "user": "spy", "resource_group": GROUP, "project": "other", "state": "Running"}
        hidden = {**foreign, "job_id": "hidden", "resource_group": "rg-other", "workspace": "w-other"}
        server.ingest(records({"jobs": [foreign, hidden]}))
        made = server.request("POST", "/keys", {"name": "reader", "role": "reader", "project": "default"})
        yield server, json.loads(made.body), frame, loss, now_ms


def _ask(environment, *asks):
    python = ROOT / ".venvs" / environment / "bin" / "python"
    if not python.exists():
        pytest.skip(f"no environment {environment}: `make sdk` builds it")
    return converse(python, SCRIPT, asks)


def _op(stored, operation, *path, asynchronous=False, config=None, **request) -> dict[str, Any]:
    server, key = stored[:2]
    pair = {name: key[name] for name in ("access_key_id", "access_key_secret")}
    return {
        "config": {"endpoint": server.url, **pair, **(config or {})},
        "operation": operation,
        "path": path,
        "request": request,
        "async": asynchronous,
    }


def _users(stored, number=1, size=1000, **request):
    asked = {"PageNumber": str(number), "PageSize": str(size), **request}
    return _op(stored, "get_user_view_metrics", GROUP, **asked)


def _expected(frame, now_ms, back_ms):
    """Compute with pandas the usage of each user over the last ``back_ms``, in the vendor's units."""
    jobs = pd.DataFrame(
        [
            {
                "user": job["user"],
                "cpu": job["limits"]["cpu"],
                "memory": job["limits"]["memory"],
                "gpus": job["instance_type"]["gpu_count"],
                "workspace": job["workspace"],
            }
            for job in map(_job, range(USERS))
        ]
    ).set_index("user")
    inside = frame[frame.time >= now_ms - back_ms]
    mean = inside.groupby(["metric", "user", "device"])["value"].mean()
    used = jobs.assign(
        used_cpu=mean["cpu.usage"].droplevel("device"),
        used_memory=mean["memory.usage"].droplevel("device"),
        device=mean["gpu.utilization"].groupby("user").mean(),
    )
    for name, metric in RATES.items():
        own = frame[frame.metric == metric].sort_values("time")
        growth = own.groupby("user")[["time", "value"]].diff()
        counted = growth[own.time >= now_ms - back_ms].assign(user=own.user)
        sums = counted.groupby("user")[["time", "value"]].sum()
        used[name] = sums.value / sums.time * 1000 / 1e6
    return used


def _check_record(record, row):
    assert float(record["CPUUsageRate"]) == pytest.approx(row.used_cpu / row.cpu * 100, rel=1e-9)
    assert float(record["MemoryUsageRate"]) == pytest.approx(row.used_memory / row.memory * 100, rel=1e-9)
    assert float(record["GPUUsageRate"]) == pytest.approx(row.device * 100 if row.gpus else 0.0, rel=1e-9)
    for name in RATES:
        assert float(record[name]) == pytest.approx(row[name], rel=1e-9)


@pytest.mark.parametrize("environment", ["alibaba", "alibaba-old"])
@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
def test_1200_users_in_two_pages_equal_pandas(stored, environment, asynchronous):
    frame, now_ms = stored[2], stored[4]
    step, back_ms = ("1h", 3_600_000) if asynchronous else ("20m", 1_200_000)
    asks = [_users(stored, number, TimeStep=step) for number in (1, 2)]
    answers = _ask(environment, *({**ask, "async": asynchronous} for ask in asks))
    assert all(answer.get("statusCode") == 200 for answer in answers), answers
    for first, second in (answers,):
        expected = _expected(frame, now_ms, back_ms)
        found = first["body"]["UserMetrics"] + second["body"]["UserMetrics"]
        assert (len(first["body"]["UserMetrics"]), len(second["body"]["UserMetrics"])) == (1000, 200)
        assert [record["UserId"] for record in found] == [f"u{number}" for number in range(USERS)]
        for record in found:
            number = int(record["UserId"][1:])
            job, row = _job(number), expected.loc[record["UserId"]]
            if number % 100 == 99:
                assert {record[name] for name in ("CPUUsageRate", "MemoryUsageRate", *RATES)} == {""}
            else:
                _check_record(record, row)
            assert record["RequestCPU"] == row.cpu
            assert record["RequestMemory"] == row.memory // 1024
            assert record["RequestGPU"] == row.gpus
            assert record["GpuJobNames" if row.gpus else "CpuJobNames"] == [job["job_id"]]
            assert record["NodeNames"] == [job["replicas"][0]["node"]]
            assert record["JobType"] == ("PyTorch" if number % 2 else "TensorFlow")
            assert record["ResourceGroupId"] == GROUP
        _check_summary(first["body"], second["body"], expected)
        assert first["headers"]["x-acs-request-id"]


def _check_summary(first, second, expected):
    summary = first["Summary"]
    assert summary == second["Summary"]
    assert first["Total"] == second["Total"] == USERS
    measured = expected[expected.used_cpu.notna()]
    assert float(summary["CPUUsageRate"]) == pytest.approx(measured.used_cpu.sum() / measured.cpu.sum() * 100)
    assert float(summary["MemoryUsageRate"]) == pytest.approx(measured.used_memory.sum() / measured.memory.sum() * 100)
    assert float(summary["GPUUsageRate"]) == pytest.approx(measured[measured.gpus > 0].device.mean() * 100)
    for name in RATES:
        assert float(summary[name]) == pytest.approx(measured[name].sum())
    assert summary["RequestCPU"] == expected.cpu.sum()
    assert summary["RequestGPU"] == expected.gpus.sum()
    assert summary["RequestMemory"] == expected.memory.sum() // 1024
    assert len(summary["NodeNames"]) == 40
    assert len(summary["GpuJobNames"]) == (expected.gpus > 0).sum()
    # Nothing reports the nodes' capacity, so it is the sum of their replicas' limits and their jobs' devices.
    assert summary["TotalCPU"] == expected.cpu.sum()
    assert summary["TotalMemory"] == expected.memory.sum() // 1024
    assert "spy" not in json.dumps([first, second])


def test_sorting_filters_and_refusals(stored):
    frame, now_ms = stored[2], stored[4]
    asks = [
        _users(stored, TimeStep="3600", SortBy="CPUUsageRate", Order="DESC", PageSize="5"),
        _users(stored, TimeStep="1h", SortBy="GmtModified", Order="DESC", PageSize="3"),
        _users(stored, TimeStep="1h", WorkspaceId="w1", UserId="u7"),
        _users(stored, TimeStep="1h", UserId="nobody"),
        _users(stored, WorkspaceId="w-other"),
        _op(stored, "get_user_view_metrics", "rg-other", PageNumber="1", PageSize="10"),
        _op(stored, "get_user_view_metrics", GROUP, PageSize="10"),
        _users(stored, size=1001),
        _users(stored, config={"access_key_secret": "wrong"}) | {},
    ]
    asks[-1]["config"]["access_key_secret"] = "wrong"
    by_rate, unsorted, one, nobody, workspace, group, missing, large, wrong = _ask("alibaba", *asks)
    expected = _expected(frame, now_ms, 3_600_000)
    ratio = (expected.used_cpu / expected.cpu).sort_values(ascending=False)
    assert [record["UserId"] for record in by_rate["body"]["UserMetrics"]] == list(ratio.index[:5])
    assert [record["UserId"] for record in unsorted["body"]["UserMetrics"]] == ["u0", "u1", "u2"]
    assert [record["UserId"] for record in one["body"]["UserMetrics"]] == ["u7"]
    assert one["body"]["Total"] == 1
    assert one["body"]["Summary"]["RequestCPU"] == expected[expected.workspace == "w1"].cpu.sum()
    assert one["body"]["Summary"]["TotalCPU"] == expected.cpu.sum()
    assert (nobody["body"]["Total"], nobody["body"]["UserMetrics"]) == (0, [])
    refused = {
        "InvalidWorkspaceId.NotFound": workspace,
        "InvalidResourceGroupID.NotFound": group,
        "MissingParameter": missing,
        "InvalidParameter": large,
        "SignatureDoesNotMatch": wrong,
    }
    for code, answer in refused.items():
        assert (answer["code"], answer["error"]) == (code, "ClientException"), answer
        assert answer["request_id"]


@pytest.mark.parametrize("environment", ["alibaba", "alibaba-old"])
def test_nodes_and_totals(stored, environment):
    asks = [
        _op(stored, "get_node_metrics", "rg-train", "MemoryUsageRate", TimeStep="1h", Verbose=True),
        _op(stored, "get_node_metrics", "rg-train", "CpuUsageRate", GPUType="A100", asynchronous=True),
        _op(stored, "get_node_metrics", "rg-train", "CpuUsageRate", GPUType="V100"),
        _op(stored, "get_node_metrics", "rg-other", "CpuUsageRate"),
        _op(stored, "get_resource_group_total", ResourceGroupID="rg-train"),
        _op(stored, "get_resource_group_request", ResourceGroupID="rg-train", asynchronous=True),
        _op(stored, "get_resource_group_request", ResourceGroupID="rg-train", PodStatus="Waiting"),
        _op(stored, "get_resource_group_total", ResourceGroupID="rg-other"),
    ]
    memory, cpu, other_type, foreign, total, request, waiting, hidden = _ask(environment, *asks)
    (node,) = memory["body"]["NodesMetrics"]
    assert (node["NodeID"], node["GPUType"]) == ("m1", "A100")
    assert {point["Value"] for point in node["Metrics"]} == {"75"}
    assert {point["Time"] % 3_600_000 for point in node["Metrics"]} == {0}
    assert cpu["body"]["NodesMetrics"] == []  # its limit and its replicas' limits are unmeasured
    assert other_type["body"]["NodesMetrics"] == []
    assert foreign["code"] == hidden["code"] == "InvalidResourceGroupID.NotFound"
    assert total["body"] == {
        "totalCPU": 64,
        "totalGPU": 1,
        "totalMemory": 256 * GIB // 1024,
        "totalGPUInfos": [{"type": "A100", "count": 1}],
    }
    assert request["body"] == {
        "requestCPU": 8,
        "requestGPU": 0,
        "requestMemory": 16 * GIB // 1024,
        "requestGPUInfos": [],
    }
    assert waiting["body"]["requestCPU"] == 0


def _is_kill(line):
    """Return True for the event of a kill. A finding about it while the job ran creates a separate event."""
    return "OOMKilled" in line and "Finding" not in line


@pytest.mark.parametrize("environment", ["alibaba", "alibaba-old"])
def test_training_jobs(stored, environment):
    loss = stored[3]
    asks = [
        _op(stored, "list_training_job_metrics", JOB, Name="loss", PageNumber=3, PageSize=100),
        _op(stored, "list_training_job_metrics", JOB, Order="DESC", PageSize=2, asynchronous=True),
        _op(stored, "get_training_job_latest_metrics", JOB),
        _op(stored, "list_training_job_instance_metrics", JOB, MetricType="CpuCoreUsage", TimeStep="1h"),
        _op(stored, "list_training_job_instance_metrics", JOB, MetricType="CpuCoreUsage", InstanceId="pod-abc"),
        _op(stored, "list_training_job_instance_metrics", JOB, MetricType="CpuCoreUsage", InstanceId="worker-7"),
        _op(stored, "list_training_job_metrics", "hidden"),
        _op(stored, "list_training_job_logs", JOB),
        _op(stored, "list_training_job_events", JOB),
        _op(stored, "list_training_job_instance_events", JOB, "pod-abc", asynchronous=True),
    ]
    third, newest, latest, instances, one, nobody, hidden, logs, events, own = _ask(environment, *asks)
    if environment == "alibaba":  # the older model lacks this field
        assert third["body"]["TotalCount"] == len(loss)
        assert newest["body"]["TotalCount"] == len(loss) + 1
    assert [point["Value"] for point in third["body"]["Metrics"]] == [value for _, value in loss[200:]]
    times = pd.to_datetime([point["Timestamp"] for point in third["body"]["Metrics"]])
    assert [round(moment.timestamp() * 1000) for moment in times] == [time_ms for time_ms, _ in loss[200:]]
    assert [point["Name"] for point in newest["body"]["Metrics"]] == ["loss", "accuracy"]
    assert {point["Name"]: point["Value"] for point in latest["body"]["Metrics"]} == {
        "accuracy": 0.75,
        "loss": loss[-1][1],
    }
    (instance,) = instances["body"]["InstanceMetrics"]
    assert (instance["InstanceId"], instance["NodeName"]) == ("pod-abc", "m1")
    assert {point["Value"] for point in instance["Metrics"]} == {37.5}
    assert one["body"]["InstanceMetrics"][0]["InstanceId"] == "pod-abc"
    assert nobody["code"] == "InvalidInstanceId.NotFound"
    assert hidden["code"] == "InvalidTrainingJobId.NotFound"
    assert logs["body"]["Logs"] == []
    assert logs["body"]["TotalCount"] == "0"
    killed = [line for line in events["body"]["Events"] if _is_kill(line)]
    assert [line.split()[1:] for line in killed] == [["ERROR", f"worker-{at}", "OOMKilled"] for at in range(2)]
    assert events["body"]["TotalCount"] == str(len(events["body"]["Events"]))
    assert [line for line in own["body"]["Events"] if _is_kill(line)] == killed[:1]


def _get(stored, path, token=None, method="GET", **fields):
    server, key = stored[:2]
    headers = {"Authorization": f"Bearer {token or key['token']}", "Content-Type": "application/json"}
    answer = urllib3.request(method, f"{server.url}{path}", fields=fields, headers=headers, retries=False)
    return answer.status, answer.json(), answer.headers


def test_the_url_form_as_its_page_shows_it(stored):
    query = {"ResourceGroupID": GROUP, "PageNumber": "1", "PageSize": "10", "SortBy": "GmtModified", "Order": "DESC"}
    status, body, headers = _get(stored, f"{URL}GetUserViewMetrics", **query)
    assert status == 200
    assert list(body) == ["ResourceGroupId", "UserMetrics", "Summary", "Total"]
    assert body["Total"] == USERS
    assert len(body["UserMetrics"]) == 10
    assert headers["x-acs-request-id"]
    for action, fields, key in (
        ("GetNodeMetrics", {"ResourceGroupID": "rg-train", "MetricType": "MemoryUsageRate"}, "NodesMetrics"),
        ("ListTrainingJobMetrics", {"TrainingJobId": JOB}, "Metrics"),
        ("ListTrainingJobInstanceMetrics", {"TrainingJobId": JOB, "MetricType": "CpuCoreUsage"}, "InstanceMetrics"),
        ("GetResourceGroupTotal", {"ResourceGroupID": "rg-train"}, "totalGPUInfos"),
    ):
        status, body, _ = _get(stored, URL + action, **fields)
        assert status == 200
        assert body[key]
    status, body, _ = _get(stored, "/api/pai-dlc/2020-12-03/GetJobMetrics", JobId=JOB, MetricType="CpuCoreUsage")
    assert status == 200
    assert body["PodMetrics"][0]["PodId"] == "pod-abc"
    assert {point["Value"] for point in body["PodMetrics"][0]["Metrics"]} == {37.5}


def test_the_url_form_s_errors(stored):
    server, key = stored[:2]
    page = {"PageNumber": "1", "PageSize": "10"}
    path = f"{URL}GetUserViewMetrics"
    cases = {
        (400, "InvalidParameter"): _get(stored, path, ResourceGroupID=GROUP, PageSize="10"),
        (401, "Unauthorized"): _get(stored, path, token="jm_wrong", ResourceGroupID=GROUP, **page),
        (404, "InvalidResourceGroupID.NotFound"): _get(stored, path, ResourceGroupID="rg-other", **page),
        (404, "InvalidWorkspaceId.NotFound"): _get(stored, path, ResourceGroupID=GROUP, WorkspaceId="w-other", **page),
        (404, "InvalidAction.NotFound"): _get(stored, f"{URL}Nothing"),
        (405, "UnsupportedHTTPMethod"): _get(stored, path, method="DELETE"),
        (403, "UnauthorizedOperation"): _get(
            stored, "/api/pai-dlc/2020-12-03/GetToken", TargetId=JOB, TargetType="job"
        ),
    }
    for (status, code), (found, body, headers) in cases.items():
        assert (found, body["Code"]) == (status, code), body
        assert body["Message"]
        assert body["RequestId"] == headers["x-acs-request-id"]
    unsigned = urllib3.request("GET", f"{server.url}{path}?ResourceGroupID={GROUP}", retries=False)
    other = {"X-Auth-Token": key["token"]}
    elsewhere = urllib3.request("GET", f"{server.url}{path}?ResourceGroupID={GROUP}", headers=other, retries=False)
    assert (unsigned.status, unsigned.json()["Code"]) == (401, "Unauthorized")
    assert (elsewhere.status, elsewhere.json()["Code"]) == (401, "Unauthorized")


def test_a_caller_that_calls_too_often_learns_when_to_come_back(tmp_path):
    with running(tmp_path / "data", environment={"JOBMETER_RATE_LIMITS": "GetUserViewMetrics=0.01:1"}) as server:
        calls = [
            urllib3.request(
                "GET",
                f"{server.url}{URL}GetUserViewMetrics?ResourceGroupID=x&PageNumber=1&PageSize=1",
                headers={"Authorization": f"Bearer {server.admin['token']}"},
                retries=False,
            )
            for _ in range(2)
        ]
    assert calls[0].status == 404
    assert (calls[1].status, calls[1].json()["Code"]) == (429, "Throttling")
    assert int(calls[1].headers["Retry-After"]) > 0
