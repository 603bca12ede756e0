"""Export of all raw samples of a job's day in one request."""

import time

from benchmarks import processes
from benchmarks.agreement import differing
from benchmarks.client import drain
from benchmarks.contestant import Contestant, Points, running
from benchmarks.data import utilization
from benchmarks.peers import contestants
from benchmarks.plan import Plan
from benchmarks.questions import Asked, now_ms
from benchmarks.row import Table


def measure(plan: Plan, table: Table) -> None:
    """Measure the exported samples a second, and how many MiB the server's peak memory rises.

    The samples of the last round are compared between the contestants.
    """
    day = utilization(now_ms(), plan.day_hours)
    asked = Asked(day.job, day.end_ms + 1, plan.day_hours, 15, "device")
    with running(contestants()) as everybody:
        for one in everybody:
            one.load(day)
        bodies = dict[str, bytes]()
        for turn in plan.turns(everybody):
            for _, one in turn:
                processes.forget_peak(one.pid)
                before = processes.peak_megabytes(one.pid)
                bodies[one.name], seconds = _fetch(one, asked)
                table.add("export.rate", one.name, day.samples / seconds)
                table.add("export.memory", one.name, max(0.0, processes.peak_megabytes(one.pid) - before))
        table.fail(
            "export.", _difference([(one.name, one.exported(bodies[one.name])) for one in everybody], day.samples)
        )


def _fetch(one: Contestant, asked: Asked) -> tuple[bytes, float]:
    request, begin = one.request(one.export(asked)), time.perf_counter()
    pieces = list(drain(request))
    return b"".join(pieces), time.perf_counter() - begin


def _difference(found: list[tuple[str, Points]], samples: int) -> str:
    for name, points in found:
        count = sum(map(len, points.values()))
        if count != samples:
            return f"{name} exports {count:,} samples instead of {samples:,}"
        if reason := differing(found[0][1], points):
            return f"{name} disagrees: {reason}"
    return ""
