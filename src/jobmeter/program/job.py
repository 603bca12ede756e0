"""Job for programs: its record, usage, logs and events."""

import sys
from collections.abc import Iterator, Sequence
from typing import Any

from jobmeter.cli.output import duration, moment
from jobmeter.cli.resource_columns import began
from jobmeter.client.api import Api
from jobmeter.client.bodies import JobDetail, LogEntry
from jobmeter.client.searches import EventSearch, LogSearch, MetricSearch
from jobmeter.errors import InvalidRequestError
from jobmeter.model.answers import LatestValue
from jobmeter.model.event import Event
from jobmeter.model.quantity import quantity
from jobmeter.program import html
from jobmeter.program.metrics import Metrics


class Job:
    """Job at the time of its query; ``refresh`` reads it again. Times are epoch milliseconds."""

    def __init__(self, api: Api, detail: JobDetail) -> None:
        self._api = api
        self.detail = detail
        self.record = detail.job
        """Stored record with every field."""
        self.id, self.name, self.project = self.record.id, self.record.name, self.record.project
        """Identity; the name may be empty."""
        self.state = self.record.state
        """Queued, Running, Succeeded, Failed, Stopped or Unknown."""
        self.summary = detail.summary
        """Usage over its life."""
        self.replicas = detail.replicas
        """All attempts of all replicas."""
        self.devices = detail.devices
        """Devices that it has or had."""

    def refresh(self) -> "Job":
        """Read the job again."""
        return Job(self._api, self._api.job(self.id, self.project))

    def metrics(self, *names: str, **how: Any) -> Metrics:  # noqa: ANN401 - the fields of MetricSearch
        """Read its usage over time; without names, every metric that was measured.

        ``how`` are the fields of ``jobmeter.client.api.MetricSearch``: ``start``, ``end`` (ISO 8601 or epoch ms),
        ``since``, ``step`` (``5m``), ``by`` (``replica``, ``device`` or ``job``), ``aggregate``, ``statistic``,
        ``replicas``, ``devices``. Raises InvalidRequestError for an unknown metric, replica or device.
        """
        metric_names = names or tuple(metric.metric for metric in self.summary.metrics)
        if not metric_names:
            raise InvalidRequestError(f"job {self.id} has no measurements yet: name a metric", "metric")
        return Metrics(self._api.metrics(self.id, MetricSearch(metrics=metric_names, project=self.project, **how)))

    def latest(self, *names: str, by: str = "replica") -> list[LatestValue]:
        """Read the newest value of each replica, device or of the job; without names, of the core metrics."""
        return self._api.latest(self.id, names, by, self.project)

    def logs(self, **which: Any) -> Iterator[LogEntry]:  # noqa: ANN401 - the fields of LogSearch
        """Iterate over its log lines as they arrive, oldest first.

        ``which`` are fields of ``LogSearch`` such as ``level``.
        """
        return self._api.logs(self.id, LogSearch(project=self.project, **which))

    def events(self, **which: Any) -> list[Event]:  # noqa: ANN401 - the fields of EventSearch
        """Read its events, oldest first. ``which`` are fields of ``EventSearch`` such as ``level``."""
        found, _ = self._api.newest_events(self.id, EventSearch(project=self.project, **which), sys.maxsize)
        return found[::-1]

    def __repr__(self) -> str:
        return f"<Job {self.id} {self.state}>"

    def _repr_html_(self) -> str:
        summary = self.summary
        end = summary.start_ms + summary.step_ms * max((len(one.points) for one in summary.metrics), default=0)
        rows = []
        for one in summary.metrics:
            points = [(summary.start_ms + at * summary.step_ms, value) for at, value in enumerate(one.points)]
            present = [(at, value) for at, value in points if value is not None]
            mean, peak = (html.text(quantity(figure, one.unit)) for figure in (one.job_mean, one.job_max))
            rows.append([html.text(one.metric), mean, peak, html.curve(present, summary.start_ms, end)])
        facts = " · ".join(html.text(fact) for fact in self._facts() if fact)
        shown = html.table(("metric", "mean", "peak", "over its life"), rows) if rows else "<p>nothing was measured</p>"
        return f"<p><b>{html.text(self.id)}</b> {html.text(self.state)}<br>{facts}</p>{shown}"

    def _facts(self) -> Sequence[str]:
        record = self.record
        start = began(record)
        started = "" if start is None else f"started {moment(start)} UTC"
        lasted = "" if self.summary.duration_ms is None else duration(self.summary.duration_ms)
        return (record.name, record.type, record.user, started, lasted, record.error)
