"""Queries of the screens: jobs with their usage, parts of a job, their charts, its findings."""

from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

from jobmeter.cli.output import Curve
from jobmeter.cli.resource_columns import BUSY, load, read_newest
from jobmeter.client.api import Api
from jobmeter.client.bodies import MetricAnswer
from jobmeter.client.searches import JobSearch, MetricSearch
from jobmeter.errors import JobmeterError, NotFoundError
from jobmeter.model.answers import LatestValue
from jobmeter.model.finding import Finding, FindingSummary, Severity
from jobmeter.model.job import Job
from jobmeter.model.time import SECOND, Clock

MOST_JOBS = 50
CURVE_RANGE = "30m"
"""Range of sparklines of a running job; of a finished job its whole life."""
CURVE_SECONDS = 15.0
FINDING_SECONDS = 30.0
_MOST_CURVES = 200
"""Number of ranks from which single ones can be unusual."""


@dataclass(frozen=True, slots=True)
class UsedJob:
    """Job with the newest values of its parts, its main metric over time, and its findings."""

    job: Job
    values: Sequence[LatestValue]
    curve: Curve | None
    found: FindingSummary | None = None

    @property
    def is_critical(self) -> bool:
        """True for a running job with an open finding of level critical."""
        return self.found is not None and self.found.open > 0 and self.found.severity is Severity.CRITICAL


@dataclass(frozen=True, slots=True)
class WatchOverview:
    """Newest jobs, critical findings first, then the busiest, and their number."""

    now_ms: int
    total: int
    jobs: Sequence[UsedJob]


@dataclass(frozen=True, slots=True)
class WatchParts:
    """Job with the newest values of its parts; ``ranks`` by replica, if known."""

    now_ms: int
    job: Job
    ranks: dict[str, int]
    values: Sequence[LatestValue]


@dataclass(frozen=True, slots=True)
class Curves:
    """Usage over time of each replica, in ``metric``; and of the whole job, by metric with its unit."""

    metric: str = ""
    unit: str = ""
    replicas: dict[str, Curve] = field(default_factory=dict)
    whole: dict[str, tuple[Curve, str]] = field(default_factory=dict)

    @property
    def top(self) -> float:
        """Highest value of any replica, at least 1 for a ratio: the common scale of their sparklines."""
        peak = max((value for one in self.replicas.values() for _, value in one.points), default=0.0)
        return max(peak, 1.0) if self.unit == "1" else peak


class WatchScreen:
    """Queries of one server. Every method raises as ``Api``. Thread-safe."""

    def __init__(self, api: Api, clock: Clock, project: str | None) -> None:
        self._api = api
        self._clock = clock
        self._project = project
        self._curves: OrderedDict[tuple[str, str], tuple[int, Curve | None]] = OrderedDict()

    def read_overview(self, *, running: bool, most: int = MOST_JOBS, with_curves: bool = True) -> WatchOverview:
        """Query the running jobs, or the newest of all."""
        states = ("Running",) if running else ()
        page = self._api.list_jobs(JobSearch(states=states, project=self._project, limit=most))
        found = {(one.project, one.id): one for one in page.findings or ()}
        used = [
            UsedJob(
                job,
                read_newest(self._api, job),
                self._read_curve(job) if with_curves else None,
                found.get((job.project, job.id)),
            )
            for job in page.jobs
        ]
        if running:
            used.sort(key=lambda one: (one.is_critical, load(one.values)), reverse=True)
        return WatchOverview(self._clock.now_ms(), page.total, used)

    def query_parts(self, job: str, project: str | None) -> WatchParts:
        """Query a job now. Raises NotFoundError."""
        detail = self._api.read_job(job, project, summary=False)
        values = self._api.read_latest(job, by="device", project=detail.job.project or project)
        ranks = {one.name: one.rank for one in detail.replicas if one.rank is not None}
        return WatchParts(self._clock.now_ms(), detail.job, ranks, values)

    def query_curves(self, parts: WatchParts) -> Curves:
        """Query usage over time of the job and of each replica."""
        measured = {value.metric for value in parts.values}
        metric = next((one for one in BUSY if one in measured), "")
        if not metric:
            return Curves()
        replicas = self._points(parts.job, (metric,), "replica")
        whole = self._points(parts.job, [one for one in BUSY if one in measured], "job")
        lines = {line.replica: _curve(replicas, line.points) for line in replicas.lines}
        return Curves(
            metric=metric,
            unit=replicas.lines[0].unit if replicas.lines else "",
            replicas=lines,
            whole={line.metric: (_curve(whole, line.points), line.unit) for line in whole.lines},
        )

    def query_findings(self, job: str, project: str | None) -> list[Finding]:
        """Query the findings; empty on a server of an earlier release."""
        with suppress(NotFoundError):
            return self._api.list_findings(job, project)
        return []

    def _read_curve(self, job: Job) -> Curve | None:
        """Return the main metric of a job over time, refreshed every few seconds."""
        key, now_ms = (job.project, job.id), self._clock.now_ms()
        found = self._curves.get(key)
        if found is None or now_ms - found[0] >= CURVE_SECONDS * SECOND:
            found = now_ms, self._read(job)
            self._curves[key] = found
            while len(self._curves) > _MOST_CURVES:
                self._curves.popitem(last=False)
        return found[1]

    def _read(self, job: Job) -> Curve | None:
        try:
            answer = self._points(job, BUSY, "job")
        except JobmeterError:
            return None  # deleted meanwhile, or too large for one query: its row has no sparkline
        by_metric = {line.metric: line for line in answer.lines if line.points}
        line = next((by_metric[metric] for metric in BUSY if metric in by_metric), None)
        return None if line is None else _curve(answer, line.points)

    def _points(self, job: Job, metrics: Sequence[str], by: str) -> MetricAnswer:
        since = None if job.state.finished else CURVE_RANGE
        aggregate = "whole" if by == "job" else None
        search = MetricSearch(metrics=metrics, since=since, by=by, aggregate=aggregate, project=job.project or None)
        return self._api.read_metrics(job.id, search)


def _curve(answer: MetricAnswer, points: Sequence[tuple[int, float]]) -> Curve:
    """Build a curve whose step is the distance of its points: buckets may be shorter than it."""
    gaps = [after[0] - before[0] for before, after in pairwise(points)]
    return Curve(points, answer.start, answer.end, max(answer.step, int(median(gaps)) if gaps else 0))
