"""Takes the pictures of the page that the documentation shows: ``python docs/pictures.py``.

A real Chromium shows a real server. The data are made up: forty nodes, and jobs. One job has a slow rank, one has a
broken device, one is idle and two failed. Takes a minute; ``python docs/pictures.py job jobs`` takes only these.
``python docs/pictures.py --every FOLDER`` takes each view at four widths, light and dark, into that folder, and fails
where a view is wider than its window. ``--every FOLDER jobs node`` takes only these views.
"""

import json
import math
import random
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal, NamedTuple

import click
from playwright.sync_api import Browser, sync_playwright

from jobmeter.cli.main import cli
from jobmeter.client.searches import FindingSearch
from jobmeter.examples.server import OwnServer, run_server
from jobmeter.model.time import HOUR, MINUTE, SECOND, SystemClock

PICTURES = Path(__file__).parent / "pictures"
RANKS, SLOW, LENGTH_MS, STEP_MS = 64, 23, 55 * MINUTE, 20 * SECOND
POINTS, PATIENCE_SECONDS = 40, 90
GIB = 2**30
OTHERS, NODES = 60, 40
LINES = (
    ("step 41200 loss 1.873 lr 2.0e-05", None),
    ("step 41210 loss 1.871 lr 2.0e-05", None),
    ("Traceback (most recent call last):", "error"),
    ('  File "/app/train.py", line 212, in main', "error"),
    ("    loss = trainer.step(next(batches))", "error"),
    ('  File "/app/loader.py", line 88, in __next__', "error"),
    ("    return self.decode(self.shards[index])", "error"),
    ("IndexError: list index out of range", "error"),
)
NAMES = ("bert-eval", "whisper-serve", "dlrm-train", "vit-pretrain", "sd-xl-lora", "feature-join", "tokenize")


def job(name: str, state: str, start: int, **more: object) -> dict[str, object]:
    """Build a record of a job."""
    record = {"job_id": name, "name": name.rstrip("-0123456789"), "type": "PyTorchJob", "state": state, "user": "lin"}
    return {**record, "resource_group": "h200", "created": start - MINUTE, "start": start, **more}


def ranks(count: int, first: int = 0, **more: object) -> list[dict[str, object]]:
    """Build replicas, eight on each node, each with one device."""
    return [
        {"name": f"worker-{at}", "rank": at, "node": f"node-{first + at // 8}", "devices": [f"gpu{at % 8}"], **more}
        for at in range(count)
    ]


def jobs(now: int) -> Iterator[dict[str, object]]:
    """The job of the pictures, others that run or failed, and many for the list."""
    chance = random.Random(3)  # noqa: S311 - no secret
    start, limits = now - LENGTH_MS, {"memory.limit": 256 * GIB, "cpu.limit": 16}
    yield job("llama-pretrain-7", "Running", start, replicas=ranks(RANKS), limits=limits)
    yield job("moe-finetune-3", "Running", now - 3 * HOUR, replicas=ranks(16, 16), user="sofie")
    yield job("notebook-maria", "Running", now - 8 * HOUR, replicas=ranks(2, 20), user="maria", type="Notebook")
    only = {"command": "python train.py --lr 1e-4", "labels": {"team": "vision"}, "user": "ana"}
    yield job("resnet-single-1", "Running", now - 20 * MINUTE, replicas=ranks(1, 26), **only)
    yield job("bert-eval-100", "Running", now - 20 * MINUTE, replicas=ranks(8, 22), user="maria")
    for number in range(3):
        waits = {**job(f"vit-pretrain-{90 + number}", "Queued", now), "created": now - (12 + 9 * number) * MINUTE}
        waits.pop("start")
        yield waits
    end = now - 9 * MINUTE
    failed = ranks(4, 24, start=end - 50 * MINUTE, end=end, state="Failed", exit_code=1)
    yield job("sd-xl-lora-12", "Failed", end - 50 * MINUTE, end=end, exit_code=1, replicas=failed, user="sofie")
    starved = ranks(1, 25, start=end - 40 * MINUTE, end=end, state="Failed", exit_code=137)
    yield job("tokenize-71", "Failed", end - 40 * MINUTE, end=end, exit_code=137, replicas=starved, user="maria")
    for number in range(OTHERS):
        name, state = chance.choice(NAMES), chance.choice(["Succeeded"] * 5 + ["Failed", "Stopped"])
        begin = now - int(chance.random() * 1440 + 60) * MINUTE
        end = min(begin + int(chance.random() * 200 + 5) * MINUTE, now)
        kind, user = chance.choice(["PyTorchJob", "RayJob", "MPIJob"]), chance.choice(["lin", "maria", "sofie"])
        yield job(f"{name}-{number}", state, begin, end=end, type=kind, user=user)


