"""The vendor's own SDK and the `truss` command against a real server, with nothing but the address changed."""

import json
import os
import pty
import re
import select
import signal
import socket
import struct
import subprocess
import termios
import time
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from fcntl import ioctl
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.frames import records, samples
from tests.processes import ServerProcess, running

ROOT = Path(__file__).parents[2]
SDK = ROOT / ".venvs" / "baseten" / "bin" / "python"
SCRIPT = Path(__file__).parent / "sdk" / "baseten_sdk.py"
TRUSS_SCRIPT = Path(__file__).parent / "sdk" / "truss_cli.py"
TRUSS = ROOT / ".venvs" / "truss" / "bin" / "truss"
PROJECT = "llm-team"
DONE, RUNNING, WAITING, TO_STOP, TO_DELETE = "bt-done", "bt-running", "bt-waiting", "bt-to-stop", "bt-to-delete"
HOUR = 3_600_000
DAY = 24 * HOUR
STEPS = [1, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600]
GIB = 1 << 30
PLAIN = {
    "cpu.usage": 8.0,
    "memory.usage": 64.0 * GIB,
    "storage.ephemeral.usage": 90.0 * GIB,
    "storage.cache.usage": 40.0 * GIB,
}
GPU = {"gpu.utilization": 1.0, "gpu.memory.usage": 80.0 * GIB}
LIMITS = {"storage.ephemeral": 100 * GIB, "storage.cache": 50 * GIB}

pytestmark = pytest.mark.slow


@dataclass
class Stored:
    """A server, what is stored in it, and when it was."""

    server: ServerProcess
    frame: pd.DataFrame
    lines: list[dict[str, Any]]
    now_ms: int
    keys: dict[str, str]
    home: Path
    sdk: Any

    def job(self, job):
        return self.frame[self.frame.job == job]


def _samples(job, start_ms, end_ms, seed):
    """Two nodes with two GPUs each, one sample each 15 seconds, with gaps."""
    random = np.random.default_rng(seed)
    rows = []
    for replica in ("worker-0", "worker-1"):
        for metric, top in {**PLAIN, **GPU}.items():
            for device in ("gpu0", "gpu1") if metric in GPU else ("",):
                times = np.arange(start_ms, end_ms, 15_000)
                kept = random.random(len(times)) > 0.2
                kept[-1] = True
                kept[40:80] = False
                values = random.random(len(times)) * top
                values = np.round(values, 4) if top <= 8 else np.round(values)
                rows += [
                    (job, metric, replica, device, int(at), float(value))
                    for at, value in zip(times[kept], values[kept], strict=True)
                ]
    return rows


def _series(frame):
    for (job, metric, replica, device), group in frame.groupby(["job", "metric", "replica", "device"]):
        yield (
            {
                "project": PROJECT,
                "metric": metric,
                "job": job,
                "replica": replica,
                "node": f"node-{replica[-1]}",
                "device": device,
            },
            list(zip(group["time"], group["value"], strict=True)),
        )


def _records(now_ms):
    two = [{"name": "worker-0", "rank": 0}, {"name": "worker-1", "rank": 1}]
    done_end = now_ms - DAY
    limits = {f"{name}.limit": size for name, size in LIMITS.items()}
    return [
        {
            "job_id": DONE,
            "project": PROJECT,
            "name": "tune a model",
            "state": "Failed",
            "user": "alice@example.com",
            "error": "CUDA out of memory",
            "created": done_end - HOUR - 60_000,
            "start": done_end - HOUR,
            "end": done_end,
            "limits": limits,
            "instance_type": {
                "id": "H100:2x26x468",
                "name": "H100:2x26x468 (2 GPUs)",
                "cpu": 26,
                "memory": 468 * GIB,
                "gpu_type": "H100",
                "gpu_count": 2,
                "gpu_memory": 80 * GIB,
            },
            "checkpoints": [
                {
                    "id": f"step-{number}",
                    "created": done_end - number * 60_000,
                    "type": "lora" if number % 2 else "full",
                    "size": number * 1_000_000,
                    "files": [f"s3://bucket/run/step-{number}/rank-{rank}/model.bin" for rank in range(3)],
                    **({"base_model": "gpt-oss"} if number % 2 else {}),
                }
                for number in (1, 2)
            ],
            "extra": {"baseten": {"current_status": "TRAINING_JOB_DEPLOY_FAILED", "checkpoint_sync_status": "SYNCING"}},
            "replicas": two,
        },
        {
            "job_id": RUNNING,
            "project": PROJECT,
            "state": "Running",
            "created": now_ms - HOUR,
            "start": now_ms - HOUR,
            "limits": {**limits, "memory": 128 * GIB, "cpu": 12.5},
            "replicas": two,
        },
        {
            "job_id": WAITING,
            "project": PROJECT,
            "state": "Queued",
            "created": now_ms - 5_000,
            "extra": {"baseten": {"current_status": "TRAINING_JOB_PENDING", "availability_model": "spot"}},
        },
        {"job_id": TO_DELETE, "project": PROJECT, "state": "Queued", "created": now_ms - 3 * HOUR},
        {"job_id": TO_STOP, "project": PROJECT, "state": "Running", "created": now_ms - 2 * HOUR},
    ]


