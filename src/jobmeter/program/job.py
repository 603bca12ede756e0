"""Handle of a job for programs: its record, usage, logs, events and findings."""

import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any

from jobmeter.cli.local import NamedJob
from jobmeter.cli.named import check_metrics, check_parts
from jobmeter.cli.output import format_duration, format_time
from jobmeter.cli.resource_columns import find_end, find_start
from jobmeter.client.api import Api
from jobmeter.client.bodies import LogEntry, TimelineMoment
from jobmeter.client.searches import EventSearch, LogSearch, MetricSearch
from jobmeter.errors import InvalidRequestError
from jobmeter.model import job as model
from jobmeter.model.annotation import JobNote, JobTag, NewNote, TagChange
from jobmeter.model.answers import DeviceBody, LatestValue, Shared
from jobmeter.model.event import Event
from jobmeter.model.finding import Finding, FindingSummary
from jobmeter.model.job_answers import JobDetail, JobSummary
from jobmeter.model.phase import JobPhases, Phase, PhaseSpan
from jobmeter.model.quality import JobQuality, ReplicaQuality
from jobmeter.model.quantity import format_quantity
from jobmeter.model.time import parse_duration
from jobmeter.program import html
from jobmeter.program.comparison import JobComparison, compare_jobs
from jobmeter.program.frames import Columns, RecordList, Table, search
from jobmeter.program.metrics import Metrics


