"""Tests of the import of offline files written by the package of Weights & Biases."""

import json
import os
import subprocess
from pathlib import Path

import pytest

PYTHON = Path(__file__).parents[2] / ".venvs" / "mlflow" / "bin" / "python"
SCRIPT = Path(__file__).parent / "sdk" / "wandb_train.py"
STEPS = 50

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PYTHON.exists(), reason="the environment of the SDK is not built: make sdk"),
]


def train(folder, end):
    own = {name: value for name, value in os.environ.items() if not name.startswith("WANDB_")}
    settings = {"WANDB_MODE": "offline", "WANDB_SILENT": "true", "WANDB_DIR": str(folder), "HOME": str(folder)}
    done = subprocess.run(
        [PYTHON, SCRIPT, str(STEPS), end],
        cwd=folder,
        env={**own, **settings},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (file,) = folder.glob("wandb/offline-run-*/run-*.wandb")
    assert file.stat().st_size > 3 * 32_768, "several blocks"
    return done.stdout.split()[0], file


@pytest.mark.parametrize(("end", "state", "code"), [("well", "Succeeded", 0), ("fail", "Failed", 3)])
def test_an_offline_run_becomes_a_job(reach, jobmeter, tmp_path, end, state, code):
    run, file = train(tmp_path, end)
    for _ in range(2):
        imported = json.loads(jobmeter("import", str(file), "--json").out)
        assert (imported["skipped"], imported["rejected"], imported["records"]) == (0, {}, 1)
        assert imported["rows"] == imported["accepted"] == STEPS * 5 - 1
    api, _ = reach
    job = json.loads(api.transport.request("GET", f"/api/jobmeter/v1/jobs/{run}").body)["job"]
    assert (job["name"], job["state"], job["exit_code"], job["labels"]) == (
        "first",
        state,
        code,
        {"experiment": "vision", "tags": "a,b"},
    )
    assert job["extra"]["wandb"] == {
        "config": {"lr": 0.1, "net": {"depth": 50}},
        "names": {"app.val_acc": "val/acc"},
    }
    path = f"/api/jobmeter/v1/jobs/{run}/metrics?metric=app.loss,app.net.norm,app.step&step=1d&statistic=count"
    lines = json.loads(api.transport.request("GET", path).body)["lines"]
    assert {line["metric"]: sum(value for _, value in line["points"]) for line in lines} == dict.fromkeys(
        ("app.loss", "app.net.norm", "app.step"), STEPS
    )
