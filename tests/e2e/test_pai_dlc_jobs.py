"""PAI-DLC's jobs, their pods, events and logs with the vendor's own SDKs, against a real server."""

import http.client
import json
import re
import time
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import pytest

from tests.e2e.alibaba import CURRENT, FORMER, ask, needs_current, needs_former
from tests.support.frames import records
from tests.support.processes import running
from tests.support.waiting import wait_until

HOUR = 3_600_000
DAY = 24 * HOUR
COUNT = 123
TYPES = ("PyTorchJob", "TFJob", "RayJob")
STATES = ("Running", "Succeeded", "Failed", "Stopped", "Queued")

pytestmark = [pytest.mark.slow, needs_current]


def _many(now_ms):
    """Return job records that differ in every filter property of a list."""
    jobs = []
    for number in range(COUNT):
        state = STATES[number % 5]
        created = now_ms - DAY - number * 600_000
        job = {
            "job_id": f"dlcmany{number:04d}",
            "name": f"Train-{number % 10}.net",
            "type": TYPES[number % 3],
            "state": state,
            "user": f"user{number % 4}",
            "resource_group": f"rg{number % 3}" if number % 3 else "",
            "workspace": f"ws{number % 2}",
            "created": created,
            "command": f"python train.py --seed {number}",
            "labels": {"team": f"t{number % 5}", "k.1": "x"},
            "extra": {"pai-dlc": {"Priority": number % 9 + 1, "Images": [f"registry/img:{number % 7}", "base"]}},
        }
        if state != "Queued":
            job["start"] = created + 60_000
        if state in {"Succeeded", "Failed", "Stopped"}:
            job["end"] = job["start"] + (number + 1) * 60_000
        if state == "Failed":
            job["error"] = f"OOM on node {number}"
        if number % 6 == 4:
            job["extra"]["pai-dlc"]["Status"] = "EnvPreparing"
        jobs.append(job)
    jobs.append({"job_id": "dlcmanyold", "name": "old", "created": now_ms - 9 * DAY, "state": "Queued"})
    return jobs


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with running(tmp_path_factory.mktemp("dlc-jobs") / "data") as process:
        yield process


@pytest.fixture(scope="module")
def keys(server):
    def made(name, role, project):
        body = {"name": name, "role": role, "project": project}
        return json.loads(server.request("POST", "/keys", body).body)

    return {
        "ada": made("ada", "admin", "vision"),
        "bob": made("bob", "admin", "speech"),
        "eve": made("eve", "reader", "vision"),
        "list": made("user1", "writer", "lists"),
    }


def _config(server, key, **more):
    pair = {"access_key_id": key["access_key_id"], "access_key_secret": key["access_key_secret"]}
    return {**pair, "endpoint": server.url, **more}


def _request(server, key, call, *args, config=None, asynchronous=False, **request):
    return {
        "config": _config(server, key, **(config or {})),
        "call": call,
        "args": list(args),
        "request": request,
        "async": asynchronous,
    }


def _body(answer):
    assert answer.get("statusCode") == 200, answer
    body = answer["body"]
    assert body.get("RequestId", body.get("RequestID")) == answer["headers"]["x-acs-request-id"]
    return body


