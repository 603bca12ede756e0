"""Counts of stored samples, to check that each acknowledged sample is stored once."""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from benchmarks.client import answer
from benchmarks.ours import API, Jobmeter
from benchmarks.soak.fleet import Fleet

_AT_ONCE = 20
"""Metrics of one query."""


@dataclass(frozen=True)
class Found:
    """Samples that queries count, and rows of the table. A duplicate sample is a row of its own until a merge."""

    counted: int
    rows: int


def found(ours: Jobmeter, fleet: Fleet, start_ms: int, end_ms: int, expected: int, patience: float = 120.0) -> Found:
    """Count the samples of every job in ``[start_ms, end_ms)`` by queries, and the rows of the table.

    Waits at most ``patience`` seconds until the table has ``expected`` rows.
    """
    counted = sum(_count(ours, fleet, job, (start_ms, end_ms)) for job in fleet.jobs)
    deadline = time.monotonic() + patience
    rows = _rows(ours)
    while rows != expected and time.monotonic() < deadline:
        time.sleep(2)
        rows = _rows(ours)
    return Found(counted, rows)


def _rows(ours: Jobmeter) -> int:
    return int(ours.status()["rows"]["samples"])


def _count(ours: Jobmeter, fleet: Fleet, job: str, span: tuple[int, int]) -> int:
    names = fleet.names()[0]
    return sum(_ask(ours, job, names[at : at + _AT_ONCE], span) for at in range(0, len(names), _AT_ONCE))


def _ask(ours: Jobmeter, job: str, metrics: Sequence[str], span: tuple[int, int]) -> int:
    asked = [("metric", metric) for metric in metrics]
    asked += [("start", str(span[0])), ("end", str(span[1])), ("step", "1h"), ("by", "device")]
    asked += [("statistic", "count"), ("aggregate", "sum")]
    result = json.loads(answer(ours.request(f"{API}/jobs/{job}/metrics?{urlencode(asked)}")))
    return round(sum(float(point[1]) for one in result["lines"] for point in one["points"]))
