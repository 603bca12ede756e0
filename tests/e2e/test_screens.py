"""Tests of listings in a real pseudo-terminal of two sizes, compared with stored screens.

``UPDATE_SCREENS=1`` rewrites the stored screens: check them before committing.
"""

import os
import re
import time
from pathlib import Path

import msgspec
import pytest

from jobmeter.model.time import HOUR, SystemClock
from tests.support.frames import FRAMES, records, samples
from tests.support.terminal import Terminal
from tests.support.waiting import SECONDS

SIZES = [(80, 24), (200, 50)]
GOLDEN = Path(__file__).parent / "screens"
FAILED = "resnet-finetune-20261122-k3v9qd"
SOUND = "resnet-baseline-20261121-a7x2mm"
SCREENS = {
    "jobs": ("jobs",),
    "show": ("show", "resnet-finetune"),
    "metrics": ("metrics", FAILED, "--metric", "gpu.utilization", "--step", "30s"),
    "compare": ("compare", FAILED, SOUND, "--metric", "gpu.utilization"),
    "events": ("events", FAILED),
}


def job(name, job_id, start, seconds, **more):
    replicas = [
        {"name": f"worker-{rank}", "rank": rank, "node": "node-7", "devices": [f"gpu{rank}"]} for rank in (0, 1)
    ]
    times = {"created": start, "start": start, "end": start + seconds * 1000}
    about = {"type": "PyTorchJob", "user": "lin.wang", "replicas": replicas}
    return {"job_id": job_id, "name": name, "state": "Succeeded", **times, **about, **more}


def measured(job_id, start, seconds):
    for rank in (0, 1):
        place = {"job": job_id, "replica": f"worker-{rank}", "node": "node-7"}
        times = [start + 1000 * at for at in range(seconds)]
        gpu = [(time, 0.9 - 0.3 * rank * (at >= seconds // 2)) for at, time in enumerate(times)]
        yield {"metric": "gpu.utilization", **place, "device": f"gpu{rank}"}, gpu
        yield {"metric": "memory.usage", **place}, [(time, 2.0**33 + 2.0**20 * at) for at, time in enumerate(times)]
        yield {"metric": "cpu.usage", **place}, [(time, 3.5) for time in times]


@pytest.fixture(scope="module")
def environment(reach):
    api, token = reach
    start = SystemClock().now_ms() // HOUR * HOUR - 2 * HOUR
    body = {
        "jobs": [
            job("resnet-finetune", FAILED, start, 300, state="Failed", exit_code=1, error="worker-1: RuntimeError"),
            job("resnet-baseline", SOUND, start - HOUR, 600),
        ],
    }
    series = [*measured(FAILED, start, 300), *measured(SOUND, start - HOUR, 600)]
    api.transport.request("POST", "/api/jobmeter/v1/ingest", records(body) + samples(series), {"Content-Type": FRAMES})
    lines = [
        {"text": "epoch 1 loss 0.91", "time": start + 1000, "replica": "worker-1"},
        {"text": "RuntimeError: CUDA error: out of memory", "time": start + 299_000, "replica": "worker-1"},
    ]
    lines[1]["level"] = "error"
    api.transport.request("POST", f"/api/jobmeter/v1/jobs/{FAILED}/logs", msgspec.json.encode({"lines": lines}))
    return {"JOBMETER_SERVER": api.transport.server, "JOBMETER_KEY": token}


def steady(lines):
    """Replace the times in the lines by constants."""
    text = "\n".join(line.rstrip() for line in lines).rstrip() + "\n"
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "YYYY-MM-DD HH:MM:SS", text)
    return re.sub(r"\d\d:\d\d:\d\d UTC", "HH:MM:SS UTC", text)


@pytest.mark.parametrize(("columns", "rows"), SIZES, ids=["80x24", "200x50"])
@pytest.mark.parametrize("name", SCREENS)
def test_the_screen_is_as_it_was_looked_at(environment, name, columns, rows):
    terminal = Terminal(columns, rows, *SCREENS[name], **environment)
    terminal.read()
    assert terminal.close() == 0
    text = steady(terminal.lines)
    assert "…" not in text
    if name != "events":
        assert FAILED in text
    compare(f"{name}-{columns}x{rows}.txt", text)


TOP = {
    "top-job": (("top", "resnet-finetune"), "", ("worker-1", "gpu.utilization", "critical")),
    "top-devices": (("top", "resnet-finetune"), "d", ("gpu1", "gpu.utilization", "█")),
    "top-jobs": (("top",), "a", (FAILED, SOUND)),
}
"""Screens of `jobmeter top`: arguments, the key to press after the first data, and words that must appear."""


@pytest.mark.parametrize(("columns", "rows"), SIZES, ids=["80x24", "200x50"])
@pytest.mark.parametrize("name", TOP)
def test_the_screen_of_top_is_as_it_was_looked_at_and_q_leaves(environment, name, columns, rows):
    arguments, key, wanted = TOP[name]
    terminal = Terminal(columns, rows, *arguments, **environment)
    terminal.read(lambda: any(word in line for line in terminal.screen.display for word in ("worker-1", "no running")))
    terminal.press(key)
    golden = GOLDEN / f"{name}-{columns}x{rows}.txt"
    if os.environ.get("UPDATE_SCREENS"):
        read_some(terminal, 8)
        golden.write_text(steady(terminal.screen.display), encoding="utf-8")
    text = golden.read_text(encoding="utf-8")
    assert all(word in text for word in wanted)
    assert "…" not in text
    # A live screen is drawn in steps: wait until it equals the stored one. It is drawn again each second, so a minute
    # is enough, also on a busy machine.
    deadline = time.monotonic() + SECONDS / 10
    terminal.read(lambda: steady(terminal.screen.display) == text or time.monotonic() > deadline)
    assert steady(terminal.screen.display) == text
    terminal.press("q")
    terminal.read()
    assert terminal.close() == 0


def read_some(terminal, seconds):
    """Read the output of that time."""
    end = time.monotonic() + seconds
    terminal.read(lambda: time.monotonic() > end)


def compare(name, text):
    """Compare with the stored screen of that name."""
    golden = GOLDEN / name
    if os.environ.get("UPDATE_SCREENS"):
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8")


def test_without_textual_top_prints_tables_and_says_how_to_get_more(environment, tmp_path):
    hidden = "import importlib.util as u\nfound = u.find_spec\n"
    hidden += "u.find_spec = lambda name, *more: None if name == 'textual' else found(name, *more)\n"
    (tmp_path / "sitecustomize.py").write_text(hidden)
    terminal = Terminal(80, 24, "top", "resnet-finetune", PYTHONPATH=str(tmp_path), **environment)
    terminal.read(lambda: any("jobmeter[top]" in line for line in terminal.screen.display))
    assert any("worker-1" in line for line in terminal.screen.display)
    terminal.press("q")
    terminal.read()
    assert terminal.close() == 0
