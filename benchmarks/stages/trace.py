"""Import and size on disk of a real trace, GenTD26.

Jobmeter imports the trace with ``jobmeter import``, VictoriaMetrics with its JSON import.
"""

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.client import Post, drive
from benchmarks.contestant import running, settled
from benchmarks.data import Names
from benchmarks.ours import Jobmeter
from benchmarks.peers import contestants, json_line, numbers
from benchmarks.plan import Plan
from benchmarks.questions import now_ms
from benchmarks.row import Table
from benchmarks.stages.verb import import_file


def measure(plan: Plan, table: Table) -> None:
    """Measure the trace in ``plan.gentd26``; do nothing without that folder or without archives in it."""
    if plan.gentd26 is None or not any(plan.gentd26.glob("*.tgz")):
        return
    from jobmeter.examples.gentd26 import convert

    with tempfile.TemporaryDirectory() as place, running(contestants(prometheus=False)) as everybody:
        file = Path(place) / "gentd26.parquet"
        count, _ = convert(plan.gentd26, file, now_ms())
        for one in everybody:
            if isinstance(one, Jobmeter):
                table.add("trace.verb", one.name, count / import_file(one, file))
            else:
                where = Post(one.port, "/api/v1/import", {})
                drive(one.port, [iter([where.encode(b"".join(_lines(pq.read_table(file))))])])
        for name, size in settled(dict.fromkeys(everybody, count)).items():
            table.add("trace.raw", name, size / count)
        for one in everybody:
            table.add("trace.folder", one.name, one.disk() / count)


def _lines(table: pa.Table) -> list[bytes]:
    """Return the samples of a table for VictoriaMetrics' JSON import, one line for each series."""
    names = ("metric", "replica", "device")
    ordered = table.sort_by([(name, "ascending") for name in (*names, "time")])
    metric, replica, device = (np.array(ordered[name].to_pylist(), object) for name in names)
    time_ms, value = ordered["time"].to_numpy(), ordered["value"].to_numpy()
    changed = [column[1:] != column[:-1] for column in (metric, replica, device)]
    starts = np.flatnonzero(np.append(True, np.logical_or.reduce(changed)))
    lines = []
    for start, end in zip(starts, np.append(starts[1:], len(metric)), strict=True):
        series = Names(metric[start], "gentd26", replica[start], "", str(device[start]))
        lines.append(json_line(series, numbers(time_ms[start:end]), value[start:end]))
    return lines
