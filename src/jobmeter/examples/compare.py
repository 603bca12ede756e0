"""Queries Jobmeter's own API and the PAI-DLC API for the same metric and shows the answers side by side."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import quote, urlencode

import click
import msgspec

from jobmeter.client.api import Api
from jobmeter.client.searches import MetricSearch
from jobmeter.client.transport import API
from jobmeter.examples import acs3
from jobmeter.model.time import SystemClock, format_iso

PAI_DLC = "2020-12-03"
ROWS = 8
"""Number of values of each answer that are shown."""
_Points = Mapping[tuple[str, int], float]


class _Metric(msgspec.Struct):
    Time: int
    Value: float


class _Pod(msgspec.Struct):
    PodId: str
    Metrics: list[_Metric]


class _JobMetrics(msgspec.Struct):
    JobId: str
    PodMetrics: list[_Pod]


class Names(NamedTuple):
    """Names of a metric in both APIs. ``factor`` converts our unit to theirs."""

    metric: str
    metric_type: str
    unit: str
    factor: float


CPU = Names("cpu.utilization", "CpuCoreUsage", "%", 100.0)
MEMORY = Names("memory.utilization", "MemoryUsage", "%", 100.0)
GPU = Names("gpu.utilization", "GpuCoreUsage", "%", 100.0)
DISK_WRITE = Names("disk.write", "DiskWriteRate", "MB/s", 1e-6)


@dataclass(frozen=True, slots=True)
class Same:
    """A question to both APIs. Times in epoch ms, whole seconds."""

    names: Names
    job: str
    start_ms: int
    end_ms: int
    step: str


def compare_answers(api: Api, key: acs3.KeyPair, same: Same) -> bool:
    """Query both APIs and show the first values of both answers. Return True if the answers agree.

    Answers without values do not agree.
    """
    native, pai = _native(api, same), _pai_dlc(api, key, same)
    metric, metric_type, unit, factor = same.names
    shown = _rows_to_show(native, pai)[:ROWS]
    wide = max((len(replica) for replica, _ in shown), default=7) + 2
    click.echo(f"\n  {'time (UTC)':<22}{'replica':<{wide}}{metric:>20}{metric_type + ', ' + unit:>24}")
    for replica, time in shown:
        ours, theirs = native.get((replica, time)), pai.get((replica, time))
        click.echo(f"  {format_iso(time):<22}{replica:<{wide}}{_text(ours):>20}{_text(theirs):>24}")
    agree = native.keys() == pai.keys() and all(_close(value * factor, pai[at]) for at, value in native.items())
    if not native:
        click.echo("  there are no values")
        return False
    more = f" ({len(native) - ROWS} more not shown)" if len(native) > ROWS else ""
    verdict = f"all {len(native)} values agree" if agree else "the answers DIFFER"
    click.echo(f"  {verdict}: {metric} x {factor:g} = {metric_type}{more}")
    return agree


def _rows_to_show(native: _Points, pai: _Points) -> list[tuple[str, int]]:
    """Return the keys of the answers, (replica, time), sorted: answers that differ from 0 first."""
    places = native.keys() | pai.keys()
    return sorted(places, key=lambda at: (not (native.get(at) or pai.get(at)), at[1], at[0]))


def _native(api: Api, same: Same) -> _Points:
    search = MetricSearch(
        metrics=(same.names.metric,), start=same.start_ms, end=same.end_ms, step=same.step, by="replica"
    )
    click.echo(f"  GET {API}/jobs/{quote(same.job)}/metrics?{urlencode(search.list_parameters())}")
    click.echo("      Authorization: Bearer ...")
    answer = api.read_metrics(same.job, search)
    return {(line.replica, time): value for line in answer.lines for time, value in line.points}


def _pai_dlc(api: Api, key: acs3.KeyPair, same: Same) -> _Points:
    parameters = {
        "MetricType": same.names.metric_type,
        "StartTime": format_iso(same.start_ms),
        "EndTime": format_iso(same.end_ms),
        "TimeStep": same.step,
    }
    path = f"/api/v1/jobs/{quote(same.job, safe='')}/metrics"
    click.echo(f"  GET {path}?{urlencode(parameters)}")
    click.echo(f"      x-acs-action: GetJobMetrics, Authorization: ACS3-HMAC-SHA256 Credential={key.id},...")
    body = acs3.get(api.transport.server, path, parameters, (PAI_DLC, "GetJobMetrics"), key, SystemClock())
    answer = msgspec.convert(body, _JobMetrics)
    return {
        (pod.PodId.removeprefix(f"{answer.JobId}-"), point.Time): point.Value
        for pod in answer.PodMetrics
        for point in pod.Metrics
    }


def _close(one: float, other: float) -> bool:
    return abs(one - other) <= 1e-9 * max(abs(one), abs(other), 1e-3)


def _text(value: float | None) -> str:
    return "-" if value is None else f"{value:.6g}"