LEVELS = (None, "debug", "info", "warning", "error")


def _lines(start_ms):
    """What a finished job wrote in an hour: more than two pages of it, of which several lines share a millisecond."""
    start_ns = start_ms * 1_000_000
    return [
        {
            "time_ns": start_ns + number * 1_400_000_000 + part * 250_000,
            "text": f"step {number}.{part} done",
            "replica": f"worker-{number % 2}",
            **({"level": LEVELS[number % 5]} if number % 5 else {}),
        }
        for number in range(560)
        for part in range(4)
    ]


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    folder = tmp_path_factory.mktemp("baseten")
    throttled = {"JOBMETER_RATE_LIMITS": "get_training_projects_cache_summary=0.01:1"}
    with running(folder / "data", environment=throttled) as server, _sdk() as sdk:
        now_ms = int(time.time()) * 1000
        rows = [*_samples(DONE, now_ms - DAY - HOUR, now_ms - DAY, 3), *_samples(RUNNING, now_ms - HOUR, now_ms, 4)]
        frame = pd.DataFrame(rows, columns=["job", "metric", "replica", "device", "time", "value"])
        written = _records(now_ms)
        receipt = server.ingest(records({"jobs": written}) + samples(list(_series(frame))))
        assert receipt == {"accepted": len(frame), "records": len(written), "rejected": {}}
        lines = _lines(now_ms - DAY - HOUR)
        pushed = server.request("POST", f"/jobs/{DONE}/logs?project={PROJECT}", {"lines": lines})
        assert json.loads(pushed.body) == {"accepted": len(lines), "rejected": {}}
        keys = {"admin": str(server.admin["token"])}
        for name, role, project in (("own", "writer", PROJECT), ("reader", "reader", PROJECT), ("other", "admin", "x")):
            made = server.request("POST", "/keys", {"name": name, "role": role, "project": project})
            keys[name] = json.loads(made.body)["token"]
        yield Stored(server, frame, lines, now_ms, keys, folder, sdk)


def _ask(stored, *asks, key="own"):
    """What the SDK says to each; one process for all, since loading it takes longer than asking."""
    if not SDK.exists():
        pytest.skip("needs the environment .venvs/baseten: make sdk")
    given = [{"url": stored.server.url, "key": stored.keys[key], **ask} for ask in asks]
    stored.sdk.stdin.write("".join(json.dumps(ask) + "\n" for ask in given))
    stored.sdk.stdin.flush()
    return [json.loads(stored.sdk.stdout.readline()) for _ in given]