def _iso(time_ms):
    return datetime.fromtimestamp(time_ms // 1000, tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _precise(time_ms):
    return datetime.fromtimestamp(time_ms / 1000, tz=UTC).isoformat(timespec="milliseconds")


BODY: dict[str, Any] = {
    "DisplayName": "resnet-50",
    "JobType": "PyTorchJob",
    "UserCommand": "python train.py --lr 0.1",
    "WorkspaceId": "ws-7",
    "ResourceId": "rg-7",
    "Priority": 5,
    "Envs": {"LR": "0.1", "名": "é"},
    "DataSources": [{"DataSourceId": "d-1", "MountPath": "/mnt/data"}],
    "Settings": {"Tags": {"team": "vision"}, "Caller": "sdk"},
    "JobSpecs": [
        {"Type": "Master", "PodCount": 1, "Image": "img:1", "ResourceConfig": {"CPU": "4", "Memory": "16Gi"}},
        {
            "Type": "Worker",
            "PodCount": 2,
            "Image": "img:1",
            "ResourceConfig": {"CPU": "8", "GPU": "2", "GPUType": "A10", "Memory": "64Gi"},
        },
    ],
}


@pytest.mark.parametrize(
    ("python", "asynchronous"),
    [
        pytest.param(CURRENT, False, id="current-sync"),
        pytest.param(FORMER, True, id="former-async", marks=needs_former),
    ],
)
def test_the_life_of_a_job(server, keys, python, asynchronous):
    ada = keys["ada"]

    def run_sdk(call, *args, **request):
        return _request(server, ada, call, *args, asynchronous=asynchronous, **request)

    (made,) = ask(run_sdk("create_job", **BODY), python=python)
    job = _body(made)["JobId"]
    assert re.fullmatch(r"dlc[0-9a-z]{13}", job)
    changed = {"Priority": 9, "Accessibility": "PUBLIC"}
    got, listed, conflict, updated, again = ask(
        run_sdk("get_job", job),
        run_sdk("list_jobs", JobId=job, Tags={"team": "vision"}, DisplayName="RESNET"),
        run_sdk("delete_job", job),
        run_sdk("update_job", job, **changed),
        run_sdk("get_job", job),
        python=python,
    )
    body = _body(got)
    assert {name: body[name] for name in ("DisplayName", "JobType", "UserCommand", "WorkspaceId", "ResourceId")} == {
        name: BODY[name] for name in ("DisplayName", "JobType", "UserCommand", "WorkspaceId", "ResourceId")
    }
    assert (body["Status"], body["Priority"], body["UserId"]) == ("Queuing", 5, "ada")
    if python == CURRENT:  # the older models lack these fields
        assert (body["RequestCPU"], body["RequestGPU"], body["RequestMemory"]) == (20, 4.0, 144.0)
    assert body["Envs"] == BODY["Envs"]
    assert body["DataSources"] == BODY["DataSources"]
    assert [spec["ResourceConfig"] for spec in body["JobSpecs"]] == [
        spec["ResourceConfig"] for spec in BODY["JobSpecs"]
    ]
    assert [(pod["PodId"], pod["Type"], pod["Status"]) for pod in body["Pods"]] == [
        (f"{job}-master-0", "Master", "Pending"),
        (f"{job}-worker-0", "Worker", "Pending"),
        (f"{job}-worker-1", "Worker", "Pending"),
    ]
    (item,) = _body(listed)["Jobs"]
    assert _body(listed)["TotalCount"] == 1
    assert (item["RequestGPU"], item["RequestMemory"], item["NodeCount"]) == ("4", "144", "3")
    assert conflict["code"] == "OperationConflict"
    assert _body(updated)["JobId"] == job
    assert (_body(again)["Priority"], _body(again)["Accessibility"]) == (9, "PUBLIC")

    start = int(time.time() * 1000)
    _report(server, job, start)
    wait_until(lambda: time.time() * 1000 > start + 1000, "that what was reported lies in the past")
    got, job_events, pod_events, logs, few = ask(
        run_sdk("get_job", job),
        run_sdk("get_job_events", job),
        run_sdk("get_pod_events", job, f"{job}-worker-0", MaxEventsNum=10),
        run_sdk("get_pod_logs", job, f"{job}-worker-0"),
        run_sdk("get_pod_logs", job, f"{job}-worker-0", MaxLines=2),
        python=python,
    )
    body = _body(got)
    assert (body["Status"], body["RestartTimes"]) == ("Running", "1")
    assert body["GmtRunningTime"] == _iso(start)
    assert [step["Status"] for step in body["StatusHistory"]] == ["Queuing", "Running"]
    pod = next(pod for pod in body["Pods"] if pod["PodId"] == f"{job}-worker-0")
    (old,) = pod["HistoryPods"]
    assert (pod["Status"], old["Status"], old["SubStatus"]) == ("Running", "Failed", "Evicted")
    if python == CURRENT:
        assert (pod["NodeName"], old["NodeName"]) == ("node-b", "node-a")
    listed_events = _body(job_events)["Events"]
    assert any(event.endswith(f"Pod {job}-worker-0: OOMKilled: Memory ran out.") for event in listed_events)
    assert any(event.endswith(f"Job {job} is Running.") for event in listed_events)
    assert [event for event in _body(pod_events)["Events"] if "OOMKilled" in event and "Finding" not in event] == [
        f"{datetime.fromtimestamp((start + 300) // 1000, tz=UTC):%Y-%m-%d %H:%M:%S} OOMKilled: Memory ran out."
    ]
    assert _body(logs)["Logs"] == ["step 0", "step 1", "step 2", "ünï 日本"]
    assert _body(few)["Logs"] == ["step 2", "ünï 日本"]
    if python == CURRENT:
        first, late = ask(
            run_sdk("get_pod_logs", job, f"{job}-worker-0", PodUid=old["PodUid"]),
            run_sdk("get_pod_logs", job, f"{job}-worker-0", StartTime=_precise(start + 620)),
        )
        assert _body(first)["Logs"] == ["step 0", "step 1"]
        assert _body(late)["Logs"] == ["ünï 日本"]

    stopped, got, twice, deleted, gone = ask(
        run_sdk("stop_job", job),
        run_sdk("get_job", job),
        run_sdk("stop_job", job),
        run_sdk("delete_job", job),
        run_sdk("get_job", job),
        python=python,
    )
    assert _body(stopped)["JobId"] == job
    assert _body(got)["Status"] == "Stopped"
    assert _body(got)["StatusHistory"][-1]["Status"] == "Stopped"
    assert _body(got)["GmtStoppedTime"] == _body(got)["GmtFinishTime"]
    assert twice["code"] == "OperationConflict"
    assert _body(deleted)["JobId"] == job
    assert gone["code"] == "InvalidJobId.NotFound"


def _report(server, job, start):
    """Send the facts that the agents of a job's machines would report."""
    attempts = [
        {"name": "worker-0", "attempt": 0, "node": "node-a", "state": "Failed", "start": start, "end": start + 400,
         "reason": "Evicted by the node"},
        {"name": "worker-0", "attempt": 1, "node": "node-b", "state": "Running", "start": start + 500},
    ]  # fmt: skip
    listed_events = {
        "time": start + 300,
        "project": "vision",
        "job": job,
        "replica": "worker-0",
        "source": "replica",
        "level": "error",
        "reason": "OOMKilled",
        "message": "Memory ran out.",
    }
    record = {"job_id": job, "project": "vision", "state": "Running", "start": start, "replicas": attempts}
    server.ingest(records({"jobs": [record], "events": [listed_events]}))
    texts = ((0, 10, "step 0"), (0, 20, "step 1"), (1, 600, "step 2"), (1, 640, "ünï 日本"))
    lines = [
        {"time": start + after, "text": text, "replica": "worker-0", "attempt": attempt}
        for attempt, after, text in texts
    ]
    answer = server.request("POST", f"/jobs/{quote(job)}/logs?project=vision", {"lines": lines})
    assert answer.status == 200, answer.body


@pytest.fixture(scope="module")
def many(server, keys):
    now_ms = int(time.time() * 1000)
    jobs = _many(now_ms)
    server.ingest(records({"jobs": [{**job, "project": "lists"} for job in jobs]}))
    return jobs, now_ms


def _seconds(job):
    return (job["end"] - job["start"]) / 1000 if "end" in job else None


def _recent(now_ms):
    return lambda job: job["created"] >= now_ms - 7 * DAY


def test_every_filter_finds_what_fits(server, keys, many):
    jobs, now_ms = many
    words = {"Queued": "Queuing"}
    own = [job for job in jobs if job["job_id"] != "dlcmanyold"]
    chosen = {"JobIds": "dlcmany0003,DLCMANY0005,nothing"}
    from_ms, to_ms = now_ms - DAY - 30 * 600_000, now_ms - DAY - 10 * 600_000

    def priority(job):
        return job["extra"]["pai-dlc"]["Priority"]

    filters: list[tuple[dict[str, Any], Any]] = [
        ({}, lambda job: True),
        ({"JobId": "DLCMANY0007"}, lambda job: job["job_id"] == "dlcmany0007"),
        (chosen, lambda job: job["job_id"] in {"dlcmany0003", "dlcmany0005"}),
        ({"DisplayName": "RAIN-3"}, lambda job: "Train-3" in job["name"]),
        ({"DisplayName": "Train-3.net", "DisplayNameSearchMode": "Exact"}, lambda job: job["name"] == "Train-3.net"),
        ({"DisplayName": "train-3", "DisplayNameSearchMode": "Exact"}, lambda job: False),
        ({"JobType": "RayJob"}, lambda job: job["type"] == "RayJob"),
        ({"Status": "Running"}, lambda job: job["state"] == "Running"),
        (
            {"Status": "Queuing"},
            lambda job: job["state"] == "Queued" and "Status" not in job["extra"]["pai-dlc"],
        ),
        (
            {"Status": "EnvPreparing"},
            lambda job: job["state"] == "Queued" and "Status" in job["extra"]["pai-dlc"],
        ),
        ({"WorkspaceId": "ws1"}, lambda job: job["workspace"] == "ws1"),
        ({"WorkspaceId": "ws1", "FromAllWorkspaces": True}, lambda job: True),
        ({"ResourceId": "rg1"}, lambda job: job["resource_group"] == "rg1"),
        ({"ResourceIds": "rg1,rg2"}, lambda job: job["resource_group"] in {"rg1", "rg2"}),
        ({"ResourceQuotaName": "G2"}, lambda job: job["resource_group"] == "rg2"),
        ({"UserIdForFilter": "user2"}, lambda job: job["user"] == "user2"),
        ({"Username": "ER2"}, lambda job: job["user"] == "user2"),
        ({"ShowOwn": True}, lambda job: job["user"] == "user1"),
        ({"ShowOwn": True, "UserIdForFilter": "user2"}, lambda job: False),
        ({"Tags": {"team": "t3", "k.1": "x"}}, lambda job: job["labels"]["team"] == "t3"),
        ({"Tags": {"team": "t3", "k.1": "y"}}, lambda job: False),
        ({"Accessibility": "PUBLIC"}, lambda job: False),
        ({"Accessibility": "PRIVATE"}, lambda job: True),
        ({"PaymentType": "PostPaid"}, lambda job: not job["resource_group"]),
        ({"PaymentType": "PrePaid"}, lambda job: job["resource_group"]),
        ({"PaymentType": "Spot"}, lambda job: False),
        ({"ImageSearch": "IMG:3"}, lambda job: "registry/img:3" in job["extra"]["pai-dlc"]["Images"]),
        ({"ReasonSearch": "oom ON node 1"}, lambda job: "OOM on node 1" in job.get("error", "")),
        ({"UserCommandSearch": "--SEED 11"}, lambda job: "--seed 11" in job["command"]),
        (
            {"StartTime": _iso(from_ms), "EndTime": _iso(to_ms)},
            lambda job: from_ms // 1000 * 1000 <= job["created"] <= to_ms // 1000 * 1000,
        ),
        (
            {"TimeRangeField": "GmtFailedTime", "StartTime": _iso(from_ms), "EndTime": _iso(to_ms)},
            lambda job: job["state"] == "Failed" and from_ms // 1000 * 1000 <= job["end"] <= to_ms // 1000 * 1000,
        ),
        (
            {"NumericRangeField": "Duration", "NumericRangeMin": 600, "NumericRangeMax": 1200, "Status": "Failed"},
            lambda job: job["state"] == "Failed" and 600 <= _seconds(job) <= 1200,
        ),
        (
            {"NumericRangeField": "Priority", "NumericRangeMin": 3, "NumericRangeMax": 5},
            lambda job: 3 <= priority(job) <= 5,
        ),
        ({"NumericRangeField": "Priority", "NumericRangeMax": 2}, lambda job: priority(job) <= 2),
        ({"Caller": "nobody"}, lambda job: False),
        ({"Status": "Failed", "JobType": "TFJob", "UserIdForFilter": "user3"}, None),
    ]
    answers = ask(*(_request(server, keys["list"], "list_jobs", PageSize=1000, **given) for given, _ in filters))
    for (given, fits), answer in zip(filters, answers, strict=True):
        expected = fits or (lambda job: (job["state"], job["type"], job["user"]) == ("Failed", "TFJob", "user3"))
        found = [job["JobId"] for job in _body(answer)["Jobs"]]
        assert found == [job["job_id"] for job in own if expected(job)], given
        assert _body(answer)["TotalCount"] == len(found), given
    assert words[own[4]["state"]] == "Queuing"
    statuses = {job["JobId"]: job["Status"] for job in _body(answers[0])["Jobs"]}
    assert statuses["dlcmany0004"] == "EnvPreparing"
    assert statuses["dlcmany0009"] == "Queuing"


def test_pages_and_orders(server, keys, many):
    jobs, now_ms = many
    own = [job for job in jobs if _recent(now_ms)(job)]
    sorts = {"DisplayName": "name", "JobType": "type", "GmtCreateTime": "created", "Status": "state"}
    expected = [(by, field, order) for by, field in sorts.items() for order in ("asc", "desc")]
    asks = [
        _request(server, keys["list"], "list_jobs", SortBy=by, Order=order, PageSize=40, PageNumber=number)
        for by, _, order in expected
        for number in range(1, 5)
    ]
    answers = ask(
        *asks,
        _request(server, keys["list"], "list_jobs"),
        _request(server, keys["list"], "list_jobs", StartTime=_iso(now_ms - 10 * DAY), PageSize=1000),
    )
    fields = {job["job_id"]: job for job in jobs}
    for at, (_, field, order) in enumerate(expected):
        pages = [_body(answer) for answer in answers[4 * at : 4 * at + 4]]
        assert {page["TotalCount"] for page in pages} == {len(own)}
        assert [len(page["Jobs"]) for page in pages] == [40, 40, 40, len(own) - 120]
        found = [job["JobId"] for page in pages for job in page["Jobs"]]
        assert sorted(found) == sorted(job["job_id"] for job in own)
        values = [fields[job][field] for job in found]
        assert values == sorted(values, reverse=order == "desc")
    assert len(_body(answers[-2])["Jobs"]) == 50
    assert _body(answers[-1])["TotalCount"] == len(own) + 1, "older jobs are listed when they are asked for"


def test_health_checks_that_a_job_reported(server, keys):
    checks = [
        [
            {"CheckNumber": 1, "Phase": "CheckInit", "Status": "Succeeded", "Message": "", "StartedAt": _iso(0),
             "FinishedAt": _iso(1000)},
            {"CheckNumber": 1, "Phase": "DeviceCheck", "Status": "Failed", "Message": "gpu3 is slow"},
        ],
        [{"CheckNumber": 2, "Phase": "CheckInit", "Status": "Succeeded"}],
    ]  # fmt: skip
    extra = {"pai-dlc": {"SanityCheckResults": checks}}
    server.ingest(records({"jobs": [{"job_id": "dlcchecked", "project": "vision", "extra": extra}]}))
    listed, turned, one, phase, none = ask(
        _request(server, keys["eve"], "list_job_sanity_check_results", "dlcchecked"),
        _request(server, keys["eve"], "list_job_sanity_check_results", "dlcchecked", Order="desc", asynchronous=True),
        _request(server, keys["eve"], "get_job_sanity_check_result", "dlcchecked", SanityCheckNumber=2),
        _request(
            server,
            keys["eve"],
            "get_job_sanity_check_result",
            "dlcchecked",
            SanityCheckNumber=1,
            SanityCheckPhase="DeviceCheck",
        ),
        _request(server, keys["eve"], "get_job_sanity_check_result", "dlcchecked", SanityCheckNumber=7),
    )
    assert _body(listed)["TotalCount"] == 2
    numbers = [[item["CheckNumber"] for item in check] for check in _body(listed)["SanityCheckResults"]]
    assert numbers == [[1, 1], [2]]
    assert _body(turned)["SanityCheckResults"] == _body(listed)["SanityCheckResults"][::-1]
    assert [item["Phase"] for item in _body(one)["SanityCheckResult"]] == ["CheckInit"]
    assert [item["Message"] for item in _body(phase)["SanityCheckResult"]] == ["gpu3 is slow"]
    assert _body(none)["SanityCheckResult"] == []


def test_a_share_token_opens_its_job_and_nothing_else(server, keys):
    made, other, token = ask(
        _request(server, keys["ada"], "create_job", **BODY),
        _request(server, keys["ada"], "create_job", **BODY),
        _request(server, keys["ada"], "get_token", TargetId="dlcshared", TargetType="job"),
    )
    job = _body(made)["JobId"]
    assert token["code"] == "InvalidJobId.NotFound"
    (token,) = ask(_request(server, keys["ada"], "get_token", TargetId=job, TargetType="job", ExpireTime=60))
    secret, another = quote(_body(token)["Token"]), _body(other)["JobId"]

    def status(method, path):
        connection = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=60)
        try:
            connection.request(method, path + ("&" if "?" in path else "?") + f"Token={secret}")
            return connection.getresponse().status
        finally:
            connection.close()

    own = f"/api/v1/jobs/{job}"
    check = "sanitycheckresult?SanityCheckNumber=1"
    metrics = (f"{own}/metrics?MetricType=CpuCoreUsage", f"/api/v1/cms/metrics?JobId={job}&MetricName=JOB_CPU_UTIL")
    for path in (*metrics, f"{own}/{check}"):
        assert status("GET", path) == 200, path
    for path in (own, f"{own}/events", f"{own}/pods/x/logs", "/api/v1/jobs"):
        assert status("GET", path) == 403, path
    for path in (f"/api/v1/jobs/{another}/metrics?MetricType=CpuCoreUsage", f"/api/v1/jobs/{another}/{check}"):
        assert status("GET", path) == 404, path
    assert status("POST", f"{own}/stop") == 403
    assert status("DELETE", own) == 403
    assert status("POST", "/api/v1/jobs") == 403