class JobHandle(Table):
    """Job at the time of its query; ``refresh`` reads it again. Times are epoch milliseconds.

    Its table has a row for each metric of its usage over its life.
    """

    def __init__(self, api: Api, record: model.Job, found: FindingSummary | None = None) -> None:
        self._api = api
        self.record = record
        """Stored record with every field."""
        self.id, self.name, self.project = record.id, record.name, record.project
        """Identity; the name may be empty."""
        self.type, self.user, self.error, self.exit_code = record.type, record.user, record.error, record.exit_code
        """Facts of the record; empty or None if unknown."""
        self.created, self.start, self.end = record.created, find_start(record), find_end(record)
        """Times; without a recorded start or end, the time of its first or last sample."""
        self.state = record.state
        """Queued, Running, Succeeded, Failed, Stopped or Unknown."""
        self.worst_finding = found
        """Worst finding, if the job was listed."""

    @cached_property
    def detail(self) -> JobDetail:
        """Job with all its parts, read on first use."""
        return self._api.read_job(self.id, self.project)

    @property
    def summary(self) -> JobSummary:
        """Usage of the job over its life."""
        return self.detail.usage

    @property
    def replicas(self) -> Sequence[model.Replica]:
        """All attempts of all replicas."""
        return self.detail.replicas

    @property
    def devices(self) -> Sequence[DeviceBody]:
        """Devices that the job has or had."""
        return self.detail.devices

    def refresh(self) -> "JobHandle":
        """Read the job again."""
        return _make_handle(self._api, self._api.read_job(self.id, self.project))

    def wait(
        self,
        timeout: str | float | None = None,
        *,
        interval: float = 5.0,
        progress: Callable[["JobHandle"], object] | None = None,
        pause: Callable[[float], object] = time.sleep,
        seconds: Callable[[], float] = time.monotonic,
    ) -> "JobHandle":
        """Wait until the job has ended, and return it.

        The job is read every ``interval`` seconds, and ``progress`` is called with it. ``timeout`` is in seconds, or a
        duration such as ``30m``. Raises TimeoutError if the job has not ended by then.
        """
        polls = self.poll(timeout, interval=interval, progress=progress, seconds=seconds)
        job, left = next(polls)
        while left:
            pause(left)
            job, left = next(polls)
        return job

    def poll(
        self,
        timeout: str | float | None = None,
        *,
        interval: float = 5.0,
        progress: Callable[["JobHandle"], object] | None = None,
        seconds: Callable[[], float] = time.monotonic,
    ) -> Iterator[tuple["JobHandle", float]]:
        """Read the job until it has ended. Yields the job, and the seconds to pause before the next read.

        The arguments are as for ``wait``. The last pause is 0.
        """
        if not interval > 0:
            raise InvalidRequestError(f"interval is {interval}: give a number of seconds above 0", "interval")
        limit = parse_duration(timeout, "timeout") / 1000 if isinstance(timeout, str) else timeout
        deadline = math.inf if limit is None else seconds() + limit
        while True:
            job = JobHandle(self._api, self._api.read_job(self.id, self.project, summary=False).job)
            if progress is not None:
                progress(job)
            if job.state.finished:
                yield job, 0.0
                return
            left = deadline - seconds()
            if left <= 0:
                raise TimeoutError(f"job {self.id} is {job.state} after {timeout}: give a longer timeout, or none")
            yield job, min(interval, left)

    def metrics(self, /, *names: str, **how: Any) -> Metrics:  # noqa: ANN401 - the fields of MetricSearch
        """Read the job's metrics over time; without names, every measured metric.

        ``how`` are fields of ``MetricSearch``: ``start``, ``end`` (ISO 8601 or epoch ms), ``since``, ``step`` (``5m``),
        ``by`` (``replica``, ``device`` or ``job``), ``aggregate``, ``statistic``, ``replicas``, ``devices``. Raises
        InvalidRequestError for an unknown metric, NotFoundError for a metric, replica or device that the job lacks.
        """
        metric_names = names or tuple(metric.metric for metric in self.summary.metrics)
        if not metric_names:
            raise InvalidRequestError(f"job {self.id} has no measurements yet: name a metric", "metric")
        asked = search(MetricSearch, how, metrics=metric_names, project=self.project)
        named = NamedJob(self._api, self.id, self.project)
        check_parts(named, asked.replicas, asked.devices)
        answer = self._api.read_metrics(self.id, asked)
        if not answer.lines:
            check_metrics(named, metric_names)
        return Metrics(answer)

    def latest(self, *names: str, by: str = "replica") -> RecordList[LatestValue]:
        """Read the newest values by replica, device or job; without names, of the core metrics."""
        return RecordList(LatestValue, self._api.read_latest(self.id, names, by, self.project))

    def logs(self, **which: Any) -> "LogLines":  # noqa: ANN401 - the fields of LogSearch
        """Return the log lines, oldest first, read during iteration. ``which`` are fields of ``LogSearch``."""
        return LogLines(self._api, self.id, search(LogSearch, which, project=self.project))

    def events(self, /, **which: Any) -> RecordList[Event]:  # noqa: ANN401 - the fields of EventSearch
        """Read the job's events, oldest first. ``which`` are fields of ``EventSearch`` such as ``level``."""
        asked = search(EventSearch, which, project=self.project)
        found, _ = self._api.read_newest_events(self.id, asked, sys.maxsize)
        return RecordList(Event, found[::-1])

    def findings(self) -> "Findings":
        """Read the findings of the diagnostic rules, worst first."""
        return Findings(Finding, self._api.list_findings(self.id, self.project))

    def timeline(self, *kinds: str, limit: int = 1_000) -> RecordList[TimelineMoment]:
        """Read the history of the job and its nodes: the newest ``limit`` entries of these kinds, oldest first."""
        return RecordList(TimelineMoment, self._api.read_timeline(self.id, kinds, limit, self.project))

    def quality(self) -> "Quality":
        """Read the quality of the job's stored samples: gaps, late samples, wrong clocks."""
        return Quality(self._api.read_quality(self.id, self.project))

    def phases(self) -> "Phases":
        """Read the job's phases: queue, start, training, checkpoints, restarts, end."""
        return Phases(self._api.read_phases(self.id, self.project))

    def tags(self) -> RecordList[JobTag]:
        """Read the tags of the job, in order of their text."""
        return RecordList(JobTag, self._api.read_annotations(self.id, self.project).tags)

    def tag(self, *tags: str, remove: Sequence[str] = (), author: str = "") -> RecordList[JobTag]:
        """Add tags and remove others. Returns all tags of the job afterwards."""
        change = TagChange(add=list(tags), remove=list(remove), author=author)
        return RecordList(JobTag, self._api.change_tags(self.id, change, self.project).tags)

    def notes(self) -> RecordList[JobNote]:
        """Read the notes of the job, the oldest first."""
        return RecordList(JobNote, self._api.read_annotations(self.id, self.project).notes)

    def note(self, text: str, at: int | str | None = None, *, author: str = "") -> JobNote:
        """Write a note about the job, or about the moment ``at`` (ISO 8601 or epoch milliseconds)."""
        return self._api.write_note(self.id, NewNote(text=text, time=at, author=author), self.project)

    def delete_note(self, note: JobNote | str) -> None:
        """Delete a note, given as an object or by its id. Raises NotFoundError."""
        self._api.delete_note(self.id, note if isinstance(note, str) else note.id, self.project)

    def share(self, expires: str | None = None) -> Shared:
        """Create a token for this job's metrics, valid for a duration such as ``1d`` (default: a week)."""
        seconds = None if expires is None else parse_duration(expires, "expires") // 1000
        return self._api.share(self.id, seconds, self.project)

    def compare(
        self, *others: "str | JobHandle", metrics: Sequence[str] = (), step: str | None = None
    ) -> JobComparison:
        """Compare the job with other jobs, given as handles or names, aligned at their starts."""
        return compare_jobs(self._api, self.project, [self, *others], metrics, step)

    def columns(self) -> Columns:
        """Return the job's usage over its life, metric by metric."""
        rows = self.summary.metrics
        names = {"metric": "metric", "unit": "unit", "mean": "job_mean", "peak": "job_max", "newest": "last"}
        names |= {"total": "total", "total_unit": "total_unit"}
        return {name: [getattr(row, field) for row in rows] for name, field in names.items()}

    def __repr__(self) -> str:
        return f"<Job {self.id} {self.state}>"

    def _repr_html_(self) -> str:
        summary = self.summary
        end = summary.start_ms + summary.step_ms * max((len(one.points) for one in summary.metrics), default=0)
        rows = []
        for one in summary.metrics:
            points = [(summary.start_ms + at * summary.step_ms, value) for at, value in enumerate(one.points)]
            present = [(at, value) for at, value in points if value is not None]
            mean, peak = (html.escape_text(format_quantity(figure, one.unit)) for figure in (one.job_mean, one.job_max))
            rows.append([html.escape_text(one.metric), mean, peak, html.draw_curve(present, summary.start_ms, end)])
        facts = " · ".join(html.escape_text(fact) for fact in self._list_facts() if fact)
        shown = (
            html.build_table(("metric", "mean", "peak", "over its life"), rows)
            if rows
            else "<p>nothing was measured</p>"
        )
        return f"<p><b>{html.escape_text(self.id)}</b> {html.escape_text(self.state)}<br>{facts}</p>{shown}"

    def _list_facts(self) -> Sequence[str]:
        started = "" if self.start is None else f"started {format_time(self.start)} UTC"
        lasted = "" if self.summary.duration_ms is None else format_duration(self.summary.duration_ms)
        return (self.name, self.type, self.user, started, lasted, self.error)