def nodes() -> Iterator[dict[str, object]]:
    """Forty nodes of eight devices; one device is lost."""
    for number in range(NODES):
        devices = [
            {"device": f"gpu{at}", "name": "NVIDIA H200", "pci": f"0000:{0x1B + 0x10 * at:02x}:00"} for at in range(8)
        ]
        if number == NODES - 4:
            devices[5]["state"] = "lost"
        info = {"cores": 96, "memory": 2048 * GIB, "devices": devices}
        yield {"name": f"node-{number}", "resource_group": "h200" if number < NODES - 8 else "spot", "info": info}


def events(now: int) -> Iterator[dict[str, object]]:
    """Events of the job of the pictures, and the error of a device of another one."""
    for minutes, reason in ((45, "CheckpointSaved"), (30, "CheckpointSaved"), (15, "CheckpointSaved")):
        yield {"time": now - minutes * MINUTE, "job": "llama-pretrain-7", "reason": reason, "message": "step saved"}
    message = "NVRM: Xid (PCI:0000:4b:00): 79, pid=1234, GPU has fallen off the bus."
    fault = {"node": "node-16", "source": "node", "reason": "Xid", "level": "error", "subject": "device 0000:4b:00"}
    yield {"time": now - 4 * MINUTE, "message": message, **fault}
    lost = {"node": f"node-{NODES - 4}", "reason": "GpuLost", "message": "The GPU is lost.", "subject": "device gpu5"}
    yield {"time": now - 30 * MINUTE, **fault, **lost}


def others(now: int) -> Iterator[str]:
    """Usage of the ended jobs of the list: each has its own level, some have pauses."""
    chance = random.Random(11)  # noqa: S311 - no secret
    for one in list(jobs(now))[-OTHERS:]:
        start, end = (int(str(one[name])) for name in ("start", "end"))
        level, cores, pauses = 0.25 + 0.7 * chance.random(), 2 + 10 * chance.random(), chance.random() < 0.3
        for point in range(POINTS):
            busy = 0.05 if pauses and point % 12 > 9 else min(1.0, max(0.0, level + chance.gauss(0, 0.04)))
            at = start + (end - start) * point // POINTS
            yield f"{one['job_id']},worker-0,node-30,gpu0,gpu.utilization,{at},{busy:.3f}"
            yield f"{one['job_id']},worker-0,node-30,,cpu.usage,{at},{cores * (0.5 + busy / 2):.2f}"


