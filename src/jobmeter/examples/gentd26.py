"""Imports a real trace, 22.8 hours of production GPU pods, and queries it through two APIs.

``python -m jobmeter.examples.gentd26 --directory FOLDER``

The trace is the GenAI Serving Top-Down Dataset 2026 of https://github.com/alibaba/clusterdata (folder
cluster-trace-v2026-GenAI; SoCC '25, "Understanding Diffusion Model Serving in Production"): GPU duty cycle, GPU memory
and memory utilisation, a point every 57 s, as one CSV file in each of three archives. It becomes one job with a replica
for each pod, shifted so that it ends now.
"""

import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import click
import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from jobmeter.cli.main import cli
from jobmeter.client.api import Api
from jobmeter.errors import ConfigurationError, JobmeterError
from jobmeter.examples import compare
from jobmeter.examples.acs3 import KeyPair
from jobmeter.examples.server import run_server
from jobmeter.model.time import HOUR, MINUTE, SystemClock, floor_to

JOB = "gentd26"
_FILES = (
    ("pod_gpu_duty_cycle_anon", "gpu.utilization", "gpu0", 0.01),
    ("pod_gpu_memory_used_bytes_anon", "gpu.memory.usage", "gpu0", 1.0),
    ("pod_memory_util_anon", "memory.utilization", "", 1.0),
)


@click.command()
@click.option(
    "--directory",
    type=click.Path(path_type=Path),
    envvar="JOBMETER_GENTD26",
    required=True,
    help="The folder with the trace's archives (JOBMETER_GENTD26).",
)
def command(directory: Path) -> None:
    """Import the trace into a server of its own and query it through two APIs."""
    clock = SystemClock()
    with tempfile.TemporaryDirectory(prefix="jobmeter-") as folder:
        file = Path(folder) / "gentd26.parquet"
        rows, end_ms = convert(directory, file, clock.now_ms())
        click.echo(f"{rows:,} samples in {directory}, shifted to end now")
        record = Path(folder) / "gentd26.jsonl"
        record.write_text(f'{{"job_id": "{JOB}", "name": "GenTD26", "type": "Serving"}}\n')
        with run_server() as server:
            click.echo(f"\n$ jobmeter import {file.name} {record.name}")
            reach = ["--server", server.api.transport.server, "--key", server.token]
            cli.main(["import", str(record), str(file), *reach], standalone_mode=False)
            click.echo(f"\n$ jobmeter show {JOB}")
            cli.main(["show", JOB, *reach], standalone_mode=False)
            agree = _compare(server.api, server.pair, floor_to(end_ms - 2 * HOUR, HOUR))
    sys.exit(0 if agree else 1)


def convert(directory: Path, file: Path, end_ms: int) -> tuple[int, int]:
    """Write the trace as one Parquet file for ``jobmeter import``. Return the number of its rows and its last time.

    Times are moved by whole minutes so that the last sample is at most ``end_ms``. Raises ConfigurationError if an
    archive is missing.
    """
    tables = [(_read(directory / f"{name}.tgz"), metric, device, factor) for name, metric, device, factor in _FILES]
    latest = max(int(table["timestamp_anon"].to_numpy().max()) for table, *_ in tables) * 1000
    shift = floor_to(end_ms - latest, MINUTE)
    parts = [_part(table, metric, device, factor, shift) for table, metric, device, factor in tables]
    joined = pa.concat_tables(parts)
    pq.write_table(joined, file, compression="zstd")
    return len(joined), latest + shift


def _read(archive: Path) -> pa.Table:
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                content = tar.extractfile(member)
                if content is not None:
                    return pa_csv.read_csv(content)
    except OSError as error:
        raise ConfigurationError(
            f"{archive} cannot be read ({error.strerror}): name the folder with --directory"
        ) from error
    raise ConfigurationError(f"{archive} holds no file")


def _part(table: pa.Table, metric: str, device: str, factor: float, shift: int) -> pa.Table:
    # A percentage times 0.01 carries binary noise that 12 significant digits do not.
    values = [float(f"{value * factor:.12g}") for value in table["value"].to_numpy().tolist()]
    rows = len(table)
    columns: dict[str, Any] = {
        "job_id": pa.array([JOB] * rows),
        "replica": table["container_ip"],
        "node": pa.array([""] * rows),
        "device": pa.array([device] * rows),
        "metric": pa.array([metric] * rows),
        "time": np.rint(table["timestamp_anon"].to_numpy() * 1000).astype(np.int64) + shift,
        "value": pa.array(values),
    }
    return pa.table(columns)


def _compare(api: Api, key: KeyPair, start_ms: int) -> bool:
    agree = True
    for names in (compare.GPU, compare.MEMORY):
        click.echo(f"\none hour of every pod: {names.metric} here, {names.metric_type} there")
        agree &= compare.compare_answers(api, key, compare.Same(names, JOB, start_ms, start_ms + HOUR, "5m"))
    return agree


def main() -> None:
    """Run the example; a failure is one line."""
    try:
        command.main(prog_name="python -m jobmeter.examples.gentd26")
    except JobmeterError as error:
        click.echo(f"gentd26: {error.message}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
