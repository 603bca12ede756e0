"""Jobs, checkpoints, logs and errors in the vendor's own SDK, with only the address changed."""

import json
from datetime import UTC, datetime

import pytest

from tests.e2e.baseten import (
    DAY,
    DONE,
    HOUR,
    PROJECT,
    RUNNING,
    TO_DELETE,
    TO_STOP,
    WAITING,
    ask,
    metrics_of,
    of_job,
    storing,
)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    with storing(tmp_path_factory.mktemp("baseten")) as made:
        yield made


def test_jobs_and_projects_are_what_was_recorded(stored):
    projects, listed, found, one, checkpoints, codes, empty = ask(
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
        of_job(DONE, "get_training_projects_jobs_training_job_id", **{"async": True}),
        of_job(RUNNING, "get_training_projects_jobs_checkpoints"),
        of_job(DONE, "get_training_projects_jobs_auth_codes"),
        metrics_of(DONE, by_get=False, start_epoch_millis=stored.now_ms - DAY, end_epoch_millis=stored.now_ms - DAY),
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
    listed, first, second = ask(
        stored,
        of_job(DONE, "get_training_projects_jobs_checkpoints"),
        of_job(DONE, "get_training_projects_jobs_checkpoint_files", params={"page_size": 4}),
        of_job(DONE, "get_training_projects_jobs_checkpoint_files", params={"page_size": 4, "page_token": 4}),
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
    changed, unchanged, running_one, deleted, gone = ask(
        stored,
        of_job(WAITING, "patch_training_projects_jobs", request={"priority": 7}),
        of_job(WAITING, "patch_training_projects_jobs", request={}),
        of_job(RUNNING, "patch_training_projects_jobs", request={"priority": 7}),
        {**of_job(TO_DELETE, "delete_training_projects_jobs"), "key": stored.keys["admin"]},
        of_job(TO_DELETE, "get_training_projects_jobs_training_job_id"),
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
    latest, newest, oldest, debug, warnings, by_get, now = ask(
        stored,
        of_job(DONE, "post_training_projects_jobs_logs", request={"end_epoch_millis": end_ms - HOUR + 600_000}),
        of_job(DONE, "post_training_projects_jobs_logs", request=whole),
        of_job(DONE, "post_training_projects_jobs_logs", request={**whole, "limit": 7, "direction": "asc"}),
        of_job(DONE, "post_training_projects_jobs_logs", request={**whole, "limit": 1000, "min_level": "DEBUG"}),
        of_job(DONE, "post_training_projects_jobs_logs", request={**whole, "limit": 1000, "min_level": "WARNING"}),
        of_job(DONE, "get_training_projects_jobs_logs", params={**whole, "limit": 3, "min_level": "ERROR"}),
        of_job(DONE, "get_training_projects_jobs_logs"),
    )
    half_hour = _within(stored.lines, end_ms - HOUR - 1_200_000, end_ms - HOUR + 600_000)
    assert latest["logs"] == [_log(line) for line in half_hour[::-1][:500]]
    assert newest["logs"] == [_log(line) for line in stored.lines[::-1][:500]]
    assert oldest["logs"] == [_log(line) for line in stored.lines[:7]]
    leveled = [line for line in stored.lines if "level" in line]
    assert debug["logs"] == [_log(line) for line in leveled[::-1][:1000]]
    assert warnings["logs"] == [_log(line) for line in leveled[::-1] if line["level"] in {"warning", "error"}]
    assert by_get["logs"] == [_log(line) for line in leveled[::-1] if line["level"] == "error"][:3]
    assert now["logs"] == []


def test_refusals_are_the_vendors_own(stored):
    stop = of_job(DONE, "post_training_projects_jobs_stop", request={})
    wrong = {"training_project_id": "another", "training_job_id": DONE}
    path = {"training_project_id": PROJECT}
    summary = {"call": "get_training_projects_cache_summary", "path": path}
    cases = [
        (404, "NOT_FOUND", metrics_of("nothing")),
        (404, "NOT_FOUND", {**metrics_of(DONE), "path": wrong}),
        (
            404,
            "NOT_FOUND",
            {"call": "get_training_projects_training_project_id", "path": {"training_project_id": "another"}},
        ),
        (400, "VALIDATION_ERROR", metrics_of(DONE, step_seconds=0)),
        (400, "VALIDATION_ERROR", metrics_of(DONE, start_epoch_millis=2000, end_epoch_millis=1000)),
        (400, "VALIDATION_ERROR", {"call": "post_training_projects", "request": {"training_project": {"name": "new"}}}),
        (409, "CONFLICT", stop),
        (403, "PERMISSION_DENIED", of_job(DONE, "delete_training_projects_jobs")),
        (404, "NOT_FOUND", of_job(DONE, "post_training_projects_jobs_recreate")),
    ]
    for (code, name, _), answer in zip(cases, ask(stored, *(question for _, _, question in cases)), strict=True):
        assert (answer.get("error"), answer.get("status")) == ("ResponseError", code), answer
        assert json.loads(answer["body"])["code"] == name
    read_only, wrong_key, no_key, first, again = ask(
        stored,
        {**of_job(RUNNING, "post_training_projects_jobs_stop", request={}), "key": stored.keys["reader"]},
        {**metrics_of(DONE), "key": "jm_wrong"},
        {**metrics_of(DONE), "key": ""},
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
            of_job(DONE, call, **more)
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
    projects, everything, named, *refused = ask(stored, *asks, key="other")
    assert [one["id"] for one in projects["training_projects"]] == ["x"]
    assert everything["training_jobs"] == named["training_jobs"] == []
    for answer in refused:
        assert answer.get("status") == 404, answer
        assert json.loads(answer["body"])["code"] == "NOT_FOUND"
