"""Tests of the `truss` command against a real server, with nothing but the address changed."""

import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from datetime import UTC, datetime
from fcntl import ioctl
from pathlib import Path

import pytest

from tests.e2e.baseten import (
    DAY,
    DONE,
    HOUR,
    PROJECT,
    ROOT,
    RUNNING,
    TO_STOP,
    WAITING,
    ask,
    cache_metrics,
    default_step,
    node_metrics,
    of_job,
    storing,
)

pytestmark = pytest.mark.slow

TRUSS_SCRIPT = Path(__file__).parent / "sdk" / "truss_cli.py"
TRUSS = ROOT / ".venvs" / "truss" / "bin" / "truss"
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


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    with storing(tmp_path_factory.mktemp("baseten")) as made:
        yield made


def _environment(stored):
    """Return an environment in which `truss` uses the server as its proxy and never resolves its own host."""
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


def _need_truss():
    if not TRUSS.exists():
        pytest.skip("needs the environment .venvs/truss: make sdk")


@pytest.fixture(scope="module")
def truss(stored):
    """Return the output and the exit status of each command."""
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
    """Return the cells of the printed tables, as one text each."""
    return {" ".join(part.split()) for line in printed.splitlines() for part in re.split("[│┃|]", line) if part.strip()}


def _size(size):
    for unit, name in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "KB")):
        if size > unit:
            return f"{int(size) / unit:.2f} {name}"
    return f"{int(size)} B"


def _last(points):
    return points[max(points)]


def _expected_cells(frame, start_ms, end_ms):
    """Return the expected cells of each node, from the newest point of each series."""
    step_ms = default_step(start_ms, end_ms)
    cells = []
    for replica in ("worker-0", "worker-1"):
        node = node_metrics(frame, replica, start_ms, end_ms, step_ms)
        cells += [f"{_last(node['cpu_usage']):.2f} cores", _size(_last(node["cpu_memory_usage_bytes"]))]
        for rank in ("0", "1"):
            cells.append(f"{_last(node['gpu_utilization'][rank]) * 100:.1f}%")
            cells.append(_size(_last(node["gpu_memory_usage_bytes"][rank])))
        storage = node["ephemeral_storage"]
        cells += [_size(_last(storage["usage_bytes"])), f"{_last(storage['utilization']) * 100:.1f}%"]
    cache = cache_metrics(frame, start_ms, end_ms, step_ms)
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
    """Run the installed command with an `Api-Key`."""
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
    (found,) = ask(stored, of_job(WAITING, "get_training_projects_jobs_training_job_id"))
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
    (found,) = ask(stored, of_job(TO_STOP, "get_training_projects_jobs_training_job_id"))
    assert found["training_job"]["current_status"] == "TRAINING_JOB_STOPPED"
    assert truss["unknown job"]["status"] == 2
    assert "No jobs found." in truss["unknown job"]["err"]


def test_truss_follows_a_running_job(stored):
    """Read from a terminal until the first picture is complete; the next one would follow after 30 seconds."""
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
    output_text, latest = "", time.monotonic() + 120
    try:
        while "Cache storage" not in output_text and time.monotonic() < latest:
            if select.select([ours], [], [], 1.0)[0]:
                output_text += os.read(ours, 65536).decode(errors="replace")
        process.send_signal(signal.SIGINT)
        while select.select([ours], [], [], 30.0)[0]:
            try:
                output_text += os.read(ours, 65536).decode(errors="replace")
            except OSError:
                break
    finally:
        process.kill()
        process.wait(30)
        os.close(ours)
    assert "Node: worker-0" in output_text
    assert "Node: worker-1" in output_text
    assert "Last Updated" in output_text
    assert "GPU 1 utilization" in output_text
    assert "Exiting training job metrics." in output_text