def test_refusals_are_the_vendors_own(server, keys):
    (made,) = ask(_request(server, keys["bob"], "create_job", **BODY))
    foreign = _body(made)["JobId"]
    pod = f"{foreign}-worker-0"
    ada = keys["ada"]
    of_job = [
        _request(server, ada, "get_job", foreign),
        _request(server, ada, "get_job_events", foreign),
        _request(server, ada, "get_pod_events", foreign, pod),
        _request(server, ada, "get_pod_logs", foreign, pod),
        _request(server, ada, "list_job_sanity_check_results", foreign),
        _request(server, ada, "get_job_sanity_check_result", foreign, SanityCheckNumber=1),
        _request(server, ada, "get_token", TargetId=foreign, TargetType="job"),
        _request(server, ada, "get_job_metrics", foreign, MetricType="GpuCoreUsage"),
        _request(server, ada, "get_metrics", JobId=foreign, MetricName="JOB_CPU_UTIL"),
        _request(server, ada, "update_job", foreign, Priority=2),
        _request(server, ada, "stop_job", foreign),
        _request(server, ada, "delete_job", foreign),
    ]
    wrong = [
        (_request(server, keys["eve"], "create_job", **BODY), "Forbidden.RAM", 403),
        (_request(server, keys["eve"], "stop_job", foreign), "Forbidden.RAM", 403),
        (_request(server, keys["list"], "delete_job", foreign), "Forbidden.RAM", 403),
        (_request(server, ada, "create_job"), "MissingParameter", 400),
        (_request(server, ada, "create_job", **{**BODY, "DisplayName": "a b"}), "InvalidParameter", 400),
        (_request(server, ada, "create_job", **{**BODY, "JobType": "Job"}), "InvalidParameter", 400),
        (_request(server, ada, "create_job", **{**BODY, "JobSpecs": []}), "MissingParameter", 400),
        (_request(server, ada, "list_jobs", PageSize=0), "InvalidParameter", 400),
        (_request(server, ada, "list_jobs", Status="Sleeping"), "InvalidParameter", 400),
        (_request(server, ada, "list_jobs", StartTime="then"), "InvalidParameter", 400),
        (_request(server, ada, "get_job", ""), "MissingParameter", 400),
        (_request(server, ada, "get_job", "a/b ü"), "InvalidJobId.NotFound", 404),
        (_request(server, ada, "list_jobs", config={"access_key_secret": "wrong"}), "SignatureDoesNotMatch", 400),
        (_request(server, ada, "create_job", config={"access_key_secret": "no"}, **BODY), "SignatureDoesNotMatch", 400),
        (_request(server, ada, "list_jobs", config={"access_key_id": "nobody"}), "InvalidAccessKeyId.NotFound", 404),
        (_request(server, ada, "get_dashboard", foreign), "InvalidAction.NotFound", 404),
    ]
    answers = ask(*of_job, *(run_sdk for run_sdk, _, _ in wrong), _request(server, ada, "list_jobs", JobId=foreign))
    for run_sdk, answer in zip(of_job, answers, strict=False):
        assert (answer.get("code"), answer.get("status_code")) == ("InvalidJobId.NotFound", 404), (run_sdk, answer)
        assert answer["request_id"]
    for (run_sdk, code, status), answer in zip(wrong, answers[len(of_job) :], strict=False):
        assert (answer.get("code"), answer.get("status_code")) == (code, status), (run_sdk, answer)
    assert _body(answers[-1]) | {"RequestId": ""} == {"Jobs": [], "TotalCount": 0, "RequestId": ""}
    (unchanged,) = ask(_request(server, keys["bob"], "get_job", foreign))
    assert _body(unchanged)["Status"] == "Queuing"
