"""Tests of MLflow's own client against a real server, configured by its environment variables alone."""

import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from jobmeter.errors import InvalidRequestError
from jobmeter.wire.mlflow.filters import parse, parse_order, sort
from jobmeter.wire.mlflow.runs import Run
from jobmeter.wire.mlflow.values import LoggedPoint
from tests.support.judges import print_count
from tests.support.processes import ServerProcess, running

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venvs" / "mlflow" / "bin" / "python"
SDK = Path(__file__).parent / "sdk"
QUIET = {"GIT_PYTHON_REFRESH": "quiet", "MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true"}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PYTHON.exists(), reason="the environment of the SDK is not built: make sdk"),
]


def environment(server: ServerProcess, **more: str) -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith(("MLFLOW_", "JOBMETER_"))}
    return {**own, **QUIET, "MLFLOW_TRACKING_URI": server.url, "MLFLOW_TRACKING_TOKEN": server.token, **more}


def train(server: ServerProcess, verb: str, *words: str, **more: str) -> Any:
    ran = subprocess.run(
        [PYTHON, SDK / "mlflow_train.py", verb, *words],
        env=environment(server, **more),
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return json.loads(ran.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with running(tmp_path_factory.mktemp("mlflow") / "data") as made:
        yield made


def test_what_the_client_logs_it_reads_back(server):
    found = train(server, "everything")
    run = found["run"]
    assert (run["info"]["run_name"], run["info"]["status"]) == ("renamed", "FINISHED")
    assert run["params"] == {"lr": "0.1", "net/depth": "50"}
    assert run["tags"]["team"] == "vision"
    assert run["metrics"]["loss"] == 1 / 20
    assert [name for name in run["metrics"] if name.startswith("system/")]
    assert found["histories"]["loss"] == [[step, repr(1 / step)] for step in range(1, 21)]
    assert found["histories"]["odd"] == [[0, "nan"], [1, "inf"], [2, "-inf"]]
    assert {key: found["histories"][key] for key in ("val/top 1", "é:x", "a.b-c_d", "step")} == {
        "val/top 1": [[20, "0.5"]],
        "é:x": [[20, "-2.0"]],
        "a.b-c_d": [[20, "3.0"]],
        "step": [[20, "4.0"]],
    }
    assert found["experiment"] == found["by_name"]
    assert found["experiment"]["name"] == "vision/été 1"
    assert found["pages"] == ["renamed", "inner"]
    assert found["running"] == []
    assert found["deleted"] is True
    refused = found["refused"]
    assert refused["param"][0] == refused["filter"][0] == "INVALID_PARAMETER_VALUE"
    assert "not allowed" in refused["param"][1]
    assert refused["run"][0] == "RESOURCE_DOES_NOT_EXIST"
    assert "stores no artifacts" in refused["file"]
    job = server.transport().request("GET", f"/api/jobmeter/v1/jobs/{run['info']['run_id']}").body
    assert json.loads(job)["job"]["state"] == "Succeeded"


def test_a_name_and_a_password_do(server):
    pair = {"MLFLOW_TRACKING_USERNAME": "lin", "MLFLOW_TRACKING_PASSWORD": server.token, "MLFLOW_TRACKING_TOKEN": ""}
    assert train(server, "values", train(server, "everything")["inner"], **pair)["status"] == "FINISHED"


def test_runs_of_every_replica_join_their_job(server, tmp_path):
    own = {name: value for name, value in environment(server).items() if not name.startswith("MLFLOW_TRACKING")}
    command = [sys.executable, "-m", "jobmeter", "run", "--job-id", "train-7", "--replicas", "2", "--quiet", "--"]
    ran = subprocess.run(
        [*command, PYTHON, SDK / "mlflow_train.py", "joined"],
        env={**own, "JOBMETER_SERVER": server.url, "JOBMETER_KEY": server.token, "JOBMETER_DATA": str(tmp_path / "d")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    runs = re.findall(r'^"(train-2D7--\w+)"$', ran.stdout, re.MULTILINE)
    assert len(set(runs)) == 2
    for run in runs:
        assert train(server, "values", run) == {"status": "FINISHED", "loss": [[0, 0.0], [1, 1.0], [2, 2.0]]}
        assert (tmp_path / "mlruns" / "0" / run / "artifacts" / "a.txt").read_text() == "text"
    answer = server.transport().request("GET", "/api/jobmeter/v1/jobs/train-7/metrics?metric=app.loss&step=1d").body
    assert sorted(line["replica"] for line in json.loads(answer)["lines"]) == ["worker-0", "worker-1"]


def test_a_kill_of_the_server_stops_no_training_and_loses_no_acknowledged_value(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with running(tmp_path / "data", "--port", str(port)) as server:
        training = subprocess.Popen(
            [PYTHON, SDK / "mlflow_train.py", "steps", "60"],
            env=environment(server),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert training.stdout is not None
        run = training.stdout.readline().strip()
        assert run
        for _ in range(20):
            training.stdout.readline()
        server.process.send_signal(signal.SIGKILL)
        server.process.wait()
        server.start()
        output, errors = training.communicate(timeout=200)
        assert training.returncode == 0, errors
        assert "59" in output.split()
        found = train(server, "values", run)
    assert found == {"status": "FINISHED", "loss": [[step, step / 7] for step in range(60)]}


def measured(server: ServerProcess, folder: Path, job: str, *command: str | Path) -> "subprocess.Popen[str]":
    """Start a command under ``jobmeter run``, whose server may be away."""
    own = {name: value for name, value in environment(server).items() if not name.startswith("MLFLOW_TRACKING")}
    places = {"JOBMETER_SERVER": server.url, "JOBMETER_KEY": server.token, "JOBMETER_DATA": str(folder / "d")}
    return subprocess.Popen(
        [sys.executable, "-m", "jobmeter", "run", "--job-id", job, "--quiet", "--", *command],
        env={**own, **places},
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def kill(server: ServerProcess) -> None:
    server.process.send_signal(signal.SIGKILL)
    server.process.wait()


def test_a_training_under_run_needs_no_server_and_every_value_arrives_once(tmp_path):
    chance = random.Random()
    steps = 60
    moments = sorted(chance.sample(range(steps), 3))
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with running(tmp_path / "data", "--port", str(port)) as server:
        training = measured(server, tmp_path, "train-7", PYTHON, SDK / "mlflow_train.py", "outages", str(steps))
        assert training.stdout is not None
        away, last = False, ""
        for line in training.stdout:
            if line.strip() == str(moments[0]):
                moments = moments[1:] or [-1]
                if away:
                    server.start()
                else:
                    kill(server)
                away = not away
            last = line if line.startswith("[") else ""
        errors = training.communicate(timeout=200)[1]
        assert training.returncode == 0, errors
        run, inner = json.loads(last)
        assert "not delivered" in errors, moments
        server.start()
        flushed = measured(server, tmp_path, "train-8", "true")
        assert flushed.communicate(timeout=200)[1] == ""
        record = json.loads(server.transport().request("GET", "/api/jobmeter/v1/jobs/train-7").body)["job"]
        stored = {one: record["extra"]["mlflow"]["runs"][one] for one in (run, inner)}
        assert (stored[run]["params"], stored[run]["tags"]["again"]) == ({"lr": "0.1"}, "yes")
        assert {one["status"] for one in stored.values()} == {"FINISHED"}
        assert record["state"] == "Succeeded"
        loss = [[step, step / 7] for step in range(steps)] + [[steps, -1.0]]
        assert history(server, run, "loss") == loss
        assert history(server, run, "forked") == [[0, 2.0]]
        assert history(server, inner, "loss") == [[0, 1.0]]
        system = history(server, run, "system/cpu_utilization_percentage")
        assert [step for step, _ in system] == list(range(len(system)))
        assert system


def history(server: ServerProcess, run: str, key: str) -> list[list[float]]:
    query = urlencode({"run_id": run, "metric_key": key})
    found = server.transport().request("GET", f"/api/2.0/mlflow/metrics/get-history?{query}").body
    return [[one["step"], one["value"]] for one in json.loads(found)["metrics"]]


# filters and orders, beside MLflow's own

COLUMNS = ["metrics.loss", "metrics.`val/top 1`", 'params."a b"', "params.lr", "tags.team", "attributes.status"]
COLUMNS += ["run_id", "user_id", "start_time", "attributes.end_time", "tags.mlflow.runName"]
TEXTS = ["adam", "Adam", "ad%", "%A_", "", "x y", "%", "FINISHED", "RUNNING", "r1", "r2"]
NUMBERS = ["0", "1", "-1.5", "2e0", "0.25"]
COMPARATORS = ["=", "!=", "<", "<=", ">", ">=", "LIKE", "ILIKE", "like", "IS NULL", "is not null", "IN", "NOT IN"]


def condition(chance: random.Random) -> str:
    column, comparator = chance.choice(COLUMNS), chance.choice(COMPARATORS)
    if "null" in comparator.lower():
        return f"{column} {comparator}"
    if comparator.endswith("IN"):
        return f"{column} {comparator} ({', '.join(repr(text) for text in chance.sample(TEXTS, 2))})"
    value = chance.choice(NUMBERS) if chance.random() < 0.5 else repr(chance.choice(TEXTS))
    space = chance.choice(["", " "]) if comparator[0] in "<>=!" else " "
    return f"{column}{space}{comparator}{space}{value}"


def case_of(chance: random.Random) -> dict[str, Any]:
    def some(keys: list[str], values: list[Any]) -> dict[str, Any]:
        return {key: chance.choice(values) for key in keys if chance.random() < 0.6}

    runs = [
        {
            "id": f"r{at}",
            "user": chance.choice(TEXTS),
            "status": chance.choice(["RUNNING", "FINISHED", "FAILED"]),
            "start": chance.randrange(4),
            "end": chance.choice([None, 1, 2, 3]),
            "metrics": some(["loss", "val/top 1"], [0.0, 1.0, -1.5, 2.0, 0.25, 7.0]),
            "params": some(["a b", "lr"], TEXTS),
            "tags": some(["team", "mlflow.runName"], TEXTS),
        }
        for at in range(chance.randrange(6))
    ]
    joint = chance.choice([" AND ", " and "])
    directions = ["", " ASC", " DESC", " desc"]
    order = [chance.choice(COLUMNS) + chance.choice(directions) for _ in range(chance.randrange(3))]
    return {"runs": runs, "filter": joint.join(condition(chance) for _ in range(chance.randrange(3))), "order": order}


def ours(case: dict[str, Any]) -> list[str] | None:
    runs, metrics = [], {}
    for one in case["runs"]:
        fields = {name: one[name] for name in ("id", "user", "status", "start", "end", "params", "tags")}
        runs.append(Run(experiment="0", **fields))
        metrics[one["id"]] = {key: LoggedPoint(key, 1, 1, value) for key, value in one["metrics"].items()}
    try:
        clauses, orders = parse(case["filter"]), parse_order(case["order"])
    except InvalidRequestError:
        return None
    found = [run for run in runs if all(clause.fits(run, metrics[run.id]) for clause in clauses)]
    return [run.id for run in sort(found, orders, metrics)]


def test_random_searches_find_what_mlflow_finds():
    chance = random.Random(7)
    cases = [case_of(chance) for _ in range(3000)]
    ran = subprocess.run(
        [PYTHON, SDK / "mlflow_search.py"],
        input=json.dumps(cases),
        env={**os.environ, **QUIET},
        capture_output=True,
        text=True,
        timeout=200,
        check=True,
    )
    theirs = json.loads(ran.stdout)
    different = [(case, want, ours(case)) for case, want in zip(cases, theirs, strict=True) if ours(case) != want]
    assert len([want for want in theirs if want]) > 300
    assert len([want for want in theirs if want is None]) > 300
    print_count("searches of MLflow", len(cases) - len(different), len(cases))
    assert different == []


def test_the_page_for_users_of_mlflow_works_as_it_is_written(tmp_path):
    text = (ROOT / "docs/how-to/mlflow.md").read_text(encoding="utf-8")
    script = "".join(re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))
    with socket.create_server(("127.0.0.1", 0)) as probe:
        script = script.replace("8417", str(probe.getsockname()[1]))
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "jobmeter").symlink_to(Path(sys.executable).parent / "jobmeter")
    own = {name: value for name, value in os.environ.items() if not name.startswith(("MLFLOW_", "JOBMETER_", "XDG_"))}
    path = f"{tmp_path / 'bin'}{os.pathsep}{PYTHON.parent}{os.pathsep}{own['PATH']}"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", f"trap 'kill $(jobs -p)' EXIT\n{script}"],
        cwd=tmp_path,
        env={**own, **QUIET, "HOME": str(tmp_path), "PATH": path, "TERM": "dumb"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^\w{32} +first +MLflow +Succeeded ", done.stdout, re.MULTILINE)
    assert "[('first', {'loss': 0.1})]" in done.stdout
    assert "app.loss of train-7" in done.stdout
    assert (tmp_path / "server.log").exists()
