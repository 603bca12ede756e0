"""A real trace, GenTD26: what its samples take on disk, through the verb here and through the JSON import there."""

import contextlib
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.client import Post, post_all
from benchmarks.data import Names
from benchmarks.install import installed
from benchmarks.ours import Jobmeter
from benchmarks.peers import VictoriaMetrics, json_line
from benchmarks.plan import Plan
from benchmarks.row import Row, higher
from benchmarks.stages.importing import import_file, size_rows


def rows(plan: Plan) -> list[Row]:
    """Nothing where the trace is not there."""
    if plan.gentd26 is None or not any(plan.gentd26.glob("*.tgz")):
        return []
    from jobmeter.examples.gentd26 import convert

    print(f"trace: {plan.gentd26}", flush=True)
    verb = higher("jobmeter import of GenTD26, end to end", "samples/s")
    with tempfile.TemporaryDirectory() as place, contextlib.ExitStack() as stack:
        file = Path(place) / "gentd26.parquet"
        count, _ = convert(plan.gentd26, file, time.time_ns() // 1_000_000)
        ours = stack.enter_context(Jobmeter())
        verb.add(ours.name, count / import_file(ours, file))
        peers = [stack.enter_context(VictoriaMetrics())] if installed("victoria-metrics") else []
        for victoria in peers:
            post_all(Post(victoria.port, "/api/v1/import", {}), [_lines(pq.read_table(file))])
            victoria.settle()
        sizes = size_rows([ours, *peers], dict.fromkeys((ours.name, *(one.name for one in peers)), count), "GenTD26")
        for row in sizes:
            row.bar = None  # the bar is for random values
        return [verb, *sizes]


def _lines(table: pa.Table) -> list[bytes]:
    """The table as VictoriaMetrics' JSON import takes it, a line a series."""
    names = ("metric", "replica", "device")
    ordered = table.sort_by([(name, "ascending") for name in (*names, "time")])
    metric, replica, device = (np.array(ordered[name].to_pylist(), object) for name in names)
    time_ms, value = ordered["time"].to_numpy(), ordered["value"].to_numpy()
    changed = [column[1:] != column[:-1] for column in (metric, replica, device)]
    starts = np.flatnonzero(np.append(True, np.logical_or.reduce(changed)))
    lines = []
    for start, end in zip(starts, np.append(starts[1:], len(metric)), strict=True):
        series = Names(metric[start], "gentd26", replica[start], "", str(device[start]))
        lines.append(json_line(series, time_ms[start:end], value[start:end]))
    return lines
