"""Tests of ``squeue --json`` of Slurm 22.05 and 26.05, recorded from the same job by ``machines/record.py``."""

import json
from pathlib import Path
from typing import Any

import pytest

from jobmeter.collect.scheduler.slurm.controller import parse_jobs
from jobmeter.collect.scheduler.slurm.records import build_records
from jobmeter.collect.scheduler.slurm.slurm_job import SlurmExit, SlurmJob
from jobmeter.errors import UnavailableError
from jobmeter.model.job import JobState

RECORDED = Path(__file__).parents[2] / "recorded"
VERSIONS = ("22.05", "26.05")


def answer(version: str, **fields: Any) -> bytes:
    """Return the recorded answer of that version, with some fields of the job replaced."""
    document = json.loads((RECORDED / f"slurm-{version}-v2-squeue.json").read_text())
    document["jobs"][0].update(fields)
    return json.dumps(document).encode()


def job(version: str, **fields: Any) -> SlurmJob:
    (found,) = parse_jobs(answer(version, **fields))
    return found


@pytest.mark.parametrize("version", VERSIONS)
def test_a_running_job_has_the_same_facts_in_every_version(version: str) -> None:
    found = job(version)
    assert (found.number, found.label, found.name, found.user) == (1, "1", "wide", "root")
    assert (found.partition, found.tasks, found.cpus, found.memory) == ("main", 3, 3, 300 * 2**20)
    assert (found.time_limit, found.restarts, found.gpu_count, found.gpus) == (None, 0, None, {})
    assert (found.now.state, found.now.nodes, found.now.end, found.now.exit) == ("RUNNING", ("n1", "n2"), None, None)
    assert found.now.submit is not None
    assert found.now.start is not None
    assert 0 <= found.now.start - found.now.submit < 60
    (record,) = build_records(found, "c")
    assert (record.state, record.start) == (JobState.RUNNING, found.now.start * 1000)


def number(value: int) -> dict[str, Any]:
    """Return a number in Slurm's format since 23.02."""
    return {"set": True, "infinite": False, "number": value}


def ended(code: int, signal: int) -> dict[str, Any]:
    return {"status": ["ERROR"], "return_code": number(code), "signal": {"id": number(signal), "name": ""}}


@pytest.mark.parametrize(
    ("version", "fields", "exit", "error"),
    [
        ("22.05", {"job_state": "FAILED", "end_time": 1795417199, "exit_code": 3 << 8}, SlurmExit(3), "exit status 3"),
        (
            "22.05",
            {"job_state": "FAILED", "end_time": 1795417199, "exit_code": 11},
            SlurmExit(0, 11),
            "ended by signal 11",
        ),
        (
            "26.05",
            {"job_state": ["FAILED"], "end_time": number(1795417199), "exit_code": ended(3, 0)},
            SlurmExit(3),
            "exit status 3",
        ),
        (
            "26.05",
            {"job_state": ["FAILED"], "end_time": number(1795417199), "exit_code": ended(0, 11)},
            SlurmExit(0, 11),
            "ended by signal 11",
        ),
    ],
)
def test_an_end_has_its_exit_in_every_version(
    version: str,
    fields: dict[str, Any],
    exit: SlurmExit,  # noqa: A002
    error: str,
) -> None:
    found = job(version, **fields)
    assert (found.now.end, found.now.exit, found.over) == (1795417199, exit, True)
    (record,) = build_records(found, "c")
    assert (record.state, record.error, record.exit_code) == (JobState.FAILED, f"FAILED: {error}", exit.status)


def test_flags_beside_a_state_say_that_it_is_not_over() -> None:
    found = job("26.05", job_state=["FAILED", "COMPLETING"], end_time=number(1795417199))
    assert (found.now.state, found.over, found.now.end) == ("COMPLETING", False, None)
    found = job("26.05", job_state=["PENDING", "REQUEUE_HOLD"])
    assert (found.over, found.now.start) == (False, None)


def test_arrays_and_heterogeneous_jobs_are_labelled_as_slurm_shows_them() -> None:
    assert job("22.05", job_id=8, array_job_id=2, array_task_id=1).label == "2_1"
    assert job("26.05", job_id=8, array_job_id=number(2), array_task_id=number(0)).label == "2_0"
    waiting = {"array_job_id": number(2), "array_task_string": "3-5%2"}
    assert job("26.05", job_id=2, **waiting).label == "2_[3-5%2]"
    assert job("26.05", job_id=7, het_job_id=number(6), het_job_offset=number(1)).label == "6+1"


@pytest.mark.parametrize("version", VERSIONS)
def test_the_devices_of_each_node_are_read_where_slurm_names_them(version: str) -> None:
    details = ["gpu:h200:2(IDX:0-1)", "gpu:h200:1(IDX:3)"]
    found = job(version, gres_detail=details, tres_req_str="cpu=3,mem=300M,node=2,gres/gpu:h200=3")
    assert (found.gpus, found.gpu_count, found.gpu_type) == ({"n1": (0, 1), "n2": (3,)}, 3, "h200")


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"jobs": 1}', b'{"jobs": [], "errors": [{"error": "down"}]}'])
def test_what_is_no_answer_is_an_outage(body: bytes) -> None:
    with pytest.raises(UnavailableError):
        parse_jobs(body)
