"""Bulk import and what the samples take on disk: random two-decimal values, which nothing compresses well."""

import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.contestant import Asked, Contestant, settled
from benchmarks.data import Data, random_values
from benchmarks.everybody import started
from benchmarks.ours import Jobmeter
from benchmarks.plan import Plan
from benchmarks.row import AS_MANY, NO_MORE, PROMETHEUS, Row, higher, lower

HOURS = 24
RANDOM = "random two-decimal values"
_TABLES = {"samples": "raw samples", "minutes": "roll-ups of 1 minute", "hours": "roll-ups of 1 hour"}


def rows(plan: Plan) -> list[Row]:
    """A day of 128 series, again and again under another job's name, then a file of them through the verb."""
    now = time.time_ns() // 1_000_000
    print(f"importing: {random_values(now, HOURS, 'import', 0).samples:,} random samples a round", flush=True)
    rate = higher("import, durable", "samples/s", AS_MANY)
    count = dict[str, int]()
    with contextlib.ExitStack() as stack:
        ours, everybody = started(stack)
        for turn, everyone in enumerate(plan.turns(everybody)):
            data = random_values(now, HOURS, f"import-{turn}", turn)
            for one in everyone:
                if one.name == PROMETHEUS and turn > 0:  # it has no bulk import, its size is told all the same
                    continue
                seconds = one.load(data)
                rate.add(one.name, data.samples / seconds if seconds else None)
                count[one.name] = count.get(one.name, 0) + data.samples
        result = [rate, *size_rows(everybody, count, RANDOM), *verb_rows(ours, now)]
        if plan.tiers:
            asked = Asked("import-0", now, HOURS, 3600, "replica", metric="gpu.power")
            ours.wait_for_roll_ups(asked, "hour", 120)
            result += tier_rows(ours, RANDOM)
        return result


def size_rows(everybody: Sequence[Contestant], count: dict[str, int], what: str) -> list[Row]:
    """Bytes a sample, of raw samples alone and of the whole folder, once the merges after the load have ended."""
    raw = lower(f"bytes a raw sample, {what}", "B", NO_MORE)
    everything = lower(f"whole folder a raw sample, {what}", "B")
    for one, size in zip(everybody, settled(everybody), strict=True):
        raw.add(one.name, size / count[one.name] if size else None)
        everything.add(one.name, one.disk() / count[one.name])
    return [raw, everything]


def tier_rows(ours: Jobmeter, what: str) -> list[Row]:
    """What the raw samples of everything stored and each roll-up tier of them take, told for a raw sample."""
    result = []
    status = ours.status()
    for table, name in _TABLES.items():
        row = lower(f"{name}, bytes a raw sample, {what}", "B")
        row.add(ours.name, status["bytes"][table] / max(1, status["rows"]["samples"]))
        result.append(row)
    return result


def verb_rows(ours: Jobmeter, now_ms: int) -> list[Row]:
    """``jobmeter import`` from the start of the process to its end, a million rows."""
    row = higher("jobmeter import FILE.parquet, end to end", "samples/s")
    data = random_values(now_ms, 24 * 1_000_000 / 737_280, "file", 9)
    with tempfile.TemporaryDirectory() as place:
        file = _parquet(data, Path(place) / "samples.parquet")
        row.add(ours.name, data.samples / import_file(ours, file))
    return [row]


def import_file(ours: Jobmeter, file: Path) -> float:
    """Seconds that the verb took. Raises RuntimeError unless every row was accepted."""
    command = [sys.executable, "-m", "jobmeter", "import", str(file), "--json", "--server"]
    begin = time.perf_counter()
    finished = subprocess.run(
        [*command, f"http://127.0.0.1:{ours.port}", "--key", ours.token], capture_output=True, text=True, check=False
    )
    seconds = time.perf_counter() - begin
    result = json.loads(finished.stdout) if finished.returncode == 0 else {}
    if not result or result["accepted"] != result["rows"]:
        raise RuntimeError(f"jobmeter import: {finished.stdout}{finished.stderr}")
    return seconds


def _parquet(data: Data, file: Path) -> Path:
    names, count = data.names(), len(data.time)
    texts = {
        "job_id": [one.job for one in names],
        "replica": [one.replica for one in names],
        "node": [one.node for one in names],
        "device": [one.device for one in names],
        "metric": [one.metric for one in names],
    }
    each = np.repeat(np.arange(len(names)), count)
    columns: dict[str, pa.Array[Any]] = {
        name: pa.array(text).dictionary_encode().take(each) for name, text in texts.items()
    }
    columns["time"] = pa.array(np.tile(data.time, len(names)))
    columns["value"] = pa.array(data.value.ravel())
    table = pa.table(columns)
    pq.write_table(table, file, compression="zstd")
    return file
