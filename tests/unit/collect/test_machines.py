"""Tests of recorded machines with jobs: the agent's output for each, see ``machines/record.py``."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.collect.machines.machine import Machine, load, observed, plant

MACHINES = Path(__file__).parent / "machines"
NAMES = sorted(path.stem for path in MACHINES.glob("*.json") if not path.stem.endswith(".expected"))


@pytest.fixture(params=NAMES)
def name(request):
    return request.param


@pytest.fixture
def machine(name) -> Machine:
    return load(MACHINES / f"{name}.json")


@pytest.fixture
def found(machine, tmp_path):
    plant(machine, tmp_path)
    return observed(tmp_path, "n1")


def test_the_agent_makes_of_it_what_it_made(name, machine, found):
    assert machine.about
    assert found == json.loads((MACHINES / f"{name}.expected.json").read_text())


def test_it_is_the_scheduler_s_answer_of_that_time(machine, found):
    """The scheduler's own names, replicas, attempts and limits decide, not an earlier output of the agent."""
    jobs: dict[str, list[Any]] = {}
    for one in found["jobs"]:
        jobs.setdefault(one["job_id"], []).append(one)
    assert jobs.keys() == machine.truth.keys()
    for job, said in machine.truth.items():
        replicas = [one for record in jobs[job] for one in record["replicas"]]
        assert sorted(one["name"] for one in replicas) == said["replicas"]
        assert {one.get("attempt", 0) for one in replicas} == {said.get("attempt", 0)}
        for field in {"name", "user"} & said.keys():
            assert {record[field] for record in jobs[job]} == {said[field]}
        for replica in said["replicas"]:
            values = found["samples"][f"{job} {replica} {said.get('attempt', 0)}"]
            assert values["memory.limit"] == said["memory"]
            assert 0 < values["memory.usage"] <= values["memory.peak"]
            assert values["process.count"] >= 1
            assert values["cpu.time"] > 0
