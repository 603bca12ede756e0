"""Tests of ``jobmeter import`` against a server that records its requests."""

import json
import re
import threading
from typing import Any

import pytest
from click.testing import CliRunner

from jobmeter.cli.loading import send
from jobmeter.cli.main import cli
from jobmeter.wire.native.decode import decode

HEADER = "job_id,replica,metric,time,value\n"


def line(n, value=0.5):
    return f"j{n % 3},worker-0,gpu.utilization,{1_790_000_000_000 + n},{value}\n"


@pytest.fixture
def taken(server):
    """Return the received samples as (series, time, value), and the job ids of the records."""
    found: list[tuple[Any, ...]] = []
    lock = threading.Lock()

    def take(asked):
        body = decode(asked.body)
        samples = [
            (batch.series[index].job, time, value)
            for batch in body.batches
            for index, time, value in zip(batch.index.tolist(), batch.time.tolist(), batch.value.tolist(), strict=True)
        ]
        jobs = [(job.job_id, job.project) for records in body.records for job in records.jobs]
        with lock:
            found.extend([*samples, *jobs])
        return 200, {"accepted": len(samples), "records": len(jobs), "rejected": {}}, {}

    server.on("/ingest", take, "POST")
    return found


def test_rows_arrive_and_are_reported(server, taken, run, tmp_path):
    file = tmp_path / "a.csv"
    file.write_text(HEADER + "".join(line(n) for n in range(1000)))
    result = run("import", str(file), "--batch-rows", "300")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("imported 1,000 rows of 3 jobs in ")
    assert sorted(taken, key=lambda row: row[1]) == [(f"j{n % 3}", 1_790_000_000_000 + n, 0.5) for n in range(1000)]
    assert len(server.asked) == 4
    assert {asked.headers["content-type"] for asked in server.asked} == {"application/vnd.jobmeter.frames"}


def test_several_files_records_and_a_project(taken, run, tmp_path):
    (tmp_path / "a.csv").write_text(HEADER + line(0))
    (tmp_path / "b.jsonl").write_text('{"job_id": "k"}\n{"job_id": "l", "project": "own"}\n')
    result = run("import", str(tmp_path / "a.csv"), str(tmp_path / "b.jsonl"), "--project", "p", "--json")
    shown = json.loads(result.stdout)
    assert (shown["rows"], shown["accepted"], shown["records"], shown["jobs"]) == (1, 1, 2, 3)
    # Two requests are always in transit, and their order of arrival is undefined.
    assert sorted(one[:2] for one in taken if len(one) == 2) == [("k", "p"), ("l", "own")]
    assert [one[0] for one in taken if len(one) == 3] == ["j0"]


def test_an_import_of_records_without_samples_reports_records_a_second(taken, run, tmp_path):
    (tmp_path / "jobs.jsonl").write_text('{"job_id": "k"}\n{"job_id": "l"}\n')
    shown = run("import", str(tmp_path / "jobs.jsonl")).stdout
    assert re.fullmatch(r"imported 2 job records of 2 jobs in \w+ \([\d,]+ records/s\)\n", shown), shown


def test_standard_input(taken, run):
    assert run("import", "-", "--format", "csv", input=HEADER + line(0)).exit_code == 0
    assert len(taken) == 1


def test_a_bad_row_stops_the_import_before_its_block_is_sent(taken, run, tmp_path):
    file = tmp_path / "a.csv"
    file.write_text(HEADER + line(0) + line(1, "lots") + line(2))
    result = run("import", str(file))
    assert f"{file}, line 3, column value" in str(result.exception)
    assert "(0 rows imported before)" in str(result.exception)
    assert taken == []


def test_bad_rows_can_be_skipped(taken, run, tmp_path):
    file = tmp_path / "a.csv"
    file.write_text(HEADER + line(0) + line(1, "lots") + line(2).replace("j2", "/"))
    result = run("import", str(file), "--skip-bad")
    assert "imported 1 row of 1 job" in result.stdout
    assert "skipped 2 bad rows" in result.stdout
    assert len(taken) == 1


def test_a_dry_run_sends_nothing_and_needs_no_server(tmp_path):
    file = tmp_path / "a.csv"
    file.write_text(HEADER + line(0) + line(500))
    result = CliRunner().invoke(cli, ["import", str(file), "--dry-run", "--server", "http://127.0.0.1:9"])
    assert result.exit_code == 0, result.output
    assert "would import 2 rows of 2 jobs, from 2026-09-21 14:13:20" in result.stdout