def samples(now: int) -> Iterator[str]:
    """CSV, as ``jobmeter import`` reads it."""
    chance = random.Random(7)  # noqa: S311 - no secret
    yield "job_id,replica,node,device,metric,time,value"
    yield from others(now)
    yield from small_jobs(now)
    for at in range(now - LENGTH_MS, now, STEP_MS):
        saves = (at // MINUTE) % 15 == 0
        for rank in range(RANKS):
            busy = 0.1 if saves else min(1.0, (0.55 if rank == SLOW else 0.93) + chance.gauss(0, 0.025))
            place = f"llama-pretrain-7,worker-{rank},node-{rank // 8}"
            gpu = f"{place},gpu{rank % 8}"
            yield f"{gpu},gpu.utilization,{at},{busy:.3f}"
            yield f"{gpu},gpu.power,{at},{140 + 520 * busy + chance.gauss(0, 8):.0f}"
            yield f"{gpu},gpu.memory.usage,{at},{(118 + 3 * math.sin(at / 4e5)) * GIB:.0f}"
            yield f"{place},,cpu.usage,{at},{6 + 2 * busy + chance.gauss(0, 0.3):.2f}"
            yield f"{place},,memory.usage,{at},{(180 + rank / 8) * GIB:.0f}"


def small_jobs(now: int) -> Iterator[str]:
    """Usage of the other jobs that run or failed."""
    chance = random.Random(5)  # noqa: S311 - no secret
    end = now - 9 * MINUTE
    for name, first, count, use, length, until in (
        ("moe-finetune-3", 16, 16, 0.88, 60, now),
        ("notebook-maria", 20, 2, 0.0, 60, now),
        ("bert-eval-100", 22, 8, 0.7, 20, now),
        ("resnet-single-1", 26, 1, 0.6, 20, now),
        ("sd-xl-lora-12", 24, 4, 0.8, 50, end),
        ("tokenize-71", 25, 1, 0.3, 40, end),
    ):
        for at in range(until - length * MINUTE, until, 2 * STEP_MS):
            share = 1 - (until - at) / (length * MINUTE)
            for rank in range(count):
                place = f"{name},worker-{rank},node-{first + rank // 8}"
                busy = max(0.0, use + chance.gauss(0, 0.03)) if use else 0.0
                yield f"{place},gpu{rank % 8},gpu.utilization,{at},{min(busy, 1):.3f}"
                yield f"{place},gpu{rank % 8},gpu.memory.usage,{at},{60 * GIB}"
                yield f"{place},,cpu.usage,{at},{0.1 + 5 * use + abs(chance.gauss(0, 0.2)):.2f}"
                memory = 10 + 54 * share if name == "tokenize-71" else 48
                yield f"{place},,memory.usage,{at},{memory * GIB:.0f}"
                yield f"{place},,memory.limit,{at},{64 * GIB}"
                yield f"{place},,memory.oom.kills,{at},{int(share > 0.9) if name == 'tokenize-71' else 0}"
                yield f"{place},,disk.read,{at},0"


def log(now: int) -> Iterator[dict[str, object]]:
    """The end of the log of the job that failed."""
    for at, (text, level) in enumerate(LINES):
        yield {"text": text, "level": level, "time": now - 9 * MINUTE - 9_000 + 500 * at, "replica": "worker-2"}


def fill(server: OwnServer, folder: Path) -> None:
    """Send the jobs, what they used, their events, lines and notes."""
    now = SystemClock().now_ms() // STEP_MS * STEP_MS
    api, headers = server.api.transport, {"Content-Type": "application/json"}
    records = {"nodes": list(nodes()), "jobs": list(jobs(now)), "events": list(events(now))}
    (folder / "samples.csv").write_text("\n".join(samples(now)) + "\n")
    to = ["--server", api.server, "--key", server.token]
    # Samples come first: a job that ended is diagnosed two seconds after its record.
    cli.main(["import", str(folder / "samples.csv"), *to], standalone_mode=False)
    for path, body in (("jobs", records), ("jobs/sd-xl-lora-12/logs", {"lines": list(log(now))})):
        api.request("POST", f"/api/jobmeter/v1/{path}", json.dumps(body).encode(), headers)
    at = ["--at", str(now - 27 * MINUTE)]
    for command in (
        ["note", "llama-pretrain-7", "Learning rate lowered to 2e-5", *at, "--author", "lin"],
        ["tag", "llama-pretrain-7", "baseline"],
    ):
        cli.main([*command, *to], standalone_mode=False)


def wait_for_findings(server: OwnServer) -> None:
    """Wait until the rules have looked at the jobs that run."""
    for _ in range(PATIENCE_SECONDS):
        found = server.api.read_all_findings(FindingSearch(open="true", limit=10)).findings
        if {one.job for one in found} >= {"llama-pretrain-7", "moe-finetune-3", "notebook-maria"}:
            return
        time.sleep(1)
    sys.exit("the rules have not looked at the jobs")


class Shot(NamedTuple):
    """A picture: the place in the page, elements that it waits for, and keys or clicks before it is taken."""

    place: str
    wanted: tuple[str, ...]
    scheme: Literal["light", "dark"] = "light"
    size: tuple[int, int] = (1280, 800)
    press: tuple[str, ...] = ()
    click: str = ""
    to: str = ""


JOB = "jobs/llama-pretrain-7"
SHOTS = {
    "job": Shot(JOB, (".heat canvas", ".finding", ".outliers button")),
    "jobs": Shot("", (".found", *(f".row[data-at='{at}'] .spark-gpu path" for at in (0, 1, 3))), "dark"),
    "chips": Shot("?state=Failed&user=sofie", (".chips", ".found")),
    "findings": Shot("findings", (".foundtable",), "dark"),
    "failed": Shot("jobs/sd-xl-lora-12", (".finding", ".log-end")),
    "memory": Shot("jobs/tokenize-71", (".finding .rule", ".chart canvas"), "dark"),
    "nodes": Shot("nodes", (".tile.faulty",)),
    "replicas": Shot(JOB, (".outliers button", "#replicas tbody tr"), to="#replicas"),
    "rank": Shot(f"{JOB}?rank=worker-{SLOW}", (".rank-panel td",), "dark", to="#ranks"),
    "compare": Shot("compare?job=llama-pretrain-7&job=moe-finetune-3", (".chart canvas",)),
    "palette": Shot("", (".found",), press=("Control+k", "n", "o", "d", "e")),
    "keys": Shot("", (".found",), "dark", press=("?",)),
    "share": Shot(JOB, (".finding",), click="role=button[name=Share]"),
    "phone": Shot("", (".found", ".band button"), size=(390, 844)),
    "wide": Shot(JOB, (".outliers button", ".chart canvas"), "dark", size=(1920, 1080), to=".groups"),
}

EVERY = {
    "jobs": ("", ".rows .row[data-at] .spark path"),
    "chips": ("?state=Failed&user=sofie", ".chips"),
    "ranks": (JOB, ".outliers button"),
    "rank": (f"{JOB}?rank=worker-{SLOW}", ".rank-panel td"),
    "single": ("jobs/resnet-single-1", ".chart canvas"),
    "failed": ("jobs/sd-xl-lora-12", ".log-end .line"),
    "memory": ("jobs/tokenize-71", ".finding .rule"),
    "queued": ("jobs/vit-pretrain-90", "#events li"),
    "idle": ("jobs/notebook-maria", ".finding .rule"),
    "compare": ("compare?job=llama-pretrain-7&job=moe-finetune-3", ".chart canvas"),
    "findings": ("findings", ".foundtable"),
    "nodes": ("nodes", ".tile.faulty"),
    "node": ("nodes/node-16", "#faults li"),
    "use": ("use", "#users table"),
    "keys": ("admin/keys", "#keys table"),
    "usage": ("admin/usage", "main table"),
    "retention": ("admin/retention", "form.project"),
    "shippers": ("admin/shippers", "#shippers"),
}
"""Views by name: the place in the page, and an element that shows that the view is there."""
SIZES = ((390, 844), (820, 1180), (1440, 900), (1920, 1080))
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
LONGEST = 6_000
"""The height of a picture, in pixels: a list of thousands of rows has no end."""
BOTTOM = "document.querySelector('main').getBoundingClientRect().bottom + scrollY"
WIDER = "document.documentElement.scrollWidth > innerWidth"


def take_every(chromium: Browser, server: OwnServer, folder: Path, names: list[str]) -> list[str]:
    """Take the named views, by default all, at each width in each scheme. Return the pictures of too wide views."""
    wide = []
    for width, height in SIZES:
        for scheme in SCHEMES:
            page = chromium.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
            page.goto(f"{server.api.transport.server}/")
            page.wait_for_selector("#token")
            if not names:
                page.screenshot(path=folder / f"signin-{width}-{scheme}.png")
            page.goto(server.api.create_page_link())
            page.wait_for_selector("main h1")
            for name in names or EVERY:
                place, wanted = EVERY[name]
                page.goto(f"{server.api.transport.server}/#/{place}")
                page.wait_for_selector(wanted)
                # Elements that were never near the window have a reserved height, so measure with all of them in it.
                page.set_viewport_size({"width": width, "height": LONGEST})
                page.wait_for_timeout(1_500)
                tall = math.ceil(page.evaluate(BOTTOM))
                page.set_viewport_size({"width": width, "height": min(max(height, tall), LONGEST)})
                page.wait_for_timeout(300)
                path = folder / f"{name}-{width}-{scheme}.png"
                page.screenshot(path=path)
                if page.evaluate(WIDER):
                    wide.append(path.name)
                page.set_viewport_size({"width": width, "height": height})
            page.close()
    return wide


def take(chromium: Browser, server: OwnServer, name: str, folder: Path = PICTURES) -> Path:
    """Take one picture."""
    shot = SHOTS[name]
    width, height = shot.size
    page = chromium.new_page(viewport={"width": width, "height": height}, color_scheme=shot.scheme)
    page.goto(server.api.create_page_link())
    page.wait_for_selector("main h1")
    page.goto(f"{server.api.transport.server}/#/{shot.place}")
    for one in shot.wanted:
        page.wait_for_selector(one)
    if shot.click:
        page.click(shot.click)
    for key in shot.press:
        page.keyboard.press(key)
        page.wait_for_timeout(100)
    if shot.to:
        page.evaluate("one => document.querySelector(one).scrollIntoView({ block: 'start' })", shot.to)
    page.wait_for_timeout(1_500)
    path = folder / f"page-{name}.png"
    page.screenshot(path=path)
    page.close()
    return path


def main() -> None:
    """Take the pictures that are named, by default every one."""
    every = Path(sys.argv[2]) if sys.argv[1:2] == ["--every"] and len(sys.argv) > 2 else None
    browser = shutil.which("chromium")
    if browser is None:
        sys.exit("chromium is not installed: make programs")
    PICTURES.mkdir(exist_ok=True)
    with TemporaryDirectory() as folder, run_server() as server, sync_playwright() as playwright:
        fill(server, Path(folder))
        wait_for_findings(server)
        chromium = playwright.chromium.launch(executable_path=browser, args=["--disable-gpu"])
        if every:
            every.mkdir(parents=True, exist_ok=True)
            wide = take_every(chromium, server, every, sys.argv[3:])
            chromium.close()
            sys.exit(f"wider than the window: {', '.join(wide)}" if wide else None)
        for name in sys.argv[1:] or SHOTS:
            path = take(chromium, server, name)
            click.echo(f"{path.relative_to(PICTURES.parent)}: {path.stat().st_size:,} bytes")
        chromium.close()


if __name__ == "__main__":
    main()
