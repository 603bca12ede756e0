"""Tests of Huawei Cloud's own SDK against a real server, with nothing but the endpoint changed."""

import http.client
import json
import os
import subprocess
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pandas as pd
import pytest

from jobmeter.model.catalog import map_dialect_names
from tests.support.frames import records, samples
from tests.support.processes import running

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venvs" / "huawei" / "bin" / "python"
SCRIPT = Path(__file__).parent / "sdk" / "modelarts.py"
MINUTE, STEP_MS = 60_000, 15_000
JOB, LIVE, SAMPLE, WAITING, SILENT, FOREIGN = "ddp 2026~é", "live", "sample", "waiting", "silent", "foreign"
METRICS = {name: metric.name for name, metric in map_dialect_names("modelarts").items()}
SEED = {
    "cpuUsage": [-1, -1, 2.43, 4.524, 6.714, 12.422, 9.214, 5.36, 7.5, 10.088, 8.975, 11.423, 11.548, 14.563, 16.833],
    "memUsage": [-1, -1, 0.04, 0.521, 1.652, 4.252, 6.433, 7.384, 7.982, 8.718, 9.365, 9.881, 10.192, 9.994, 9.005],
}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PYTHON.exists(), reason="the environment of the SDK is not built: make sdk"),
]


def _samples(start_ms, end_ms):
    """Return samples of two tasks with two devices each, with gaps. The second task lacks a memory metric."""
    random = np.random.default_rng(3)
    rows = []
    for task in ("worker-0", "worker-1"):
        for name, metric in METRICS.items():
            if task == "worker-1" and name == "memUsage":
                continue
            for device in {"g": ("gpu0", "gpu1"), "n": ("npu0", "npu1")}.get(name[0], ("",)):
                times = np.arange(start_ms + 70_000, end_ms, STEP_MS)
                times = times[random.random(len(times)) > 0.3]
                times = times[(times < start_ms + 600_000) | (times > start_ms + 800_000)]
                rows += [
                    (name, metric, task, device, int(at), float(value))
                    for at, value in zip(times, np.round(random.random(len(times)), 4), strict=True)
                ]
    return pd.DataFrame(rows, columns=["name", "metric", "task", "device", "time", "value"])


