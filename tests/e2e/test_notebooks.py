"""Runs the example notebooks cell by cell like Jupyter, on a server with a month of jobs."""

import ast
import json
import random
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pandas as pd
import pytest

from jobmeter.model.time import DAY, MINUTE, SystemClock
from tests.support.frames import FRAMES, records, samples

NOTEBOOKS = Path(__file__).parents[2] / "examples" / "notebooks"
USERS = ("lin", "maria", "sofie")
RANKS, SLOW = 16, 11
STEP = 20_000


def month(now):
    """Store jobs of the last two weeks. The newest two run the same program, the second with a slow rank."""
    chance = random.Random(5)
    for number in range(24):
        # The server would refuse samples older than the retention of raw samples.
        start = now - 13 * DAY + number * DAY // 2 + chance.randrange(DAY // 4)
        about = {"name": "eval", "user": USERS[number % 3], "state": "Succeeded" if number % 4 else "Failed"}
        yield {"job_id": f"eval-{number}", "start": start, "end": start + (20 + number) * MINUTE, **about}, 1, -1
    for name, start, slow in (("train-1", now - 5 * 60 * MINUTE, -1), ("train-2", now - 60 * MINUTE, SLOW)):
        about = {"name": "train", "user": "lin", "state": "Succeeded"}
        yield {"job_id": name, "start": start, "end": start + 30 * MINUTE, **about}, RANKS, slow


def series(job, ranks, slow):
    chance = random.Random(job["job_id"])
    times = range(job["start"], job["end"], STEP)
    for rank in range(ranks):
        place = {"job": job["job_id"], "replica": f"worker-{rank}", "node": f"node-{rank // 8}"}
        gpu = {"metric": "gpu.utilization", **place, "device": f"gpu{rank % 8}"}
        level = 0.5 if rank == slow else 0.9
        yield gpu, [(time, min(1.0, level + chance.gauss(0, 0.02))) for time in times]
        yield {"metric": "memory.usage", **place}, [(time, 2.0**33) for time in times]


@pytest.fixture(scope="module")
def jobs(reach):
    api, _ = reach
    made = list(month(SystemClock().now_ms() // STEP * STEP))
    body = records({"jobs": [{**job, "created": job["start"]} for job, _, _ in made]})
    body += samples([one for entry in made for one in series(*entry)])
    api.transport.request("POST", "/api/jobmeter/v1/ingest", body, {"Content-Type": FRAMES})
    lines = [
        {"text": f"step {at}", "time": made[-1][0]["start"] + at * 1000, "replica": "worker-0"} for at in range(30)
    ]
    api.transport.request("POST", "/api/jobmeter/v1/jobs/train-2/logs", json.dumps({"lines": lines}).encode())
    return [(job, ranks) for job, ranks, _ in made]


def shown(value):
    if value is None:
        return ""
    html = getattr(value, "_repr_html_", None)
    return (html() if html else None) or repr(value)


@pytest.fixture
def execute(reach, jobs, monkeypatch):
    """Execute a notebook. Return the output of each code cell, and the namespace."""
    api, token = reach
    monkeypatch.setenv("JOBMETER_SERVER", api.transport.server)
    monkeypatch.setenv("JOBMETER_KEY", token)
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    def run(name):
        notebook = json.loads((NOTEBOOKS / f"{name}.ipynb").read_text())
        namespace: dict[str, Any] = {}
        outputs = []
        for at, cell in enumerate(notebook["cells"]):
            if cell["cell_type"] != "code":
                continue
            source = "".join(cell["source"])
            tree = ast.parse(source)
            value = None
            if isinstance(last := tree.body[-1], ast.Expr):
                tree.body.pop()
            exec(compile(tree, f"{name}[{at}]", "exec"), namespace)
            if isinstance(last, ast.Expr):
                value = eval(compile(ast.Expression(last.value), f"{name}[{at}]", "eval"), namespace)
            outputs.append("" if source.rstrip().endswith(";") else shown(value))
        return outputs, namespace

    yield run
    plt.close("all")


def test_a_first_look(execute):
    outputs, names = execute("first-look")
    listed, job, _findings, usage, plot, described, timeline, log = outputs
    assert "train-2" in listed
    assert "eval-0<" not in listed, "older than a week"
    assert "gpu.utilization" in job
    assert "median of 16 lines" in usage
    assert plot == ""
    assert "memory.usage" in described
    assert timeline.startswith("<div>")
    assert log.endswith("'step 29']")
    assert names["job"].id == "train-2"


def test_why_was_my_run_slow(execute):
    outputs, names = execute("why-was-my-run-slow")
    assert [job.id for job in names["earlier"]] == ["train-1"]
    assert outputs[-3] == repr([(f"worker-{SLOW}", "node-1", "gpu3")])
    assert f"worker-{SLOW}" in outputs[3], "a rule names the rank too"
    assert "gpu.utilization" in outputs[1]
    frame = names["comparison"].to_pandas()
    assert set(frame["job"]) == {"train-1", "train-2"}
    assert "coverage" in repr(names["slow"].quality())


def test_a_month_of_a_team(execute, jobs):
    outputs, names = execute("a-month-of-a-team")
    lengths = pd.DataFrame(
        [{"user": job["user"], "hours": ranks * (job["end"] - job["start"]) / 3_600_000} for job, ranks in jobs]
    )
    expected = lengths.groupby("user")["hours"].sum()
    team = names["team"]
    pd.testing.assert_series_equal(team["hours"].sort_index(), expected, check_exact=False)
    assert ((team["busy share"] > 0.8) & (team["busy share"] < 0.95)).all()
    assert "Failed" in outputs[0]
    assert names["rows"]["hours"].sum() == pytest.approx(expected.sum())


def test_every_notebook_is_executed_here_and_has_no_stored_output():
    assert {path.stem for path in NOTEBOOKS.glob("*.ipynb")} == {
        "first-look", "why-was-my-run-slow", "a-month-of-a-team",
    }  # fmt: skip
    for path in NOTEBOOKS.glob("*.ipynb"):
        cells = json.loads(path.read_text())["cells"]
        assert cells[0]["cell_type"] == "markdown"
        assert not any(cell.get("outputs") for cell in cells)
