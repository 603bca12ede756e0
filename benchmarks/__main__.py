"""``python -m benchmarks``: load everybody with the same samples, ask everybody the same, print a table and a JSON."""

import argparse
import contextlib
import json
import platform
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks import ours as ours_module
from benchmarks import peers
from benchmarks.agent import agent_rows
from benchmarks.client import answer, latency
from benchmarks.data import Data, utilization
from benchmarks.processes import INSTALL, installed
from benchmarks.remote import remote_row
from benchmarks.rows import Row, contestants, query_rows, size_row

RESULTS = Path(__file__).parent / "results"


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--full", action="store_true", help="longer rounds, and 30 days of samples for the month question"
    )
    parser.add_argument("--output", type=Path, default=RESULTS / "latest.json", help="where the JSON goes")
    options = parser.parse_args()
    rounds, seconds, agent_seconds = (5, 5.0, 120.0) if options.full else (3, 1.5, 40.0)
    missing = [name for name in ("victoria-metrics", "prometheus", "wrk") if not installed(name)]
    if missing:
        print(f"not installed, so their columns stay empty: {', '.join(missing)} ({INSTALL})")
    now = time.time_ns() // 1_000_000
    rows = everyday(utilization(now, 24), seconds, rounds, agent_seconds)
    if options.full:
        rows += month(utilization(now, 24 * 30, job="month"), rounds)
    show(rows)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(
        json.dumps({"machine": platform.platform(), "rows": [vars(row) for row in rows]}, indent=1)
    )


def everyday(data: Data, seconds: float, rounds: int, agent_seconds: float) -> list[Row]:
    """A day of a job with 128 GPUs: import, live and day questions, sizes, and the agent."""
    print(f"a job of {data.replicas} replicas x {data.gpus} GPUs, 24 h at 15 s: {data.samples:,} samples")
    importing = Row("import, durable", "samples/s", "higher")
    with contextlib.ExitStack() as stack:
        ours = stack.enter_context(ours_module.jobmeter())
        importing.add(ours.name, data.samples / ours_module.ingest(ours, ours_module.frames(data)))
        running = list(_peers(stack, data, importing))
        rows = [importing]
        _wait_for_roll_ups(ours, data, hours=24, step_s=300, tier="minute")
        rows += query_rows(contestants(ours, running), ours, data, seconds, rounds)
        rows += size_row(ours, running, data)
        rows += agent_rows(ours, agent_seconds)
    return [*rows, remote_row()]


def month(data: Data, rounds: int) -> list[Row]:
    """Thirty days of the same job, asked for in hours."""
    print(f"30 days of it: {data.samples:,} samples")
    importing = Row("import of 30 days", "samples/s", "higher")
    row = Row("month by replica, 1 h steps, p50", "ms", "lower")
    with contextlib.ExitStack() as stack:
        ours = stack.enter_context(ours_module.jobmeter())
        importing.add(ours.name, data.samples / ours_module.ingest(ours, ours_module.frames(data)))
        running = list(_peers(stack, data, importing, prometheus=False))
        everybody = contestants(ours, running)
        _wait_for_roll_ups(ours, data, hours=24 * 30, step_s=3600, tier="hour")
        asked = {"replica": None, "by": "replica", "hours": 24 * 30, "step_s": 3600}
        for turn in range(rounds):
            for someone in everybody if turn % 2 == 0 else reversed(everybody):
                row.add(someone.name, latency(someone.request(someone.question(data, **asked)), 2).p50)
    return [importing, row]


def _peers(stack: contextlib.ExitStack, data: Data, importing: Row, *, prometheus: bool = True) -> Sequence[peers.Peer]:
    running = []
    if installed("victoria-metrics"):
        victoria = stack.enter_context(peers.victoria_metrics())
        importing.add(victoria.name, data.samples / peers.import_json(victoria, peers.json_lines(data)))
        running.append(victoria)
    if installed("prometheus") and prometheus:
        peer = stack.enter_context(peers.prometheus())
        peers.write_remotely(peer, peers.remote_write(data))
        running.append(peer)
    return running


def _wait_for_roll_ups(ours: ours_module.Ours, data: Data, *, hours: int, step_s: int, tier: str) -> None:
    """Until what was imported is rolled up, as it is on a server that has run for some minutes."""
    asked = ours.request(ours_module.question(data, replica=None, by="replica", hours=hours, step_s=step_s))
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        if tier in json.loads(answer(asked))["tiers"]:
            return
        time.sleep(5)


def show(rows: list[Row]) -> None:
    """The table: medians with the lowest and highest of the runs; ``better by`` above 1 speaks for Jobmeter."""
    names = list(dict.fromkeys(name for row in rows for name in row.figures))
    print(f"{'':48}" + "".join(f"{name:>34}" for name in names) + "   better by")
    for row in rows:
        cells = "".join(f"{_cell(row, name):>34}" for name in names)
        print(
            f"{row.name + ' [' + row.unit + ']':48}{cells}   {_ratios(row, names)}{'  ' + row.note if row.note else ''}"
        )


def _cell(row: Row, name: str) -> str:
    values = row.figures.get(name)
    if not values:
        return "-"
    spread = f" ({_short(min(values))} to {_short(max(values))})" if len(values) > 1 else ""
    return _short(row.median(name) or 0.0) + spread


def _ratios(row: Row, names: list[str]) -> str:
    mine = row.median("Jobmeter")
    if not mine:
        return ""
    theirs = {name: row.median(name) for name in names if name != "Jobmeter"}
    ratios = {n: (v / mine if row.better == "lower" else mine / v) for n, v in theirs.items() if v}
    return ", ".join(f"{ratio:.2f}x {name}" for name, ratio in ratios.items())


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


if __name__ == "__main__":
    main()
