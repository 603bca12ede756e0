"""Questions: live, day, month, raw export; and what the servers take while they are asked."""

import contextlib
import time
from collections.abc import Sequence

from benchmarks import processes
from benchmarks.agent import agent_rows
from benchmarks.agreement import compare
from benchmarks.client import Request, answer, latency
from benchmarks.contestant import Asked, Contestant
from benchmarks.data import Data, utilization
from benchmarks.everybody import peers
from benchmarks.ours import Jobmeter
from benchmarks.plan import Plan
from benchmarks.questions import live, long, same
from benchmarks.row import FASTER, HALF, MORE, PROMETHEUS, TENTH, Row, higher, lower
from benchmarks.stages.busy import busy_rows
from benchmarks.stages.export import export_rows
from benchmarks.stages.importing import tier_rows
from benchmarks.wrk import load

LONG_JOB = "long"


def rows(plan: Plan) -> list[Row]:
    """Everybody gets a job of a day, and all but Prometheus one of a week or a month."""
    now = time.time_ns() // 1_000_000
    day, far = utilization(now, 25), utilization(now, plan.hours + 1, LONG_JOB)
    print(f"asking: {day.samples:,} samples of a day, {far.samples:,} of {plan.hours / 24:g} days", flush=True)
    with contextlib.ExitStack() as stack:
        ours = Jobmeter()
        everybody: list[Contestant] = [ours, *peers()]
        starts = lower("start-up, empty folder", "s")
        for one in everybody:
            starts.add(one.name, _started(stack, one))
        rest = _memory(everybody, "memory at rest, nothing stored")
        loading = _load(everybody, day, far, plan)
        agent = agent_rows(ours, plan.agent_seconds)
        _wait(ours, day, far, plan)
        for one in everybody:
            processes.forget_peak(one.pid)
        asked = _ask(everybody, day, far, plan)
        extra = lower("live through PAI-DLC GetJobMetrics, 16 replicas, p50", "ms")
        extra.add(ours.name, latency([ours.dialect(day.job)], plan.seconds).p50)
        asked += [extra, *busy_rows(everybody, day, plan), *_peaks(everybody)]
        asked += export_rows(everybody, day, plan)
        tiers = tier_rows(ours, "random walk")
        starts_full = _restart(everybody, day, far, plan)
    return [*asked, *loading, *tiers, starts, *starts_full, rest, *agent]


def _started(stack: contextlib.ExitStack, one: Contestant) -> float:
    seconds = one.start()
    stack.push(one)
    return seconds


def _memory(everybody: Sequence[Contestant], name: str) -> Row:
    time.sleep(2)
    row = lower(name, "MiB")
    for one in everybody:
        row.add(one.name, processes.resident_megabytes(one.pid))
    return row


def _peaks(everybody: Sequence[Contestant]) -> list[Row]:
    now, most = _memory(everybody, "memory after the questions"), lower("memory while asked, the most", "MiB")
    for one in everybody:
        most.add(one.name, processes.peak_megabytes(one.pid))
    return [now, most]


def _load(everybody: Sequence[Contestant], day: Data, far: Data, plan: Plan) -> list[Row]:
    row = higher(f"import of {plan.hours / 24:g} days, durable", "samples/s", note="in the bars: the rounds of its own")
    for one in everybody:
        one.load(day)
        if one.name != PROMETHEUS:
            seconds = one.load(far)
            row.add(one.name, far.samples / seconds if seconds else None)
    return [row]


def _wait(ours: Jobmeter, day: Data, far: Data, plan: Plan) -> None:
    ours.wait_for_roll_ups(Asked(day.job, day.end_ms, 24, 300, "replica"), "minute")
    ours.wait_for_roll_ups(Asked(far.job, far.end_ms, plan.hours, 3600, "replica"), "hour")


def _ask(everybody: Sequence[Contestant], day: Data, far: Data, plan: Plan) -> list[Row]:
    first = lower("live, first ask", "ms")
    for one in everybody:
        first.add(one.name, _once(one.requests(same(day.job, day.end_ms))[0]))
    _compare(everybody, day, far, plan)
    return [first, *_live(everybody, day, plan), *_long(everybody, day, far, plan)]


