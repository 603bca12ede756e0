"""PromQL queries to every contestant: instants, rates and windows over an hour and a day, and a live panel."""

import json
from collections.abc import Iterator, Mapping, Sequence
from urllib.parse import urlencode

import numpy as np

from benchmarks.client import answer, drive
from benchmarks.contestant import Contestant, running
from benchmarks.data import Data, utilization
from benchmarks.ours import Jobmeter
from benchmarks.peers import contestants
from benchmarks.plan import Plan
from benchmarks.questions import LIVE_STEP_S, REPLICAS, Asked, moving, now_ms
from benchmarks.row import Table

INSTANTS: Mapping[str, str] = {
    "instant": "{gauge}",
    "hour.rate": "rate({counter}[1h])",
    "hour.max": "max_over_time({gauge}[1h])",
    "day.rate": "sum by (replica) (rate({counter}[{day}h]))",
    "day.max": "max_over_time({gauge}[{day}h])",
}
"""Instant queries of 128 series, by the end of their row's key."""
_PANEL = "avg by (replica, device) (avg_over_time({gauge}[{step}s]))"
_DIGITS = 9


def promql(plan: Plan, table: Table) -> None:
    """Measure instant queries and live panels.

    Each instant query is for the current time and at least a millisecond later than the one before. A panel shows the
    last hour of one replica in steps of 5 minutes. Prometheus is left out, because it refuses a second metric whose
    samples are a day old.
    """
    gauge = utilization(now_ms(), plan.day_hours + 1)
    counter = Data("cpu.time", gauge.job, gauge.replicas, gauge.gpus, gauge.time, np.cumsum(gauge.value, axis=1))
    with running(contestants(prometheus=False)) as everybody:
        for one in everybody:
            for data in (gauge, counter):
                one.load(data)
            if isinstance(one, Jobmeter):
                one.wait_for_roll_ups(Asked(gauge.job, gauge.end_ms, plan.day_hours, 300, "replica"), "minute")
        for turn in plan.turns(everybody):
            for _, one in turn:
                for row, query in INSTANTS.items():
                    asked = drive(one.port, [_instants(one, query, plan)], plan.seconds)
                    table.add(f"promql.{row}", one.name, asked.latency.p50)
                panels = [Asked(gauge.job, 0, 1, LIVE_STEP_S, "device", f"worker-{at}") for at in range(REPLICAS)]
                asked = drive(one.port, [_panels(one, panels)], plan.seconds)
                table.add("promql.panel", one.name, asked.latency.p50)
                if isinstance(one, Jobmeter):
                    native = drive(one.port, [one.messages(panels)], plan.seconds)
                    table.add("promql.panel.native", one.name, native.latency.p50)
        _agree(table, everybody, plan, gauge.replicas * gauge.gpus)


def _query(one: Contestant, query: str, plan: Plan, chosen: str = "") -> str:
    ours = isinstance(one, Jobmeter)
    job = f'job_id="bench",project="default"{chosen}' if ours else f'job="bench"{chosen}'
    names = {
        "gauge": "jobmeter_gpu_utilization_ratio" if ours else "gpu_utilization",
        "counter": "jobmeter_cpu_time_seconds_total" if ours else "cpu_time",
    }
    found = query
    for place, name in names.items():
        found = found.replace(f"{{{place}}}", f"{name}{{{job}}}")
    return found.replace("{day}", str(plan.day_hours)).replace("{step}", str(LIVE_STEP_S))


def _path(one: Contestant, verb: str, **parameters: str) -> str:
    prefix = "/prometheus" if isinstance(one, Jobmeter) else ""
    return f"{prefix}/api/v1/{verb}?{urlencode(parameters)}{one.uncached}"


def _instant(one: Contestant, query: str, plan: Plan, at_ms: int) -> str:
    return _path(one, "query", query=_query(one, query, plan), time=f"{at_ms / 1000:.3f}")


def _instants(one: Contestant, query: str, plan: Plan) -> Iterator[bytes]:
    for asked in moving([Asked("bench", 0, 1, 1, "device")]):
        yield one.request(_instant(one, query, plan, asked.end_ms)).encode()


def _panels(one: Contestant, panels: list[Asked]) -> Iterator[bytes]:
    for asked in moving(panels):
        query = _query(one, _PANEL, Plan(), f',replica="{asked.replica}"')
        end = f"{asked.end_ms / 1000:.3f}"
        start = str((asked.start_ms // (asked.step_s * 1000) + 1) * asked.step_s)
        path = _path(one, "query_range", query=query, start=start, end=end, step=str(asked.step_s))
        yield one.request(path).encode()


def _agree(table: Table, everybody: Sequence[Contestant], plan: Plan, series: int) -> None:
    """Void each row whose values differ between the contestants.

    Rates are not compared, because VictoriaMetrics defines them differently.
    """
    now = now_ms()
    for row in ("instant", "hour.max", "day.max"):
        found = []
        for one in everybody:
            body = json.loads(answer(one.request(_instant(one, INSTANTS[row], plan, now))))
            found.append(sorted(round(float(line["value"][1]), _DIGITS) for line in body["data"]["result"]))
        if any(len(values) != series or values != found[0] for values in found):
            table.fail(f"promql.{row}", "the answers differ")