@contextmanager
def _sdk():
    if not SDK.exists():
        yield None
        return
    with subprocess.Popen([SDK, SCRIPT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.communicate(timeout=60)


def _of(job, call, **more):
    return {"call": call, "path": {"training_project_id": PROJECT, "training_job_id": job}, **more}


def _metrics(job, asynchronous=False, by_get=True, **parameters):
    form = "params" if by_get else "request"
    call = f"{'get' if by_get else 'post'}_training_projects_jobs_metrics"
    return _of(job, call, **{form: parameters, "async": asynchronous})


def _means(frame, metric, start_ms, end_ms, step_ms):
    """{(replica, device): {bucket: mean}} by pandas."""
    own = frame[(frame.metric == metric) & (frame.time >= start_ms) & (frame.time < end_ms)]
    means = own.groupby(["replica", "device", own.time // step_ms * step_ms])["value"].mean()
    return {key: dict(group.droplevel([0, 1])) for key, group in means.groupby(level=[0, 1])}


def _node(frame, replica, start_ms, end_ms, step_ms):
    """The metrics of one node as they should be, times in milliseconds."""

    def of(metric, device=""):
        return _means(frame, metric, start_ms, end_ms, step_ms).get((replica, device), {})

    ephemeral = of("storage.ephemeral.usage")
    return {
        "gpu_memory_usage_bytes": {rank: of("gpu.memory.usage", f"gpu{rank}") for rank in ("0", "1")},
        "gpu_utilization": {rank: of("gpu.utilization", f"gpu{rank}") for rank in ("0", "1")},
        "cpu_usage": of("cpu.usage"),
        "cpu_memory_usage_bytes": of("memory.usage"),
        "ephemeral_storage": {
            "usage_bytes": ephemeral,
            "utilization": {at: value / LIMITS["storage.ephemeral"] for at, value in ephemeral.items()},
        },
    }


def _cache(frame, start_ms, end_ms, step_ms):
    by_replica = pd.DataFrame(_means(frame, "storage.cache.usage", start_ms, end_ms, step_ms))
    usage = by_replica.mean(axis=1)
    return {"usage_bytes": dict(usage), "utilization": dict(usage / LIMITS["storage.cache"])}


def _plain(value):
    """An answer with its lists of points as {milliseconds: value}; they must be in order."""
    if isinstance(value, list):
        times = [round(datetime.fromisoformat(point["timestamp"]).timestamp() * 1000) for point in value]
        assert times == sorted(set(times))
        return dict(zip(times, (point["value"] for point in value), strict=True))
    return {name: _plain(part) for name, part in value.items()}


def _same(found, expected):
    assert found.keys() == expected.keys()
    for name, part in expected.items():
        if part and isinstance(next(iter(part.values())), dict):
            _same(found[name], part)
        else:
            assert found[name] == pytest.approx(part, rel=1e-9), name


def _check(body, frame, start_ms, end_ms, step_ms):
    nodes = {node["node_id"]: _plain(node["metrics"]) for node in body["per_node_metrics"]}
    assert list(nodes) == ["worker-0", "worker-1"]
    for name, metrics in nodes.items():
        _same(metrics, _node(frame, name, start_ms, end_ms, step_ms))
    assert {key: _plain(body[key]) for key in nodes["worker-0"]} == nodes["worker-0"]
    _same(_plain(body["cache"]), _cache(frame, start_ms, end_ms, step_ms))


def _default_step(start_ms, end_ms):
    return next(s * 1000 for s in STEPS if -(-end_ms // (s * 1000)) - start_ms // (s * 1000) <= 240)


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("by_get", [True, False], ids=["get", "post"])
def test_every_number_equals_pandas(stored, asynchronous, by_get):
    end_ms = stored.now_ms - DAY - 137_000
    start_ms = end_ms - 1_900_001
    asks = [
        _metrics(DONE, asynchronous, by_get, start_epoch_millis=start_ms, end_epoch_millis=end_ms, step_seconds=seconds)
        for seconds in (15, 57, 300, 7200)
    ]
    for seconds, body in zip((15, 57, 300, 7200), _ask(stored, *asks), strict=True):
        _check(body, stored.job(DONE), start_ms, end_ms, seconds * 1000)


def test_a_finished_job_is_told_whole_and_a_running_one_of_its_last_hour(stored):
    done, empty, running_one = _ask(
        stored,
        _metrics(DONE),
        _metrics(DONE, by_get=False, start_epoch_millis=None, end_epoch_millis=None),
        _metrics(RUNNING, step_seconds=30),
    )
    start_ms, end_ms = stored.now_ms - DAY - HOUR, stored.now_ms - DAY + 1
    _check(done, stored.job(DONE), start_ms, end_ms, _default_step(start_ms, end_ms))
    assert empty == done
    # The first bucket of the last hour is cut by the moment of the question.
    inner = stored.now_ms - HOUR + 120_000
    found = _plain(running_one["per_node_metrics"][1]["metrics"])["gpu_utilization"]["1"]
    expected = _means(stored.job(RUNNING), "gpu.utilization", 0, 2**62, 30_000)["worker-1", "gpu1"]
    assert {at: value for at, value in found.items() if at >= inner} == pytest.approx(
        {at: value for at, value in expected.items() if at >= inner}
    )


def test_jobs_and_projects_are_what_was_recorded(stored):
    projects, listed, found, one, checkpoints, codes, empty = _ask(
        stored,
        {"call": "get_training_projects"},
        {"call": "get_training_projects_jobs", "path": {"training_project_id": PROJECT}},
        {
            "call": "post_training_jobs_search",
            "request": {
                "statuses": ["TRAINING_JOB_DEPLOY_FAILED", "TRAINING_JOB_PENDING", "TRAINING_JOB_CREATED"],
                "project_id": PROJECT,
                "order_by": [{"field": "created_at", "order": "asc"}],
            },
        },
        _of(DONE, "get_training_projects_jobs_training_job_id", **{"async": True}),
        _of(RUNNING, "get_training_projects_jobs_checkpoints"),
        _of(DONE, "get_training_projects_jobs_auth_codes"),
        _metrics(DONE, by_get=False, start_epoch_millis=stored.now_ms - DAY, end_epoch_millis=stored.now_ms - DAY),
    )
    job = one["training_job"]
    assert job["instance_type"] == {
        "id": "H100:2x26x468",
        "name": "H100:2x26x468 (2 GPUs)",
        "memory_limit_mib": 468 * 1024,
        "millicpu_limit": 26_000,
        "gpu_count": 2,
        "gpu_type": "H100",
        "gpu_memory_limit_mib": 80 * 1024,
    }
    assert (job["current_status"], job["error_message"]) == ("TRAINING_JOB_DEPLOY_FAILED", "CUDA out of memory")
    assert (job["name"], job["user"], job["node_count"]) == ("tune a model", {"email": "alice@example.com"}, 2)
    created = datetime.fromtimestamp((stored.now_ms - DAY - HOUR - 60_000) / 1000, tz=UTC)
    assert datetime.fromisoformat(job["created_at"]) == created
    assert job["checkpoint_sync_status"] == "SYNCING"
    assert [one["id"] for one in listed["training_jobs"] if one["id"] != TO_DELETE] == [WAITING, RUNNING, TO_STOP, DONE]
    derived = listed["training_jobs"][1]["instance_type"]
    assert (derived["memory_limit_mib"], derived["millicpu_limit"]) == (128 * 1024, 12_500)
    assert (derived["gpu_count"], derived["gpu_type"]) == (2, None)
    assert listed["training_jobs"][-1] == job
    assert listed["training_jobs"][0]["availability_model"] == "spot"
    assert [one["id"] for one in found["training_jobs"] if one["id"] != TO_DELETE] == [DONE, WAITING]
    assert [one["name"] for one in projects["training_projects"]] == [PROJECT]
    assert projects["training_projects"][0]["latest_job"]["id"] == WAITING
    assert one["training_project"] == projects["training_projects"][0]
    assert checkpoints["checkpoints"] == codes["auth_codes"] == []
    assert (empty["cpu_usage"], empty["cache"], empty["per_node_metrics"]) == ([], None, [])


def test_checkpoints_are_those_that_the_job_reported(stored):
    listed, first, second = _ask(
        stored,
        _of(DONE, "get_training_projects_jobs_checkpoints"),
        _of(DONE, "get_training_projects_jobs_checkpoint_files", params={"page_size": 4}),
        _of(DONE, "get_training_projects_jobs_checkpoint_files", params={"page_size": 4, "page_token": 4}),
    )
    assert [
        (one["checkpoint_id"], one["checkpoint_type"], one["base_model"], one["size_bytes"])
        for one in listed["checkpoints"]
    ] == [("step-2", "full", None, 2_000_000), ("step-1", "lora", "gpt-oss", 1_000_000)]
    created = datetime.fromisoformat(listed["checkpoints"][1]["created_at"])
    assert round(created.timestamp() * 1000) == stored.now_ms - DAY - 60_000
    assert (first["next_page_token"], second["next_page_token"]) == (4, None)
    assert first["total_count"] == second["total_count"] == 6
    files = [*first["presigned_urls"], *second["presigned_urls"]]
    assert [one["relative_file_name"] for one in files] == [
        f"step-{number}/rank-{rank}/model.bin" for number in (2, 1) for rank in range(3)
    ]
    assert files[0]["url"] == "s3://bucket/run/step-2/rank-0/model.bin"


def test_a_pending_job_is_changed_and_one_is_deleted(stored):
    changed, unchanged, running_one, deleted, gone = _ask(
        stored,
        _of(WAITING, "patch_training_projects_jobs", request={"priority": 7}),
        _of(WAITING, "patch_training_projects_jobs", request={}),
        _of(RUNNING, "patch_training_projects_jobs", request={"priority": 7}),
        {**_of(TO_DELETE, "delete_training_projects_jobs"), "key": stored.keys["admin"]},
        _of(TO_DELETE, "get_training_projects_jobs_training_job_id"),
    )
    for body in (changed, unchanged):
        job = body["training_job"]
        assert (job["priority"], job["availability_model"], job["current_status"]) == (
            7,
            "spot",
            "TRAINING_JOB_PENDING",
        )
    assert (running_one["status"], json.loads(running_one["body"])["code"]) == (409, "CONFLICT")
    assert deleted == {"id": TO_DELETE, "deleted": True, "training_project_id": PROJECT}
    assert gone["status"] == 404


def _log(line):
    level = line.get("level")
    return {
        "timestamp": str(line["time_ns"]),
        "message": line["text"],
        "replica": line["replica"],
        "request_id": None,
        "level": level.upper() if level else None,
    }


def _within(lines, start_ms, end_ms):
    return [line for line in lines if start_ms * 1_000_000 <= line["time_ns"] < end_ms * 1_000_000]


def test_logs_are_paged_from_either_end(stored):
    end_ms = stored.now_ms - DAY
    whole = {"start_epoch_millis": end_ms - HOUR, "end_epoch_millis": end_ms + HOUR}
    latest, newest, oldest, debug, warnings, by_get, now = _ask(
        stored,
        _of(DONE, "post_training_projects_jobs_logs", request={"end_epoch_millis": end_ms - HOUR + 600_000}),
        _of(DONE, "post_training_projects_jobs_logs", request=whole),
        _of(DONE, "post_training_projects_jobs_logs", request={**whole, "limit": 7, "direction": "asc"}),
        _of(DONE, "post_training_projects_jobs_logs", request={**whole, "limit": 1000, "min_level": "DEBUG"}),
        _of(DONE, "post_training_projects_jobs_logs", request={**whole, "limit": 1000, "min_level": "WARNING"}),
        _of(DONE, "get_training_projects_jobs_logs", params={**whole, "limit": 3, "min_level": "ERROR"}),
        _of(DONE, "get_training_projects_jobs_logs"),
    )
    half_hour = _within(stored.lines, end_ms - HOUR - 1_200_000, end_ms - HOUR + 600_000)
    assert latest["logs"] == [_log(line) for line in half_hour[::-1][:500]]
    assert newest["logs"] == [_log(line) for line in stored.lines[::-1][:500]]
    assert oldest["logs"] == [_log(line) for line in stored.lines[:7]]
    told = [line for line in stored.lines if "level" in line]
    assert debug["logs"] == [_log(line) for line in told[::-1][:1000]]
    assert warnings["logs"] == [_log(line) for line in told[::-1] if line["level"] in {"warning", "error"}]
    assert by_get["logs"] == [_log(line) for line in told[::-1] if line["level"] == "error"][:3]
    assert now["logs"] == []


def test_refusals_are_the_vendors_own(stored):
    stop = _of(DONE, "post_training_projects_jobs_stop", request={})
    wrong = {"training_project_id": "another", "training_job_id": DONE}
    path = {"training_project_id": PROJECT}
    summary = {"call": "get_training_projects_cache_summary", "path": path}
    cases = [
        (404, "NOT_FOUND", _metrics("nothing")),
        (404, "NOT_FOUND", {**_metrics(DONE), "path": wrong}),
        (
            404,
            "NOT_FOUND",
            {"call": "get_training_projects_training_project_id", "path": {"training_project_id": "another"}},
        ),
        (400, "VALIDATION_ERROR", _metrics(DONE, step_seconds=0)),
        (400, "VALIDATION_ERROR", _metrics(DONE, start_epoch_millis=2000, end_epoch_millis=1000)),
        (400, "VALIDATION_ERROR", {"call": "post_training_projects", "request": {"training_project": {"name": "new"}}}),
        (409, "CONFLICT", stop),
        (403, "PERMISSION_DENIED", _of(DONE, "delete_training_projects_jobs")),
        (404, "NOT_FOUND", _of(DONE, "post_training_projects_jobs_recreate")),
    ]
    for (code, name, _), answer in zip(cases, _ask(stored, *(ask for _, _, ask in cases)), strict=True):
        assert (answer.get("error"), answer.get("status")) == ("ResponseError", code), answer
        assert json.loads(answer["body"])["code"] == name
    read_only, wrong_key, no_key, first, again = _ask(
        stored,
        {**_of(RUNNING, "post_training_projects_jobs_stop", request={}), "key": stored.keys["reader"]},
        {**_metrics(DONE), "key": "jm_wrong"},
        {**_metrics(DONE), "key": ""},
        summary,
        summary,
    )
    assert (read_only["status"], json.loads(read_only["body"])["code"]) == (403, "PERMISSION_DENIED")
    for answer in (wrong_key, no_key):
        assert (answer["status"], json.loads(answer["body"])["code"]) == (401, "AUTHENTICATION_ERROR")
    assert first["file_summaries"] == []
    assert again["status"] == 429
    body = json.loads(again["body"])
    assert body["error"] == "Rate limit exceeded. Please try again later."
    assert 0 < body["retry_after"] <= 100


def test_nothing_of_another_project_is_shown(stored):
    asks = [
        {"call": "get_training_projects"},
        {"call": "post_training_jobs_search", "request": {}},
        {"call": "post_training_jobs_search", "request": {"project_id": PROJECT, "job_id": DONE}},
        *(
            _of(DONE, call, **more)
            for call, more in (
                ("get_training_projects_jobs_metrics", {}),
                ("post_training_projects_jobs_logs", {"request": {}}),
                ("get_training_projects_jobs_training_job_id", {}),
                ("get_training_projects_jobs_checkpoints", {}),
                ("get_training_projects_jobs_checkpoint_files", {}),
                ("get_training_projects_jobs_auth_codes", {}),
                ("get_training_projects_jobs_download", {}),
                ("post_training_projects_jobs_stop", {"request": {}}),
                ("patch_training_projects_jobs", {"request": {"priority": 1}}),
                ("delete_training_projects_jobs", {}),
            )
        ),
        {"call": "get_training_projects_jobs", "path": {"training_project_id": PROJECT}},
    ]
    projects, everything, named, *refused = _ask(stored, *asks, key="other")
    assert [one["id"] for one in projects["training_projects"]] == ["x"]
    assert everything["training_jobs"] == named["training_jobs"] == []
    for answer in refused:
        assert answer.get("status") == 404, answer
        assert json.loads(answer["body"])["code"] == "NOT_FOUND"


def _raw(stored, request):
    """One request over a socket, byte by byte; gives the status and the body."""
    host, _, port = stored.server.url.removeprefix("http://").rpartition(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(request)
        answer = b""
        while chunk := connection.recv(65536):
            answer += chunk
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), head.decode("latin-1").lower(), body


@pytest.mark.parametrize("scheme", ["Api-Key", "Bearer"])
@pytest.mark.parametrize("origin", ["http://api.localhost:8000", ""], ids=["absolute", "origin"])
def test_an_absolute_target_and_any_content_type_are_taken(stored, scheme, origin):
    body = b'{"end_epoch_millis": null, "start_epoch_millis": null}'
    request = (
        f"POST {origin}/v1/training_projects/{PROJECT}/jobs/{DONE}/metrics HTTP/1.1\r\n"
        f"Host: api.localhost:8000\r\nAuthorization: {scheme} {stored.keys['own']}\r\nConnection: close\r\n"
        f"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    status, head, answer = _raw(stored, request.encode() + body)
    assert status == 200
    assert "content-type: application/json" in head
    assert "x-request-id: " in head
    start_ms, end_ms = stored.now_ms - DAY - HOUR, stored.now_ms - DAY + 1
    _check(json.loads(answer), stored.job(DONE), start_ms, end_ms, _default_step(start_ms, end_ms))


# The command.
def _environment(stored):
    """`truss` finds the server as its proxy: the address that it believes to talk to is never resolved."""
    own = {name: value for name, value in os.environ.items() if name.lower() not in {"no_proxy", "all_proxy"}}
    file = stored.home / "trussrc"
    if not file.exists():
        file.write_text(
            "[jobmeter]\nremote_provider = baseten\nremote_url = http://localhost:8000\n"
            f"api_key = {stored.keys['own']}\n"
        )
    return {
        **own,
        "http_proxy": stored.server.url,
        "HTTP_PROXY": stored.server.url,
        "USER_TRUSSRC_PATH": str(file),
        "HOME": str(stored.home),
        "TRUSS_NO_UPDATE_CHECK": "1",
        "TZ": "UTC",
        "LINES": "120",
        "COLUMNS": "200",
    }


COMMANDS = {
    "metrics by project": ["metrics", "--project-id", PROJECT, "--job-id", DONE],
    "view": ["view"],
    "view job": ["view", "--job-id", DONE],
    "view project": ["view", "--project", PROJECT],
    "checkpoints": ["checkpoints", "list", "--job-id", DONE],
    "checkpoints as json": ["checkpoints", "list", "--job-id", DONE, "-o", "json"],
    "no checkpoints": ["checkpoints", "list", "--job-id", RUNNING],
    "update": ["update", "--job-id", WAITING, "--priority", "9"],
    "logs": ["logs", "--job-id", DONE],
    "stop": ["stop", "--job-id", TO_STOP],
    "unknown job": ["metrics", "--job-id", "nothing"],
}


def _need_truss():
    if not TRUSS.exists():
        pytest.skip("needs the environment .venvs/truss: make sdk")


@pytest.fixture(scope="module")
def truss(stored):
    """What each command printed, and its exit status."""
    _need_truss()
    bearer = {
        "BASETEN_TRUSS_AUTH_REMOTE_URL": "http://localhost:8000",
        "BASETEN_TRUSS_AUTH_API_KEY": stored.keys["own"],
        "USER_TRUSSRC_PATH": str(stored.home / "no-such-file"),
    }
    asks = [
        {"arguments": ["train", *arguments], "environment": bearer if name == "metrics by project" else {}}
        for name, arguments in COMMANDS.items()
    ]
    ran = subprocess.run(
        [TRUSS.with_name("python"), TRUSS_SCRIPT],
        env=_environment(stored),
        input="".join(json.dumps(ask) + "\n" for ask in asks),
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return {name: json.loads(line) for name, line in zip(COMMANDS, ran.stdout.splitlines(), strict=True)}


def _cells(printed):
    """The rows of the tables that were printed: their cells, one text each."""
    return {" ".join(part.split()) for line in printed.splitlines() for part in re.split("[│┃|]", line) if part.strip()}


def _size(size):
    for unit, name in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "KB")):
        if size > unit:
            return f"{int(size) / unit:.2f} {name}"
    return f"{int(size)} B"


def _last(points):
    return points[max(points)]


def _expected_cells(frame, start_ms, end_ms):
    """What should be printed of each node: the newest point of each series."""
    step_ms = _default_step(start_ms, end_ms)
    cells = []
    for replica in ("worker-0", "worker-1"):
        node = _node(frame, replica, start_ms, end_ms, step_ms)
        cells += [f"{_last(node['cpu_usage']):.2f} cores", _size(_last(node["cpu_memory_usage_bytes"]))]
        for rank in ("0", "1"):
            cells.append(f"{_last(node['gpu_utilization'][rank]) * 100:.1f}%")
            cells.append(_size(_last(node["gpu_memory_usage_bytes"][rank])))
        storage = node["ephemeral_storage"]
        cells += [_size(_last(storage["usage_bytes"])), f"{_last(storage['utilization']) * 100:.1f}%"]
    cache = _cache(frame, start_ms, end_ms, step_ms)
    cells += [_size(_last(cache["usage_bytes"])), f"{round(_last(cache['utilization']) * 100, 4)}%"]
    return cells


def _check_printed(stored, printed):
    found = _cells(printed)
    start_ms, end_ms = stored.now_ms - DAY - HOUR, stored.now_ms - DAY + 1
    for cell in _expected_cells(stored.job(DONE), start_ms, end_ms):
        assert cell in found
    for label in ("GPU 0 utilization", "GPU 1 memory", "Eph. storage utilization", "Cache storage"):
        assert label in found
    assert "Node: worker-0" in printed
    assert "Node: worker-1" in printed
    assert "Training job failed during deployment." in printed


def test_truss_prints_the_metrics_that_were_stored(stored):
    """The command as it is installed, with an `Api-Key`."""
    _need_truss()
    ran = subprocess.run(
        [TRUSS, "train", "metrics", "--job-id", DONE],
        env=_environment(stored),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    _check_printed(stored, ran.stdout)


def test_truss_prints_the_same_by_project_and_with_a_bearer(stored, truss):
    ran = truss["metrics by project"]
    assert ran["status"] == 0, ran["err"]
    _check_printed(stored, ran["out"])


def test_truss_shows_jobs_and_projects(truss):
    for name in ("view", "view job", "view project"):
        assert truss[name]["status"] == 0, truss[name]["err"]
    everything = _cells(truss["view"]["out"])
    assert {PROJECT, RUNNING, WAITING, "TRAINING_JOB_RUNNING"} <= everything
    assert DONE not in everything
    one = _cells(truss["view job"]["out"])
    assert {
        "tune a model",
        "TRAINING_JOB_DEPLOY_FAILED",
        "SYNCING",
        "H100:2x26x468 (2 GPUs)",
        "alice@example.com",
    } <= one
    assert "CUDA out of memory" in one
    assert "step-1" in truss["view job"]["out"]
    assert {DONE, RUNNING, WAITING, TO_STOP} <= _cells(truss["view project"]["out"])


def test_truss_lists_checkpoints_and_changes_a_pending_job(stored, truss):
    for name in ("checkpoints", "checkpoints as json", "no checkpoints", "update"):
        assert truss[name]["status"] == 0, truss[name]["err"]
    listed = json.loads(truss["checkpoints as json"]["out"])
    assert [(one["id"], one["base_model"]) for one in listed["checkpoints"]] == [
        ("step-2", ""),
        ("step-1", "gpt-oss"),
    ]
    assert {"step-1", "step-2", "2.00 MB"} <= _cells(truss["checkpoints"]["out"])
    assert "No checkpoints found" in truss["no checkpoints"]["out"]
    (found,) = _ask(stored, _of(WAITING, "get_training_projects_jobs_training_job_id"))
    assert found["training_job"]["priority"] in {7, 9}


def test_truss_prints_every_line_once_and_in_order(stored, truss):
    ran = truss["logs"]
    assert ran["status"] == 0, ran["err"]
    found = re.findall(r"\[(.*?)\]: \((worker-\d)\) (step \d+\.\d done)", ran["out"])
    assert found == [
        (
            datetime.fromtimestamp(line["time_ns"] // 10**9, tz=UTC).strftime("%Y-%m-%d %H:%M:%S"),
            line["replica"],
            line["text"],
        )
        for line in stored.lines
    ]


def test_truss_stops_a_job_and_says_what_is_not_there(stored, truss):
    assert truss["stop"]["status"] == 0, truss["stop"]["err"]
    assert "Training job stopped successfully." in truss["stop"]["out"]
    (found,) = _ask(stored, _of(TO_STOP, "get_training_projects_jobs_training_job_id"))
    assert found["training_job"]["current_status"] == "TRAINING_JOB_STOPPED"
    assert truss["unknown job"]["status"] == 2
    assert "No jobs found." in truss["unknown job"]["err"]


def test_truss_follows_a_running_job(stored):
    """On a terminal, until the first picture is whole: the next would come after 30 seconds."""
    _need_truss()
    ours, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 120, 200, 0, 0))
    process = subprocess.Popen(
        [TRUSS, "train", "metrics", "--job-id", RUNNING],
        env={**_environment(stored), "TERM": "xterm"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    seen, latest = "", time.monotonic() + 120
    try:
        while "Cache storage" not in seen and time.monotonic() < latest:
            if select.select([ours], [], [], 1.0)[0]:
                seen += os.read(ours, 65536).decode(errors="replace")
        process.send_signal(signal.SIGINT)
        while select.select([ours], [], [], 30.0)[0]:
            try:
                seen += os.read(ours, 65536).decode(errors="replace")
            except OSError:
                break
    finally:
        process.kill()
        process.wait(30)
        os.close(ours)
    assert "Node: worker-0" in seen
    assert "Node: worker-1" in seen
    assert "Last Updated" in seen
    assert "GPU 1 utilization" in seen
    assert "Exiting training job metrics." in seen
