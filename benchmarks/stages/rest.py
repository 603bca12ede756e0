"""Memory of an idle server, and the time from its start to the first answer."""

import time
from collections.abc import Sequence

from benchmarks import processes
from benchmarks.client import answer
from benchmarks.contestant import Contestant, running
from benchmarks.data import HOUR_MS, STEP_MS, utilization
from benchmarks.ours import JobmeterOfTwo
from benchmarks.peers import contestants
from benchmarks.plan import Plan
from benchmarks.questions import live, now_ms
from benchmarks.row import Table

_SERIES = 128
_QUIET_SECONDS = 60.0
"""Seconds of rest before memory is read, enough for the periodic background work to have run."""


def measure(plan: Plan, table: Table) -> None:
    """Measure the memory of an empty server, then starts with ``plan.start_samples`` stored samples.

    One live query follows each start, and the memory with these samples is read at the end.
    """
    with running(contestants()) as everybody:
        _memory(table, "rest.memory", everybody)
    with running([JobmeterOfTwo()]) as everybody:
        _memory(table, "rest.processes", everybody)
    with running(contestants(prometheus=False)) as everybody:
        data = utilization(now_ms(), plan.start_samples / _SERIES * STEP_MS / HOUR_MS)
        for one in everybody:
            one.load(data)
        for turn in plan.turns(everybody):
            for _, one in turn:
                one.stop()
                table.add("rest.start", one.name, one.start())
                request, begin = one.request(one.path(live(data.job, now_ms())[3])), time.perf_counter()
                answer(request)
                table.add("rest.first", one.name, (time.perf_counter() - begin) * 1000)
        _memory(table, "rest.stored", everybody)


def _memory(table: Table, key: str, everybody: Sequence[Contestant]) -> None:
    time.sleep(_QUIET_SECONDS)
    for one in everybody:
        table.add(key, one.name, processes.resident_megabytes(one.pid))