def _make_handle(api: Api, detail: JobDetail) -> JobHandle:
    job = JobHandle(api, detail.job)
    job.__dict__["detail"] = detail
    return job


def find_job(api: Api, name: str, project: str | None) -> JobHandle:
    """Find a job by id, name or unique prefix of an id, with its parts. Raises NotFoundError."""
    found = api.find(name, project)
    return _make_handle(api, api.read_job(found.id, found.project))


class LogLines(Table):
    """Log lines of a job. Each iteration reads them as they arrive."""

    def __init__(self, api: Api, job: str, which: LogSearch) -> None:
        self._api, self._job, self._which = api, job, which

    def __iter__(self) -> Iterator[LogEntry]:
        return self._api.stream_logs(self._job, self._which)

    def columns(self) -> Columns:
        """Read all lines, and return their fields column by column."""
        return RecordList(LogEntry, self).columns()

    def __repr__(self) -> str:
        return f"<Log lines of {self._job}: iterate over them, or to_pandas()>"


class Findings(RecordList[Finding]):
    """Findings of a job, worst first."""

    def columns(self) -> Columns:
        """Return the findings column by column: the subject as text, the evidence as a list of texts."""
        columns = super().columns()
        columns["subject"] = [f"{one.subject.kind} {one.subject.name}" for one in self]
        columns["evidence"] = [[part.text for part in one.evidence] for one in self]
        return {name: columns[name] for name in ("severity", "sentence", *columns)}

    def __repr__(self) -> str:
        return "\n".join(f"{one.severity}: {one.sentence or one.message}" for one in self) or "no rule found anything"

    def _repr_html_(self) -> str:
        rows = [
            [
                html.escape_text(one.severity),
                html.escape_text(one.sentence or one.message),
                html.escape_text(one.advice),
            ]
            for one in self
        ]
        return html.build_table(("severity", "finding", "advice"), rows) if rows else "<p>no rule found anything</p>"


class Quality(RecordList[ReplicaQuality]):
    """Quality of a job's stored samples, a row for each attempt of a replica. ``record`` has every part."""

    def __init__(self, record: JobQuality) -> None:
        super().__init__(ReplicaQuality, record.replicas)
        self.record = record
        self.complete, self.coverage, self.sentences = record.complete, record.coverage, record.sentences
        """True if nothing is known to be missing; the share (0 to 1) of the time with samples; the problems."""

    def __repr__(self) -> str:
        share = "unknown" if self.coverage is None else format_quantity(self.coverage, "1")
        return "\n".join((f"coverage {share}", *self.sentences))


class Phases(RecordList[PhaseSpan]):
    """Phases of a job in order of time, a row for each. ``record`` has every part."""

    def __init__(self, record: JobPhases) -> None:
        super().__init__(PhaseSpan, record.spans)
        self.record = record
        self.spans, self.totals, self.unknown = record.spans, record.totals, record.unknown
        """The rows; milliseconds by phase; phases that cannot be separated from others, and why."""

    def __repr__(self) -> str:
        return "\n".join(f"{Phase(name).label}: {format_duration(length)}" for name, length in self.totals.items())
