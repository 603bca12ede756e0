import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from jobmeter.collect.launch.plan import LaunchPlan, make_environments
from jobmeter.collect.launch.tracking import may_track

FOUND = {"MLFLOW_TRACKING_URI": "http://h:8400", "MLFLOW_TRACKING_TOKEN": "jmt_x"}


def plan(**fields):
    return LaunchPlan(job="train-7", name="j", kind="", command=["x"], user="lin", replicas=2, node="n1", **fields)


def test_each_replica_gets_its_tags():
    found = make_environments(plan(attempt=3), {"A": "b", **FOUND})
    assert [one["MLFLOW_TRACKING_TOKEN"] for one in found] == ["jmt_x"] * 2
    tags = [json.loads(one["MLFLOW_RUN_CONTEXT"]) for one in found]
    assert [one["jobmeter.replica"] for one in tags] == ["worker-0", "worker-1"]
    assert tags[0] == {
        "jobmeter.job": "train-7",
        "jobmeter.replica": "worker-0",
        "jobmeter.attempt": "3",
        "jobmeter.node": "n1",
    }


def test_without_a_server_for_runs_there_are_no_tags():
    assert not [name for one in make_environments(plan(), {}) for name in one if "MLFLOW" in name]


def test_the_users_own_tags_stay():
    (first, _) = make_environments(plan(), {"MLFLOW_TRACKING_URI": "http://x", "MLFLOW_RUN_CONTEXT": '{"a":"b"}'})
    assert first["MLFLOW_RUN_CONTEXT"] == '{"a":"b"}'


@pytest.mark.parametrize("name", ["MLFLOW_TRACKING_URI", "MLFLOW_TRACKING_TOKEN", "MLFLOW_TRACKING_PASSWORD"])
def test_a_users_choice_stays(name):
    assert not may_track({name: "x"}, "train-7")
    assert may_track({"A": "x"}, "train-7")


def test_a_job_whose_id_fits_into_no_run_id_is_not_tracked():
    assert not may_track({}, "-" * 128)


@pytest.mark.parametrize(
    ("environment", "tags"),
    [
        (
            {"JOBMETER_JOB_ID": "train-7", "JOBMETER_REPLICA": "worker-2", "JOBMETER_ATTEMPT": "1"},
            ("train-7", "worker-2", "1"),
        ),
        ({"JOBMETER_JOB_ID": "train-7", "RANK": "3"}, ("train-7", "worker-3", "0")),
        ({"SLURM_JOB_ID": "4711", "SLURM_PROCID": "5"}, ("4711", "worker-5", "0")),
        ({"JOBMETER_JOB_ID": "a/b"}, None),
        ({}, None),
    ],
    ids=["run", "rank", "slurm", "no-name", "nothing"],
)
def test_the_plug_in_gives_the_tags_that_the_agent_would_find(environment, tags):
    group, name = "mlflow.run_context_provider", "jobmeter"
    project = tomllib.loads((Path(__file__).parents[4] / "pyproject.toml").read_text())["project"]
    module, _, kind = project["entry-points"][group][name].partition(":")
    code = f"""import json, sys
from {module} import {kind}
assert not any(name.split(".")[0] == "mlflow" for name in sys.modules)
provider = {kind}()
print(json.dumps(provider.tags() if provider.in_context() else None))"""
    ours = ("JOBMETER_", "SLURM_", "RANK", "TORCHELASTIC_")
    own = {key: value for key, value in os.environ.items() if not key.startswith(ours)}
    done = subprocess.run(
        [sys.executable, "-c", code], env={**own, **environment}, capture_output=True, text=True, check=True
    )
    found = json.loads(done.stdout)
    if tags is None:
        assert found is None
        return
    assert tuple(found[f"jobmeter.{name}"] for name in ("job", "replica", "attempt")) == tags
    assert found["jobmeter.node"]