def _expected(frame, task, start_ms, end_ms):
    """Compute {name: values} with pandas: the mean of the devices' means of each minute, -1 for no value."""
    minutes = range(start_ms // MINUTE, -(-end_ms // MINUTE))
    own = frame[frame.task == task]
    means = own.groupby(["name", "device", own.time // MINUTE])["value"].mean().groupby(["name", "time"]).mean() * 100
    return {name: [means.get((name, minute), -1) for minute in minutes] for name in METRICS}


def _series(frame, job):
    return [
        (
            {"metric": metric, "job": job, "replica": task, "node": f"node-{task[-1]}", "device": device},
            list(zip(group["time"], group["value"], strict=True)),
        )
        for (metric, task, device), group in frame.groupby(["metric", "task", "device"])
    ]


def _sample_series(start_ms):
    names = {"job": SAMPLE, "replica": "worker-0", "node": "n"}
    return [
        (
            {**names, "metric": METRICS[name]},
            [(start_ms + at * MINUTE, value / 100) for at, value in enumerate(values) if value != -1],
        )
        for name, values in SEED.items()
    ]


def _app_series(start_ms):
    names = {"job": LIVE, "replica": "worker-0", "node": "n"}
    reported: dict[str, list[float]] = {
        "loss": [3.5, 2.25, 1.125],
        "eval_loss": [3.0],
        "step": [10, 20, 30],
        "progress": [0.1, 0.2, 0.3],
    }
    return [
        ({**names, "metric": f"app.{name}"}, [(start_ms + at * 20_000, value) for at, value in enumerate(values)])
        for name, values in reported.items()
    ]


def _jobs(start_ms, end_ms):
    tasks = [{"name": "worker-0", "node": "node-0"}, {"name": "worker-1", "node": "node-1"}]
    flavor = {"id": "modelarts.vm.gpu", "name": "2 GPUs", "cpu": 8, "memory": 64 * 2**30, "gpu_type": "V100"}
    engine = {"engine_id": "pytorch_1.8", "engine_name": "PyTorch"}
    extra = {"kind": "hetero_job", "algorithm_name": "resnet", "algorithm": {"engine": engine}}
    run = {"created": start_ms - 5000, "start": start_ms, "user": "ada"}
    return [
        {
            **run,
            "job_id": JOB,
            "name": "trainjob-ddp",
            "state": "Succeeded",
            "end": end_ms,
            "replicas": tasks,
            "instance_type": {**flavor, "gpu_count": 2, "gpu_memory": 16 * 2**30},
            "labels": {"team": "a"},
            "extra": {"modelarts": extra},
        },
        {**run, "job_id": LIVE, "name": "trainjob-live", "state": "Running", "replicas": tasks[:1], "user": "eve"},
        {**run, "job_id": SAMPLE, "name": "trainjob-sample", "state": "Succeeded", "end": start_ms + 14 * MINUTE},
        {"job_id": WAITING, "name": "other", "state": "Queued", "created": start_ms, "replicas": ["worker-0"]},
        {**run, "job_id": SILENT, "name": "silent", "state": "Running", "replicas": ["worker-0"]},
        {**run, "job_id": FOREIGN, "name": "secret", "state": "Running", "project": "theirs", "replicas": tasks},
    ]


class Stored:
    """Server with jobs, and the data of the jobs."""

    def __init__(self, server):
        self.server = server
        self.end_ms = int(time.time() * 1000) // MINUTE * MINUTE - 5 * MINUTE + 21_000
        self.start_ms = self.end_ms - 31 * MINUTE - 30_000
        self.frame = _samples(self.start_ms, self.end_ms)
        self.key = self._pair(server.admin)
        jobs = _jobs(self.start_ms, self.end_ms)
        series = [
            *_series(self.frame, JOB),
            *_sample_series(self.start_ms),
            *_app_series(self.start_ms),
            ({"metric": "cpu.utilization", "job": LIVE, "replica": "worker-0", "node": "n"}, [(self.start_ms, 0.5)]),
            (
                {"metric": "cpu.utilization", "job": FOREIGN, "replica": "worker-0", "project": "theirs"},
                [(self.start_ms, 0.5)],
            ),
        ]
        receipt = server.ingest(records({"jobs": jobs}) + samples(series)).json()
        assert receipt["rejected"] == {}, receipt
        assert receipt["records"] == len(jobs)

    @staticmethod
    def _pair(made):
        return [made["access_key_id"], made["access_key_secret"]]

    def new_key(self, role, project):
        answer = self.server.request("POST", "/keys", {"name": f"{role}-{project}", "role": role, "project": project})
        return json.loads(answer.body)

    def ask(self, call="ShowTrainingJobMetrics", job=JOB, task=None, **options):
        request = {"training_job_id": job, **({"task_id": task} if task else {}), **options.pop("request", {})}
        return {
            "call": call,
            "request": request,
            "url": self.server.url,
            "key": self.key,
            "project": "default",
            **options,
        }

    def search(self, **options):
        return {**self.ask("ListTrainingJobs", body=options), "request": {}}


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    with running(tmp_path_factory.mktemp("modelarts") / "data") as server:
        yield Stored(server)


@pytest.fixture(scope="module")
def sdk(tmp_path_factory):
    """Yield a function that sends requests to the SDK, one after the other, in its own process."""
    # The SDK keeps its own id in the home folder.
    environment = {**os.environ, "HOME": str(tmp_path_factory.mktemp("home"))}
    command = [PYTHON, SCRIPT]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        lines, answers = process.stdin, process.stdout

        def run_sdk(*asks):
            found = []
            for one in asks:
                lines.write(f"{json.dumps(one)}\n")
                lines.flush()
                found.append(json.loads(answers.readline()))
            return found

        yield run_sdk
        lines.close()


def _values(answer):
    assert answer.get("status") == 200, answer
    assert answer["model"] == answer["body"], "the SDK's model holds what was sent"
    return {series["metric"]: series["value"] for series in answer["body"]["metrics"]}


def test_the_metrics_of_each_task_equal_pandas(stored, sdk):
    asks = [stored.ask(task=task, asynchronous=way) for task in ("worker-0", "worker-1") for way in (False, True)]
    for ask, answer in zip(asks, sdk(*asks), strict=True):
        values = _values(answer)
        expected = _expected(stored.frame, ask["request"]["task_id"], stored.start_ms, stored.end_ms)
        assert list(values) == list(METRICS)
        for name in METRICS:
            assert values[name] == pytest.approx(expected[name], rel=1e-9), name
            assert len(values[name]) in {32, 33}
    assert set(_values(sdk(stored.ask(task="worker-1"))[0])["memUsage"]) == {-1}


def test_the_documented_sample_comes_back_as_it_is(stored, sdk):
    (answer,) = sdk(stored.ask(job=SAMPLE, task="worker-0"))
    assert json.dumps(_values(answer)) == json.dumps({name: SEED.get(name, [-1] * 15) for name in METRICS})


def test_a_running_job_is_reported_until_now(stored, sdk):
    before = time.time() * 1000 // MINUTE
    (answer,) = sdk(stored.ask(job=LIVE, task="worker-0"))
    values = _values(answer)
    first = stored.start_ms // MINUTE
    # The current minute counts only if it has a measurement.
    assert before - first <= len(values["cpuUsage"]) <= time.time() * 1000 // MINUTE - first
    assert values["cpuUsage"][0] == 50
    assert set(values["cpuUsage"][1:]) == {-1}


def test_what_a_program_reported(stored, sdk):
    answer, nothing = sdk(stored.ask("ShowFtMetrics", LIVE), stored.ask("ShowFtMetrics", SAMPLE))
    body = answer["body"]
    assert [(point["step"], point["value"]) for point in body["loss"]["data"]] == [(10, 3.5), (20, 2.25), (30, 1.125)]
    assert [point["value"] for point in body["eval_loss"]["data"]] == [3.0]
    assert body["train_process"] == 0.3
    assert body["training_info"] == {"step": 30.0}
    assert [one["name_en"] for one in body["data"]["metrics"]] == ["eval_loss", "loss", "progress"]
    assert answer["model"]["data"]["metrics"] == body["data"]["metrics"]
    assert nothing == {"status": 204, "body": None, "model": nothing["model"]}


def test_nothing_was_measured_yet(stored, sdk):
    for answer in sdk(stored.ask(job=WAITING, task="worker-0"), stored.ask(job=SILENT, task="worker-0")):
        assert (answer["status"], answer["body"]) == (204, None)


def test_every_way_to_set_the_endpoint(stored, sdk, tmp_path):
    regions = tmp_path / "regions.yaml"
    regions.write_text(f"MODELARTS:\n  - id: cn-north-4\n    endpoint: {stored.server.url}\n")
    ways = ("endpoints", "region", "environment", "file")
    asks = [stored.ask(task="worker-0", way=way, file=str(regions)) for way in ways]
    asks.append({**stored.ask(task="worker-0", way="iam"), "project": None})
    asks.append({**stored.ask(task="worker-0"), "url": f"{stored.server.url}/prefix/is/dropped"})
    wanted = _values(sdk(stored.ask(task="worker-0"))[0])
    for ask, answer in zip(asks, sdk(*asks), strict=True):
        assert _values(answer) == wanted, ask["way"]


def test_every_way_to_sign(stored, sdk):
    token, wrong = stored.server.admin["token"], ["x", "y"]
    asks = [
        *(
            stored.ask(task="worker-0", algorithm=algorithm)
            for algorithm in ("HMAC_SHA256", "HMAC_SM3", "ECDSA_P256_SHA256", "SM2_SM3")
        ),
        stored.ask(task="worker-0", derived=True, way="region"),
        stored.ask(task="worker-0", security_token="sts"),
        stored.ask(task="worker-0", key=wrong, headers={"X-Auth-Token": token}),
        stored.ask(task="worker-0", key=wrong, headers={"Authorization": f"Bearer {token}"}),
        stored.ask(task="worker-0", headers={"X-Language": "zh-cn", "X-Odd": "é à"}),
    ]
    for ask, answer in zip(asks, sdk(*asks), strict=True):
        assert answer.get("status") == 200, (ask, answer)
    for ask, answer in zip(asks[:5], sdk(*({**ask, "key": [stored.key[0], "no"]} for ask in asks[:5])), strict=True):
        assert (answer["status"], answer["code"]) == (401, "APIGW.0301"), ask


def _date(**ago):
    return (datetime.now(UTC) - timedelta(**ago)).strftime("%Y%m%dT%H%M%SZ")


def test_refusals_are_the_vendors_own(stored, sdk):
    own = stored.new_key("reader", "theirs")
    theirs, reader = [own["access_key_id"], own["access_key_secret"]], stored.new_key("reader", "default")
    cases = [
        (stored.ask(task="worker-0", key=[stored.key[0], "wrong"]), 401, "APIGW.0301", "verify aksk signature fail"),
        (stored.ask(task="worker-0", key=["nobody", "x"]), 401, "APIGW.0301", "ak nobody not exist"),
        (stored.ask(task="worker-0", headers={"X-Auth-Token": "jm_no"}), 401, "APIGW.0301", "decrypt token fail"),
        (stored.ask(task="worker-0", key=["nobody", "x"], security_token="sts"), 401, "APIGW.0301", "not exist"),
        (stored.ask(task="worker-0", key=[stored.key[0], "x"], security_token="sts"), 401, "APIGW.0301", "signature"),
        (stored.ask(task="worker-0", headers={"X-Sdk-Date": _date(minutes=20)}), 401, "APIGW.0301", "expired"),
        (stored.ask(task="worker-0", headers={"X-Sdk-Date": _date(minutes=-20)}), 401, "APIGW.0301", "expired"),
        (stored.ask(task="worker-0", key=theirs), 404, "ModelArts.2786", "(default) in the request"),
        ({**stored.ask(task="worker-0"), "project": "nothing"}, 400, "ModelArts.2775", JOB),
        ({**stored.ask(task="worker-0"), "project": None}, 404, "ModelArts.2786", "{project_id}"),
        (stored.ask(job="nothing", task="worker-0"), 400, "ModelArts.2775", "Training job (ID: nothing) not found."),
        (stored.ask(job=FOREIGN, task="worker-0"), 400, "ModelArts.2775", "not found"),
        (stored.ask(task="worker-9"), 400, "ModelArts.2788", "task_id"),
        (stored.search(limit=51), 400, "ModelArts.2788", "limit"),
        (stored.ask("ListTrainingJobEvents", request={"limit": 101}), 400, "ModelArts.2764", "limit"),
        (
            stored.ask("StopTrainingJob", LIVE, key=Stored._pair(reader), body={"action_type": "terminate"}),
            403,
            "ModelArts.0108",
            "reader",
        ),
        (stored.ask("StopTrainingJob", body={"action_type": "terminate"}), 409, "ModelArts.2796", "ended already"),
    ]
    for (ask, status, code, message), answer in zip(cases, sdk(*(case[0] for case in cases)), strict=True):
        assert (answer.get("status"), answer.get("code")) == (status, code), (ask, answer)
        assert message in answer["message"]
        assert len(answer["request_id"]) == 32
        assert set(answer["request_id"]) <= set("0123456789abcdef")


def test_nothing_of_another_project_is_shown(stored, sdk):
    own = stored.new_key("writer", "theirs")
    theirs = {"key": [own["access_key_id"], own["access_key_secret"]], "project": "theirs"}
    mine, other, named = sdk(
        {**stored.search(), **theirs},
        stored.search(),
        {**stored.ask("ValidateTrainingJobName", request={"job_name": "secret"}), "request": {"job_name": "secret"}},
    )
    assert [job["metadata"]["id"] for job in mine["body"]["items"]] == [FOREIGN]
    assert (mine["body"]["total"], mine["body"]["count"]) == (1, 1)
    assert FOREIGN not in [job["metadata"]["id"] for job in other["body"]["items"]]
    assert named["body"] == {"is_duplicate": False}


def _ids(answer):
    assert answer.get("status") == 200, answer
    return [job["metadata"]["id"] for job in answer["body"]["items"]]


def _filter(key, operator, *values):
    return {"filters": [{"key": key, "operator": operator, "value": list(values)}]}


def test_the_search(stored, sdk):
    empty = [
        {"value": ["", ""], "key": "create_time", "operator": "between"},
        {"value": [""], "key": "phase", "operator": "in"},
        {"value": [], "key": "kind", "operator": "in"},
    ]
    every = {JOB, LIVE, SAMPLE, WAITING, SILENT}
    created = [str(stored.start_ms - 6000), str(stored.start_ms - 1)]
    cases = [
        ({}, every),
        ({"filters": empty}, every),
        (_filter("name", "like", "TRAINJOB"), {JOB, LIVE, SAMPLE}),
        (_filter("name", "in", "trainjob-ddp", "nothing"), {JOB}),
        (_filter("name", "not", "trainjob-ddp"), every - {JOB}),
        (_filter("phase", "in", "Running", "Pending"), {LIVE, WAITING, SILENT}),
        (_filter("phase", "not", "Running"), {JOB, SAMPLE, WAITING}),
        (_filter("phase", "in", "Creating"), set()),
        (_filter("create_time", "between", *created), every - {WAITING}),
        (_filter("create_time", "between", str(stored.start_ms), ""), {WAITING}),
        (_filter("kind", "in", "job"), every - {JOB}),
        (_filter("kind", "in", "hetero_job"), {JOB}),
        (_filter("algorithm_name", "like", "RES"), {JOB}),
        (_filter("user_id", "in", "eve"), {LIVE}),
        ({"tags": [{"key": "team", "values": ["a", "b"]}]}, {JOB}),
        ({"tags": [{"key": "team", "values": [""]}]}, {JOB}),
        ({"tags": [{"key": "team", "values": ["b"]}]}, set()),
        ({"host_ips": ["node-1", "node-9"]}, {JOB}),
        ({"workspace_id": "0"}, every),
        ({"workspace_id": "another"}, set()),
    ]
    for (body, wanted), answer in zip(cases, sdk(*(stored.search(**body) for body, _ in cases)), strict=True):
        assert set(_ids(answer)) == wanted, body
        assert (answer["body"]["total"], answer["body"]["count"]) == (len(every), len(wanted)), body
    (hosted,) = sdk(stored.search(host_ips=["node-1"]))
    tasks = [{"task": "worker-1", "host_ip": "node-1", "schedule_count": 1}]
    assert hosted["body"]["items"][0]["status"]["task_ips"] == tasks
    paged = [_ids(answer) for answer in sdk(*(stored.search(offset=page, limit=2) for page in range(4)))]
    assert [len(page) for page in paged] == [2, 2, 1, 0], "the offset counts pages"
    assert {job for page in paged for job in page} == every
    sorts = ("create_time", "start_time", "duration", "name", "job_name", "user_name", "user_id", "id")
    for answer in sdk(*(stored.search(sort_by=name, order="ASC") for name in sorts)):
        assert set(_ids(answer)) == every
    up, down = sdk(*(stored.search(sort_by="name", order=order) for order in ("asc", "desc")))
    assert _ids(up) == _ids(down)[::-1] == [WAITING, SILENT, JOB, LIVE, SAMPLE]


def test_one_job_and_what_belongs_to_it(stored, sdk):
    details, listed, tasks, again, stages, flavors, engines, named, url = sdk(
        stored.ask("ShowTrainingJobDetails"),
        stored.search(**_filter("name", "in", "trainjob-ddp")),
        stored.ask("ListTrainingJobTasks"),
        stored.ask("ListTrainingJobTasks", request={"schedule_count": 2}),
        stored.ask("ListTrainingJobStages"),
        {**stored.ask("ShowTrainingJobFlavors"), "request": {"flavor_type": "GPU"}},
        {**stored.ask("ShowTrainingJobEngines"), "request": {}},
        {**stored.ask("ValidateTrainingJobName"), "request": {"job_name": "trainjob-ddp"}},
        stored.ask("ShowObsUrlOfTrainingJobLogs", task="worker-0"),
    )
    body = details["body"]
    assert body == listed["body"]["items"][0]
    assert details["model"] == body, "every key is one that the SDK knows, every value of its type"
    assert body["kind"] == "hetero_job"
    assert body["metadata"]["name"] == "trainjob-ddp"
    assert body["metadata"]["create_time"] == stored.start_ms - 5000
    assert body["status"]["phase"] == "Completed"
    assert body["status"]["tasks"] == ["worker-0", "worker-1"]
    assert body["status"]["duration"] == stored.end_ms - stored.start_ms
    assert body["spec"]["resource"]["flavor_id"] == "modelarts.vm.gpu"
    assert [(one["task"], one["host_ip"]) for one in tasks["body"]] == [("worker-0", "node-0"), ("worker-1", "node-1")]
    assert again["body"] == []
    assert [stage["name"] for stage in stages["body"]["running_records"][0]["stages"]] == [
        "scheduling",
        "running",
        "end",
    ]
    (flavor,) = flavors["body"]["flavors"]
    assert flavor["flavor_info"]["gpu"] == {"unit_num": 2, "product_name": "V100", "memory": "16GB"}
    assert flavors["model"] == flavors["body"]
    assert engines["body"] == {"total": 1, "items": [{"engine_id": "pytorch_1.8", "engine_name": "PyTorch"}]}
    assert named["body"] == {"is_duplicate": True}
    assert urlsplit(url["body"]["obs_url"]).netloc == urlsplit(stored.server.url).netloc


def test_events_and_what_a_task_reports(stored, sdk):
    (metric_body,) = sdk(
        stored.ask(
            "NotifyTrainingJobInformation",
            task="worker-1",
            request={"report_type": "training-event"},
            body={"type": "checkpoint_saved"},
        )
    )
    assert metric_body["status"] == 200, metric_body
    asks = [{}, {"pattern": "CHECKPOINT"}, {"level": "Error"}, {"limit": 1, "offset": 1}, {"order": "desc", "limit": 1}]
    every, found, errors, second, newest = sdk(*(stored.ask("ListTrainingJobEvents", request=one) for one in asks))
    assert every["model"] == every["body"]
    assert found["body"]["events"] == [
        {
            "time": found["body"]["events"][0]["time"],
            "level": "Info",
            "message": "[worker-1] checkpoint_saved: Reported by the task.",
            "source": "Task",
        }
    ]
    assert newest["body"]["events"] == found["body"]["events"]
    assert errors["body"]["events"] == []
    assert second["body"]["events"] == every["body"]["events"][1:2]
    assert second["body"]["total"] == every["body"]["total"]


def test_the_logs(stored, sdk):
    lines = [
        {"time_ns": stored.start_ms * 10**6 + at, "text": f"line {at} é", "replica": "worker-0"} for at in range(9)
    ]
    assert stored.server.request("POST", f"/jobs/{SAMPLE}/logs", {"lines": lines}).status == 200
    texts = [line["text"] for line in lines]
    preview, newest, nothing, waiting = sdk(
        stored.ask("ShowTrainingJobLogsPreview", SAMPLE, "worker-0"),
        stored.ask("ShowTrainingJobLogsFromAom", SAMPLE, "worker-0", request={"lines": 4}),
        stored.ask("ShowTrainingJobLogsPreview", JOB, "worker-0"),
        stored.ask("ShowTrainingJobLogsFromAom", WAITING, "worker-0"),
    )
    whole = "".join(f"{text}\n" for text in texts)
    size = len(whole.encode())
    assert preview["body"] == {"content": whole, "current_size": size, "full_size": size}
    assert newest["body"]["content"].splitlines() == texts[:4:-1]
    assert newest["model"] == newest["body"]
    (older,) = sdk(
        stored.ask(
            "ShowTrainingJobLogsFromAom",
            SAMPLE,
            "worker-0",
            request={"lines": 500, "base_line": newest["body"]["end_line"]},
        )
    )
    assert older["body"]["content"].splitlines() == texts[4::-1]
    assert (nothing["status"], nothing["code"]) == (400, "ModelArts.2818")
    assert (waiting["status"], waiting["body"]) == (204, None)
    (link,) = sdk(stored.ask("ShowObsUrlOfTrainingJobLogs", SAMPLE, "worker-0"))
    address = urlsplit(link["body"]["obs_url"])
    for headers, status in (({}, 401), ({"X-Auth-Token": stored.server.admin["token"]}, 200)):
        connection = http.client.HTTPConnection(address.netloc, timeout=30)
        connection.request("GET", f"{address.path}?{address.query}", headers=headers)
        answer = connection.getresponse()
        assert answer.status == status
        assert (answer.read().decode() == whole) == (status == 200)
        connection.close()


def test_what_may_be_done_with_a_job(stored, sdk):
    record = {"job_id": "doomed", "state": "Running", "start": stored.start_ms, "replicas": ["worker-0"]}
    assert stored.server.ingest(records({"jobs": [record]})).json()["records"] == 1
    described, stopped, twice, deleted, gone = sdk(
        stored.ask("ChangeTrainingJobDescription", "doomed", body={"description": "é"}),
        stored.ask("StopTrainingJob", "doomed", body={"action_type": "terminate"}),
        stored.ask("StopTrainingJob", "doomed", body={"action_type": "terminate"}),
        stored.ask("DeleteTrainingJob", "doomed"),
        stored.ask("ShowTrainingJobDetails", "doomed"),
    )
    assert described["body"]["metadata"]["description"] == "é"
    assert (stopped["status"], stopped["body"]["status"]["phase"]) == (202, "Terminated")
    assert stopped["body"]["metadata"]["description"] == "é"
    assert (twice["status"], twice["code"]) == (409, "ModelArts.2796")
    assert deleted["status"] == 202
    assert (gone["status"], gone["code"]) == (400, "ModelArts.2775")


def test_every_answer_names_its_request(stored):
    """Use plain HTTP: a 204 has no body and keeps the connection usable, and every answer has one id."""
    path = "/v2/default/training-jobs"
    cases = [
        (f"{path}/{WAITING}/metrics/worker-0", 204),
        (f"{path}/{SAMPLE}", 200),
        (f"{path}/x", 400),
        ("/v2/a/b", 404),
    ]
    connection = http.client.HTTPConnection(urlsplit(stored.server.url).netloc, timeout=30)
    ids = set()
    for target, status in cases:
        connection.request("GET", target, headers={"X-Auth-Token": stored.server.admin["token"]})
        answer = connection.getresponse()
        body = answer.read()
        assert (answer.status, bool(body)) == (status, status != 204)
        found = ", ".join(answer.headers.get_all("X-Request-Id") or [])
        assert len(found) == 32
        ids.add(found)
    connection.close()
    assert len(ids) == len(cases)


def test_too_many_requests_are_what_the_sdk_understands(tmp_path, sdk):
    limits = {"JOBMETER_RATE_LIMITS": "ShowTrainingJobEngines=0.01:1,ListTrainingJobs=0.01:1"}
    with running(tmp_path / "data", environment=limits) as server:
        key = Stored._pair(server.admin)
        ask = {"url": server.url, "key": key, "project": "default"}
        reads = {**ask, "call": "ShowTrainingJobEngines"}
        searches = {**ask, "call": "ListTrainingJobs", "body": {}}
        first, read, _, searched = sdk(reads, reads, searches, searches)
    assert first["status"] == 200
    # The SDK's HTTP library does not pass on the body of a GET.
    assert (read["status"], read["code"]) == (429, "429")
    assert (searched["status"], searched["code"]) == (429, "ModelArts.2799")
    assert len(searched["request_id"]) == 32
