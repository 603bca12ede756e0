"""Readers: live queries of job after job, and the list of jobs, at a constant rate."""

import time
from collections.abc import Mapping
from urllib.parse import urlencode

from benchmarks.client import Connection, RefusedError, Request
from benchmarks.ours import API
from benchmarks.soak.fleet import Fleet
from benchmarks.soak.tally import Reports, Tally

_NOT_YET = 404
"""Status of a job that is still unknown, because its first sample has not arrived yet."""


def run(port: int, headers: Mapping[str, str], fleet: Fleet, rate: float, end: float, reports: Reports) -> None:
    """Send ``rate`` live queries and one list of jobs a second until ``end`` (epoch seconds).

    Reports a tally of the latencies each second. Raises RefusedError for a status other than 2xx and 404.
    """
    turn, begin, tally = 0, time.perf_counter(), Tally()
    with Connection(port) as connection:
        while time.time() < end:
            wait = begin + turn / (rate + 1) - time.perf_counter()
            if wait > 0:
                time.sleep(wait)
            else:  # behind schedule: the schedule moves, instead of a burst of late queries
                begin -= wait
            kind = "list" if turn % round(rate + 1) == 0 else "live"
            path = f"{API}/jobs?limit=50" if kind == "list" else _live(fleet, turn)
            asked = time.perf_counter()
            try:
                connection.ask(Request(port, path, headers).encode())
            except RefusedError as error:
                if error.status != _NOT_YET:
                    raise
            else:
                tally.note(kind, (time.perf_counter() - asked) * 1000)
            if kind == "list":
                reports.put(tally)
                tally = Tally()
            turn += 1
    reports.put(tally)


def _live(fleet: Fleet, turn: int) -> str:
    job = turn * 7 % len(fleet.jobs)
    asked = {"metric": "gpu.utilization", "since": "1h", "step": "5m", "by": "device"}
    asked["replica"] = f"worker-{turn % fleet.replicas(job)}"
    return f"{API}/jobs/{fleet.jobs[job]}/metrics?{urlencode(asked)}"