def test_what_the_server_rejects_is_counted_and_explained(server, run, tmp_path):
    server.on("/ingest", {"accepted": 1, "records": 0, "rejected": {"expired": 2}}, "POST")
    file = tmp_path / "a.csv"
    file.write_text(HEADER + line(0) + line(1) + line(2))
    result = run("import", str(file))
    assert "imported 1 row" in result.stdout
    assert "rejected 2 rows: expired: older than the project's retention" in result.stdout
    assert "JOBMETER_RETENTION_RAW_DAYS" in result.stdout


def test_an_import_without_accepted_rows_is_a_failure(server, run, tmp_path):
    server.on("/ingest", {"accepted": 0, "records": 0, "rejected": {"future": 1}}, "POST")
    file = tmp_path / "a.csv"
    file.write_text(HEADER + line(0))
    result = run("import", str(file), "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["rejected"] == {"future": 1}


def test_a_refusal_for_the_unit_names_the_row(server, run, tmp_path):
    problem = {"error": {"code": "invalid_request", "message": "gpu.utilization 57.0 is outside of [0, 1.5]"}}
    server.on("/ingest", lambda asked: (400, problem, {}), "POST")
    file = tmp_path / "a.csv"
    file.write_text(HEADER + line(0) + line(1, 57.0) + line(2))
    result = run("import", str(file))
    assert f"{file}, line 3, column value: gpu.utilization 57.0 is outside" in str(result.exception)


def test_a_project_that_the_key_may_not_write_to_names_the_row(server, run, tmp_path):
    refusal = {"error": {"code": "forbidden", "message": "this key belongs to project a, not to b"}}
    server.on("/ingest", lambda asked: (403, refusal, {}), "POST")
    file = tmp_path / "a.csv"
    rows = "".join(f"{project},{line(n)}" for n, project in enumerate(["", "a", "a", "b", "b"]))
    file.write_text(f"project,{HEADER}{rows}")
    result = run("import", str(file))
    assert f"{file}, line 5, column project: this key belongs to project a, not to b" in str(result.exception)


def test_an_unknown_metric_names_the_row(server, run, tmp_path):
    problem = {"error": {"code": "invalid_request", "message": "metric 'gpu.spin' is unknown", "field": "metric"}}
    server.on("/ingest", lambda asked: (400, problem, {}), "POST")
    file = tmp_path / "a.csv"
    file.write_text(HEADER + line(0) + line(1).replace("utilization", "spin"))
    assert f"{file}, line 3, column metric: metric 'gpu.spin'" in str(run("import", str(file)).exception)


@pytest.mark.parametrize(("status", "code"), [(429, "throttled"), (503, "unavailable")])
def test_it_waits_when_the_server_requests_a_wait(server, run, tmp_path, monkeypatch, status, code):
    slept: list[float] = []
    monkeypatch.setattr("time.sleep", slept.append)
    answers = iter([status, status, 200])

    def take(asked):
        problem = {"error": {"code": code, "message": "full"}}
        status = next(answers)
        answer = problem if status != 200 else {"accepted": 1, "records": 0, "rejected": {}}
        return status, answer, {"Retry-After": "3"} if status == 429 else {}

    server.on("/ingest", take, "POST")
    file = tmp_path / "a.csv"
    file.write_text(HEADER + line(0))
    result = run("import", str(file))
    assert result.exit_code == 0, result.output
    assert slept == ([3.0, 3.0] if status == 429 else [1.0, 2.0])
    assert "full; trying again in" in result.stderr
    assert len({asked.body for asked in server.asked}) == 1


def test_it_gives_up_in_the_end(server, run, tmp_path, monkeypatch):
    monkeypatch.setattr(send, "PATIENCE_SECONDS", 0.0)
    server.on("/ingest", lambda asked: (503, {"error": {"code": "unavailable", "message": "disk full"}}, {}), "POST")
    (tmp_path / "a.csv").write_text(HEADER + line(0))
    assert "disk full" in str(run("import", str(tmp_path / "a.csv")).exception)


def test_missing_files_and_folders_are_reported(run, tmp_path):
    assert "no such file" in str(run("import", str(tmp_path / "none.csv")).exception)
    assert "is a folder" in str(run("import", str(tmp_path)).exception)
    assert run("import").exit_code == 2
