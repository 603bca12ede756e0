"""Current usage of jobs and their members as cells, for the tables and the screens of ``jobmeter top``."""

from collections.abc import Sequence
from typing import NamedTuple

from jobmeter.cli.output import format_duration
from jobmeter.client.api import Api
from jobmeter.errors import NotFoundError
from jobmeter.model import catalog
from jobmeter.model.answers import LatestValue
from jobmeter.model.job import Job
from jobmeter.model.quantity import format_quantity

COLUMNS = tuple((metric.column.lower(), metric.name) for metric in catalog.METRICS if metric.column)
SPARE = ("user", "disk read", "net in", "disk write", "net out", "power", "npu memory", "gpu memory", "name", "memory")
"""Columns that a narrow terminal hides, in this order."""
BUSY = tuple(
    sorted(
        catalog.list_shown(catalog.Display.USE),
        key=lambda name: catalog.CATALOG[name].scope is not catalog.MetricScope.DEVICE,
    )
)
"""Metrics that measure how busy a job is, devices first; the first one available is used."""
ALTERNATIVES = {f"{prefix}.utilization": f"{prefix}.sm.active" for prefix in ("gpu", "npu")}
"""Metrics for devices without the metric: a MIG instance has no utilization."""
MISSING = "-"


class Joined(NamedTuple):
    """Combined value of several members; None if no member was measured."""

    value: float | None
    unit: str = ""

    @property
    def text(self) -> str:
        """Value as text; a dash if unknown."""
        return format_quantity(self.value, self.unit)


def join_values(values: Sequence[LatestValue], metric: str) -> Joined:
    """Combine the members' values of a metric: the sum if the unit adds up, else the mean.

    If no member has the metric its alternative counts.
    """
    found = [value for value in values if value.metric == metric]
    found = found or [value for value in values if value.metric == ALTERNATIVES.get(metric)]
    if not found:
        return Joined(None)
    total = sum(value.value for value in found)
    described = catalog.find(metric)
    adds = described is not None and described.on_node is catalog.Aggregate.SUM
    return Joined(total if adds else total / len(found), found[0].unit)


def load(values: Sequence[LatestValue]) -> list[float]:
    """Return the sort key by which the busiest jobs come first."""
    return [join_values(values, metric).value or 0.0 for metric in BUSY]


def format_cells(values: Sequence[LatestValue]) -> list[str]:
    """Format the current usage, a cell for each of ``COLUMNS``."""
    return [join_values(values, metric).text for _, metric in COLUMNS]


def read_newest(api: Api, job: Job) -> list[LatestValue]:
    """Return the newest values of a job's devices and replicas; empty if it was deleted meanwhile."""
    try:
        return api.read_latest(job.id, by="device", project=job.project)
    except NotFoundError:
        return []


def find_start(job: Job) -> int | None:
    """Return the start of a job, else its first sample."""
    return job.start if job.start is not None else job.first_sample


def find_end(job: Job) -> int | None:
    """Return the end of a job, else its last sample."""
    return job.end if job.end is not None else job.last_sample


def format_age(job: Job, now_ms: int) -> str:
    """Format the run time of a job."""
    start, end = find_start(job), find_end(job)
    until = end if job.state.finished and end is not None else now_ms
    return MISSING if start is None else format_duration(max(until - start, 0))
