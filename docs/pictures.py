"""Takes the pictures of the page that the documentation shows: ``python docs/pictures.py``.

Real Chromium on a real server with a made-up job of 64 ranks, of which one is slow. Takes half a minute.
"""

import json
import math
import random
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import click
from playwright.sync_api import sync_playwright

from jobmeter.cli.main import cli
from jobmeter.examples.server import OwnServer, own_server
from jobmeter.model.time import MINUTE, SECOND, SystemClock

PICTURES = Path(__file__).parent / "pictures"
RANKS, SLOW, LENGTH_MS, STEP_MS = 64, 23, 55 * MINUTE, 20 * SECOND
POINTS, ROWS = 40, 13
GIB = 2**30
NAMES = ("bert-eval", "whisper-serve", "dlrm-train", "vit-pretrain", "sd-xl-lora", "feature-join", "tokenize")


def jobs(now: int) -> Iterator[dict[str, object]]:
    """The job of the pictures, and others for the list."""
    chance = random.Random(3)  # noqa: S311 - no secret
    start = now - LENGTH_MS
    replicas = [
        {"name": f"worker-{rank}", "rank": rank, "node": f"node-{rank // 8}", "devices": [f"gpu{rank % 8}"]}
        for rank in range(RANKS)
    ]
    big = {"job_id": "llama-pretrain-7", "name": "llama-pretrain", "type": "PyTorchJob", "state": "Running"}
    yield {**big, "user": "lin", "resource_group": "h200", "created": start, "start": start, "replicas": replicas}
    for number in range(60):
        name, state = chance.choice(NAMES), chance.choice(["Succeeded"] * 5 + ["Failed", "Stopped"])
        begin = now - int(chance.random() * 1440 + 60) * MINUTE
        end = min(begin + int(chance.random() * 200 + 5) * MINUTE, now)
        kind, user = chance.choice(["PyTorchJob", "RayJob", "MPIJob"]), chance.choice(["lin", "maria", "sofie"])
        record = {"job_id": f"{name}-{number}", "name": name, "type": kind, "state": state, "user": user}
        yield {**record, "resource_group": "h200", "created": begin, "start": begin, "end": end}


def others(now: int) -> Iterator[str]:
    """Usage of the other jobs: each has its own level, some have pauses."""
    chance = random.Random(11)  # noqa: S311 - no secret
    for job in list(jobs(now))[1:]:
        start, end = (int(str(job[name])) for name in ("start", "end"))
        level, cores, pauses = 0.25 + 0.7 * chance.random(), 2 + 10 * chance.random(), chance.random() < 0.3
        for point in range(POINTS):
            busy = 0.05 if pauses and point % 12 > 9 else min(1.0, max(0.0, level + chance.gauss(0, 0.04)))
            at = start + (end - start) * point // POINTS
            yield f"{job['job_id']},worker-0,node-9,gpu0,gpu.utilization,{at},{busy:.3f}"
            yield f"{job['job_id']},worker-0,node-9,,cpu.usage,{at},{cores * (0.5 + busy / 2):.2f}"


def samples(now: int) -> Iterator[str]:
    """CSV, as ``jobmeter import`` reads it."""
    chance = random.Random(7)  # noqa: S311 - no secret
    yield "job_id,replica,node,device,metric,time,value"
    yield from others(now)
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


def fill(server: OwnServer, folder: Path) -> None:
    """Bring in the jobs and what they used."""
    now = SystemClock().now_ms() // STEP_MS * STEP_MS
    (folder / "jobs.jsonl").write_text("".join(json.dumps(job) + "\n" for job in jobs(now)))
    (folder / "samples.csv").write_text("\n".join(samples(now)) + "\n")
    files = [str(folder / "jobs.jsonl"), str(folder / "samples.csv")]
    to = ["--server", server.api.transport.server, "--key", server.token]
    cli.main(["import", *files, *to], standalone_mode=False)


def main() -> None:
    """Take every picture."""
    browser = shutil.which("chromium")
    if browser is None:
        sys.exit("chromium is not installed: make programs")
    PICTURES.mkdir(exist_ok=True)
    with TemporaryDirectory() as folder, own_server() as server, sync_playwright() as playwright:
        fill(server, Path(folder))
        chromium = playwright.chromium.launch(executable_path=browser, args=["--disable-gpu"])
        for name, job, wanted, scheme in (
            ("job", "llama-pretrain-7", (".heat canvas", ".finding", ".outliers button"), "light"),
            ("jobs", "", (".found", *(f".row[data-at='{at}'] .spark-gpu path" for at in range(ROWS))), "dark"),
        ):
            page = chromium.new_page(viewport={"width": 1280, "height": 800}, color_scheme=scheme)
            page.goto(server.api.page_link(job))
            for one in wanted:
                page.wait_for_selector(one)
            page.wait_for_timeout(1_500)
            path = PICTURES / f"page-{name}.png"
            page.screenshot(path=path)
            click.echo(f"{path.relative_to(PICTURES.parent)}: {path.stat().st_size:,} bytes")
        chromium.close()


if __name__ == "__main__":
    main()
