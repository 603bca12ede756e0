"""Live queries: the last hour of one replica's devices, while samples of the same job arrive."""

import contextlib
import itertools
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence

from benchmarks.agreement import disagreement
from benchmarks.client import drive
from benchmarks.contestant import Contestant, running
from benchmarks.data import Data, Names, job_names, utilization
from benchmarks.ours import Jobmeter, JobmeterOfTwo
from benchmarks.peers import contestants
from benchmarks.plan import Plan
from benchmarks.questions import LIVE_STEP_S, REPLICAS, fine, now_ms
from benchmarks.questions import live as questions
from benchmarks.row import Table
from benchmarks.stream import Stream

CONNECTIONS = 16
MANY_SERIES, MANY_REQUESTS = 10_000, 10
_WARM_SECONDS = 2.0


def live(plan: Plan, table: Table) -> None:
    """Measure live queries that never repeat, then one query that always repeats.

    Each of the 16 replicas has a writer that sends one request a second.
    """
    with _loaded(plan) as (everybody, day), Stream(everybody, day.names(), REPLICAS) as stream:
        table.note("live.p50", f"{stream.wanted} samples/s of the job arrive in {REPLICAS} requests")
        for one in everybody:
            drive(one.port, [one.messages(questions(day.job))], plan.seconds / 2)  # warm-up, not counted
        for turn in plan.turns(everybody):
            for place, one in turn:
                with stream.to(place):
                    _add(table, "live", one, day, plan)
                    # VictoriaMetrics caches only ranges whose bounds are multiples of the step.
                    same = one.message(questions(day.job, now_ms() // (LIVE_STEP_S * 1000) * LIVE_STEP_S * 1000)[3])
                    again = drive(one.port, [itertools.repeat(same)], plan.seconds)
                    many = drive(one.port, [itertools.repeat(same)] * CONNECTIONS, plan.seconds)
                table.add("live.cached", one.name, again.latency.p50)
                table.add("live.cached.rate", one.name, many.rate)
        _agree(table, "live", everybody, day)
        table.note("live.p50", stream.late)
        for ours in everybody:
            if isinstance(ours, Jobmeter):
                vendor = drive(ours.port, [itertools.repeat(ours.vendor(day.job).encode())], plan.seconds)
                table.add("live.vendor", ours.name, vendor.latency.p50)


def processes(plan: Plan, table: Table) -> None:
    """Measure live queries to a server with two worker processes."""
    with _loaded(plan, JobmeterOfTwo) as (everybody, day), Stream(everybody, day.names(), REPLICAS) as stream:
        for one in everybody:
            drive(one.port, [one.messages(questions(day.job))] * CONNECTIONS, plan.seconds / 2)  # warms both workers
        for turn in plan.turns(everybody):
            for place, one in turn:
                with stream.to(place):
                    _add(table, "processes", one, day, plan)
        _agree(table, "processes", everybody, day)


def loaded(plan: Plan, table: Table) -> None:
    """Measure live queries while 10,000 series, the queried ones among them, get a sample a second."""
    with _loaded(plan) as (everybody, day):
        beside: list[Names] = job_names("gpu.power", "beside", MANY_SERIES // 8, 8)
        with Stream(everybody, [*day.names(), *beside][:MANY_SERIES], MANY_REQUESTS) as stream:
            time.sleep(_WARM_SECONDS)
            for turn in plan.turns(everybody):
                for place, one in turn:
                    with stream.to(place):
                        asked = drive(one.port, [one.messages(questions(day.job))], 2 * plan.seconds)
                    table.add("loaded.p50", one.name, asked.latency.p50)
                    table.add("loaded.p99", one.name, asked.latency.p99)
            _agree(table, "loaded", everybody, day)
            table.note("loaded.p99", stream.late)


def busy(plan: Plan, table: Table) -> None:
    """Measure live queries while ``plan.busy`` other processes keep CPU cores busy."""
    table.note("busy.p50", f"{plan.busy} processes compute beside")
    with _loaded(plan) as (everybody, day), Stream(everybody, day.names(), REPLICAS) as stream:
        for turn in plan.turns(everybody):
            for place, one in turn:
                with stream.to(place), computing(plan.busy):
                    _add(table, "busy", one, day, plan)
        _agree(table, "busy", everybody, day)


@contextlib.contextmanager
def computing(processes: int) -> Iterator[None]:
    """Run ``processes`` processes in busy loops while the context lasts."""
    with contextlib.ExitStack() as stack:
        for _ in range(processes):
            process = stack.enter_context(subprocess.Popen([sys.executable, "-c", "while True: pass"]))
            stack.callback(process.kill)
        yield


def _add(table: Table, prefix: str, one: Contestant, day: Data, plan: Plan) -> None:
    asked = one.messages(questions(day.job))
    single = drive(one.port, [asked], plan.seconds)
    many = drive(one.port, [asked] * CONNECTIONS, plan.seconds)
    table.add(f"{prefix}.p50", one.name, single.latency.p50)
    table.add(f"{prefix}.p99", one.name, single.latency.p99)
    table.add(f"{prefix}.rate", one.name, many.rate)
    table.add(f"{prefix}.rate.p99", one.name, many.latency.p99)
    table.add(f"{prefix}.rate.client", one.name, many.share)


@contextlib.contextmanager
def _loaded(plan: Plan, ours: type[Jobmeter] = Jobmeter) -> Iterator[tuple[Sequence[Contestant], Data]]:
    day = utilization(now_ms(), plan.day_hours)
    with running(contestants(ours)) as everybody:
        for one in everybody:
            one.load(day)
        yield everybody, day


def _agree(table: Table, prefix: str, everybody: Sequence[Contestant], day: Data) -> None:
    for one in everybody:
        one.flush()
    now = now_ms()
    for asked in (*questions(day.job, now), fine(day.job, now)):
        table.fail(f"{prefix}.", disagreement(everybody, asked, day.gpus))
