"""Duration of ``jobmeter import`` with a Parquet file, from the start of the process to its end."""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.data import Data, random_values
from benchmarks.ours import Jobmeter
from benchmarks.questions import now_ms


def verb_rate(ours: Jobmeter, hours: float) -> float:
    """Return the samples a second at which ``jobmeter import`` imports 128 series over ``hours``."""
    data = random_values(now_ms(), hours, "file", 9)
    with tempfile.TemporaryDirectory() as place:
        return data.samples / import_file(ours, _parquet(data, Path(place) / "samples.parquet"))


def import_file(ours: Jobmeter, file: Path) -> float:
    """Import a file with ``jobmeter import`` and return the duration in seconds.

    Raises RuntimeError unless every row was accepted.
    """
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