def _compare(everybody: Sequence[Contestant], day: Data, far: Data, plan: Plan) -> None:
    compare(everybody, same(day.job, day.end_ms)[0], day.gpus)
    compare(everybody, Asked(day.job, day.end_ms, 24, 300, "replica"), day.replicas)
    compare(everybody, Asked(day.job, day.end_ms, 24, 300, "device"), day.replicas * day.gpus)
    long_lived = [one for one in everybody if one.name != PROMETHEUS]
    compare(long_lived, Asked(far.job, far.end_ms, plan.hours, 3600, "replica"), far.replicas)


def _live(everybody: Sequence[Contestant], day: Data, plan: Plan) -> list[Row]:
    p50, p99 = lower("live, 1 connection, p50", "ms", FASTER), lower("live, 1 connection, p99", "ms")
    rate, p50_16 = higher("live, 16 connections", "answers/s", MORE), lower("live, 16 connections, p50", "ms")
    p99_16, again = lower("live, 16 connections, p99", "ms"), lower("live, the same question again, p50", "ms")
    questions = live(day.job, day.end_ms)
    for everyone in plan.turns(everybody):
        for one in everyone:
            asked = one.requests(questions)
            measured = latency(asked, plan.seconds)
            p50.add(one.name, measured.p50)
            p99.add(one.name, measured.p99)
            again.add(one.name, latency(one.requests(same(day.job, day.end_ms)), plan.seconds / 2).p50)
            many = load(asked, 16, plan.seconds + 0.5)
            if many:
                rate.add(one.name, many.rate)
                p50_16.add(one.name, many.p50)
                p99_16.add(one.name, many.p99)
    return [p50, p99, rate, p50_16, p99_16, again]


def _long(everybody: Sequence[Contestant], day: Data, far: Data, plan: Plan) -> list[Row]:
    by_replica, by_gpu = lower("day by replica, p50", "ms", HALF), lower("day by GPU, p50", "ms", HALF)
    far_rows = _far_rows(plan)
    for everyone in plan.turns(everybody):
        for one in everyone:
            for row, by in ((by_replica, "replica"), (by_gpu, "device")):
                row.add(one.name, latency(one.requests(long(day.job, day.end_ms, 24, 300, by)), plan.seconds).p50)
            if one.name != PROMETHEUS:
                asked = long(far.job, far.end_ms, plan.hours, 3600, "replica")
                for row, afresh in zip(far_rows, (False, True), strict=True):
                    row.add(one.name, latency(one.requests(asked, afresh=afresh), plan.seconds).p50)
    return [by_replica, by_gpu, *far_rows]


def _far_rows(plan: Plan) -> list[Row]:
    """The bar is for a peer that works the answer out: one that is kept from the question before says little."""
    name, bar = ("month", TENTH) if plan.hours >= 24 * 30 else (f"{plan.hours / 24:g} days", None)
    return [
        lower(f"{name} by replica, 1 h steps, p50", "ms"),
        lower(f"{name} by replica, peer without its result cache, p50", "ms", bar),
    ]


def _restart(everybody: Sequence[Contestant], day: Data, far: Data, plan: Plan) -> list[Row]:
    """Each is stopped and started again on what it has, filled up to what the plan wants."""
    missing = plan.start_samples - day.samples - far.samples
    if missing > 0:
        hours = missing / (far.samples / (plan.hours + 1))
        for one in everybody:
            if one.name != PROMETHEUS:
                one.load(utilization(far.end_ms, hours, "more"))
    stored = max(plan.start_samples, day.samples + far.samples)
    row = lower(f"start-up, {stored / 1e6:.0f} million samples stored", "s")
    first = lower("first live answer after that start", "ms")
    days = f"{plan.hours / 24:g} days"
    farthest = lower(f"first answer of {days} after that start", "ms", note="the peer without its result cache")
    far_asked = [Asked(far.job, far.end_ms, plan.hours, 3600, "replica")]
    for everyone in plan.turns(everybody):
        for one in everyone:
            if one.name == PROMETHEUS:
                continue
            one.stop()
            row.add(one.name, one.start())
            first.add(one.name, _once(one.requests(same(day.job, day.end_ms))[0]))
            farthest.add(one.name, _once(one.requests(far_asked, afresh=True)[0]))
    return [
        row,
        first,
        farthest,
        _memory([one for one in everybody if one.name != PROMETHEUS], "memory after that start"),
    ]


def _once(request: Request) -> float:
    begin = time.perf_counter()
    answer(request)
    return (time.perf_counter() - begin) * 1000
