"""Typed calls of the native API. Answers are plain structs; times are epoch milliseconds."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypeVar
from urllib.parse import quote, urlencode

import msgspec

from jobmeter.client.bodies import IngestReceipt, LogEntry, MetricAnswer, TimelineMoment
from jobmeter.client.searches import (
    EventSearch,
    FindingSearch,
    HoursSearch,
    JobSearch,
    LogSearch,
    MetricSearch,
    drop_none,
)
from jobmeter.client.transport import API, FRAMES, Response, Transport
from jobmeter.errors import JobmeterError
from jobmeter.model.annotation import Annotations, JobNote, NewNote, TagChange
from jobmeter.model.answers import (
    DeviceHoursBody,
    FindingList,
    LatestValue,
    NodeFaults,
    RuleBody,
    RuleList,
    Shared,
    ShipperBody,
    ShipperList,
    Status,
    UsageBody,
)
from jobmeter.model.event import Event
from jobmeter.model.finding import Finding, FindingSummary
from jobmeter.model.job import Job, Node
from jobmeter.model.job_answers import Comparison, JobDetail, JobList
from jobmeter.model.phase import JobPhases, PhaseDifference
from jobmeter.model.quality import JobQuality
from jobmeter.model.retention import Retention
from jobmeter.model.task import DiagnosticTask, NewTask, TaskPage

PAGE = 1000
"""Most jobs or events in one answer."""

_T = TypeVar("_T")


class _MetricNames(msgspec.Struct, frozen=True):
    metrics: list[str]


class _SessionLink(msgspec.Struct, frozen=True):
    code: str
    public_url: str = ""


class Api:
    """Client of one server. Thread-safe, like its transport.

    Every method raises the error that the server returned, or UnavailableError without an answer.
    """

    def __init__(self, transport: Transport) -> None:
        self.transport = transport

    def list_jobs(self, search: JobSearch) -> JobList:
        """Read a page of jobs, newest first, with their findings."""
        return self.get("/jobs", [*search.list_parameters(), ("findings", "true")], JobList)

    def iterate_jobs(self, search: JobSearch, limit: int) -> Iterator[tuple[Job, FindingSummary | None]]:
        """Iterate over at most ``limit`` jobs with their findings (None: none), fetched page by page on demand."""
        offset = search.offset or 0
        while limit > 0:
            page = self.list_jobs(replace(search, limit=min(limit, PAGE), offset=offset or None))
            found = {(one.project, one.id): one for one in page.findings or ()}
            yield from ((job, found.get((job.project, job.id))) for job in page.jobs)
            offset += len(page.jobs)
            limit -= len(page.jobs)
            if not page.jobs or offset >= page.total:
                return

    def read_job(self, job: str, project: str | None = None, *, summary: bool = True) -> JobDetail:
        """Read a job. Without its summary, which reads all samples, the answer is quick. Raises NotFoundError."""
        with_summary = None if summary else "false"
        return self.get(_make_job_path(job), drop_none(summary=with_summary, project=project), JobDetail)

    def find(self, text: str, project: str | None = None) -> Job:
        """Find a job by id, name, unique prefix of an id, or ``last``. Raises NotFoundError or ConflictError."""
        return self.get("/resolve", [("job", text), *drop_none(project=project)], Job)

    def read_newest_events(self, job: str | None, search: EventSearch, limit: int) -> tuple[list[Event], int]:
        """Read at most ``limit`` events, newest first, and the number of all matches.

        ``job`` None means all jobs and nodes. Raises NotFoundError.
        """
        path = "/events" if job is None else f"{_make_job_path(job)}/events"
        found: list[Event] = []
        while True:
            page_size = min(limit - len(found), PAGE)
            parameters = search.list_parameters(order="desc", limit=page_size, after=found[-1].id if found else None)
            page = self.get(path, parameters, _Events)
            found.extend(page.events)
            if not page.events or len(found) >= min(limit, page.total):
                return found, page.total

    def list_findings(self, job: str, project: str | None = None) -> list[Finding]:
        """Read the findings about a job, worst first. Raises NotFoundError."""
        return self.get(f"{_make_job_path(job)}/findings", drop_none(project=project), list[Finding])

    def read_all_findings(self, search: FindingSearch) -> FindingList:
        """Read stored findings of all jobs: the newest first; the worst first if only open ones are requested."""
        return self.get("/findings", search.list_parameters(), FindingList)

    def list_rules(self) -> list[RuleBody]:
        """List the diagnostic rules of the server."""
        return self.get("/rules", [], RuleList).rules

    def read_quality(self, job: str, project: str | None = None) -> JobQuality:
        """Read the quality of a job's stored samples. Raises NotFoundError."""
        return self.get(f"{_make_job_path(job)}/quality", drop_none(project=project), JobQuality)

    def read_usage(self, month: str | None = None, project: str | None = None) -> UsageBody:
        """Read the calls of a month such as ``2026-11`` (None: the current one) and their cost."""
        return self.get("/usage", drop_none(month=month, project=project), UsageBody)

    def read_device_hours(self, search: HoursSearch) -> DeviceHoursBody:
        """Read the device time of projects or users over a range, in buckets."""
        return self.get("/devices/hours", search.list_parameters(), DeviceHoursBody)

    def read_timeline(
        self, job: str, kinds: Sequence[str] = (), limit: int = 1_000, project: str | None = None
    ) -> list[TimelineMoment]:
        """Read the history of a job and its nodes: the newest ``limit`` entries, oldest first. Raises NotFoundError."""
        pairs = [*(("kind", kind) for kind in kinds), *drop_none(limit=limit, project=project)]
        return self.get(f"{_make_job_path(job)}/timeline", pairs, list[TimelineMoment])

    def create_task(self, task: NewTask) -> DiagnosticTask:
        """Create a task that diagnoses nodes, a job or log lines. Raises NotFoundError for an unknown node or job."""
        content = {name: value for name, value in msgspec.structs.asdict(task).items() if value}
        return self._post("/tasks", [], content, DiagnosticTask)

    def read_task(self, task: str) -> DiagnosticTask:
        """Read a diagnostic task and its findings so far. Raises NotFoundError."""
        return self.get(f"/tasks/{quote(task, safe='')}", [], DiagnosticTask)

    def list_tasks(self, limit: int, project: str | None = None) -> list[DiagnosticTask]:
        """List at most ``limit`` (100) diagnostic tasks, newest first."""
        return self.get("/tasks", drop_none(limit=limit, project=project), TaskPage).tasks

    def read_metrics(self, job: str, search: MetricSearch) -> MetricAnswer:
        """Read metrics of a job as lines of points."""
        return self.get(f"{_make_job_path(job)}/metrics", search.list_parameters(), MetricAnswer)

    def list_metric_names(self, job: str, project: str | None = None) -> list[str]:
        """List the metrics measured over the life of a job, and those derived from them."""
        return self.get(f"{_make_job_path(job)}/metrics/names", drop_none(project=project), _MetricNames).metrics

    def export(self, job: str, search: MetricSearch, form: str) -> bytes:
        """Export metrics of a job as a file: ``form`` is ``csv`` or ``parquet``."""
        return self._call("GET", f"{_make_job_path(job)}/metrics", [*search.list_parameters(), ("format", form)]).body

    def stream_samples(self, job: str, search: MetricSearch, form: str) -> Iterator[bytes]:
        """Stream every stored sample as a file: ``form`` is ``csv``, ``json`` or ``parquet``.

        ``step``, ``by``, ``aggregate`` and ``statistic`` do not apply and must be None.
        """
        query = urlencode([*search.list_parameters(), ("format", form)])
        return self.transport.stream(f"{API}{_make_job_path(job)}/samples?{query}")

    def read_latest(
        self, job: str, metrics: Sequence[str] = (), by: str | None = None, project: str | None = None
    ) -> list[LatestValue]:
        """Read the newest value of each line; without ``metrics``, of the core metrics."""
        pairs = [("metric", metric) for metric in metrics] + drop_none(by=by, project=project)
        return self.get(f"{_make_job_path(job)}/latest", pairs, _Latest).values

    def stream_logs(self, job: str, search: LogSearch) -> Iterator[LogEntry]:
        """Stream all log lines of a job."""
        return self._lines(f"{_make_job_path(job)}/logs", search)

    def stream_node_logs(self, node: str, search: LogSearch) -> Iterator[LogEntry]:
        """Stream all lines of a node's system log. Raises NotFoundError."""
        return self._lines(f"/nodes/{quote(node, safe='')}/logs", search)

    def _lines(self, path: str, search: LogSearch) -> Iterator[LogEntry]:
        query = urlencode([*search.list_parameters(), ("format", "jsonl")])
        for line in self.transport.stream_lines(f"{API}{path}?{query}"):
            try:
                yield msgspec.json.decode(line, type=LogEntry)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise JobmeterError(f"the server's answer cannot be read: {error}") from error

    def compare(
        self,
        jobs: Sequence[str],
        metrics: Sequence[str] = (),
        step: str | None = None,
        project: str | None = None,
        per: str | None = None,
    ) -> Comparison:
        """Compare jobs side by side, aligned at their starts; ``metrics`` adds their values over time.

        ``per`` is ``job`` (the default) or ``device``: values of the whole job, or the mean of its devices.
        """
        pairs = [*(("job", job) for job in jobs), *(("metric", metric) for metric in metrics)]
        return self.get("/compare", [*pairs, *drop_none(step=step, project=project, per=per)], Comparison)

    def read_causes(self, jobs: Sequence[str], project: str | None = None) -> list[PhaseDifference]:
        """Read the causes by which the run time of each job differs from the first one's. Raises NotFoundError."""
        return self.get(
            "/compare/causes", [*(("job", job) for job in jobs), *drop_none(project=project)], list[PhaseDifference]
        )

    def read_phases(self, job: str, project: str | None = None) -> JobPhases:
        """Read the phases of a job. Raises NotFoundError."""
        return self.get(f"{_make_job_path(job)}/phases", drop_none(project=project), JobPhases)

    def read_annotations(self, job: str, project: str | None = None) -> Annotations:
        """Read the tags and notes of a job. Raises NotFoundError."""
        return self.get(f"{_make_job_path(job)}/annotations", drop_none(project=project), Annotations)

    def change_tags(self, job: str, change: TagChange, project: str | None = None) -> Annotations:
        """Add and remove tags of a job. Returns all tags and notes of the job afterwards."""
        return self._post(f"{_make_job_path(job)}/tags", drop_none(project=project), change, Annotations)

    def write_note(self, job: str, note: NewNote, project: str | None = None) -> JobNote:
        """Write a note about a job."""
        return self._post(f"{_make_job_path(job)}/notes", drop_none(project=project), note, JobNote)

    def delete_note(self, job: str, note: str, project: str | None = None) -> None:
        """Delete a note of a job, by its id. Raises NotFoundError."""
        self._call("DELETE", f"{_make_job_path(job)}/notes/{quote(note, safe='')}", drop_none(project=project))

    def delete(self, job: str, project: str | None = None) -> None:
        """Delete a job and all its data. Raises NotFoundError."""
        self._call("DELETE", _make_job_path(job), drop_none(project=project))

    def share(self, job: str, expires_in: int | None = None, project: str | None = None) -> Shared:
        """Create a token for one job's metrics, valid for ``expires_in`` seconds (default: a week)."""
        content = None if expires_in is None else {"expires_in": expires_in}
        return self._post(f"{_make_job_path(job)}/share", drop_none(project=project), content, Shared)

    def read_status(self) -> Status:
        """Read the state of the server."""
        return self.get("/status", [], Status)

    def read_retention(self, project: str) -> Retention:
        """Read the retention of a project."""
        return self.get(_retention_of(project), [], Retention)

    def read_default_retention(self, project: str | None = None) -> Retention:
        """Read the server's retention. A key of one project must name it."""
        return self.get("/retention", drop_none(project=project), Retention)

    def set_retention(self, project: str, retention: Retention | None) -> Retention:
        """Set the retention of a project; None resets it to the server's default."""
        if retention is None:
            self._call("DELETE", _retention_of(project))
            return self.read_retention(project)
        return _decode(self._call("PUT", _retention_of(project), body=msgspec.json.encode(retention)), Retention)

    def list_nodes(self, project: str | None = None) -> list[Node]:
        """List the machines that agents run on."""
        return self.get("/nodes", drop_none(project=project), _Nodes).nodes

    def read_nodes_and_faults(self, project: str | None = None) -> tuple[list[Node], list[NodeFaults]]:
        """Read the nodes, and the faults of the faulty ones."""
        found = self.get("/nodes", drop_none(faults="true", project=project), _Nodes)
        return found.nodes, found.faults

    def list_shippers(self, project: str | None = None) -> list[ShipperBody]:
        """List the log shippers, by creation."""
        return self.get("/shippers", drop_none(project=project), ShipperList).shippers

    def create_shipper(self, group: str, sink: tuple[str, str], project: str | None = None) -> ShipperBody:
        """Ship the log lines of a resource group, of one project or of all, to a sink: its project and its logstore."""
        content = {"resource_group": group, "sink_project": sink[0], "logstore": sink[1]}
        return self._post("/shippers", drop_none(project=project), content, ShipperBody)

    def delete_shipper(self, shipper_id: str) -> ShipperBody:
        """Delete a shipper. Returns its last state. Raises NotFoundError."""
        return _decode(self._call("DELETE", f"/shippers/{quote(shipper_id, safe='')}"), ShipperBody)

    def ingest(self, frames: bytes) -> IngestReceipt:
        """Send frames of the native wire format; on return the accepted data is durable."""
        answer = self.transport.request("POST", f"{API}/ingest", frames, {"Content-Type": FRAMES})
        return _decode(answer, IngestReceipt)

    def create_page_link(self, job: str = "", project: str = "") -> str:
        """Create a one-time link to the page, or to a job's page, that signs in as this key within fifteen minutes.

        The link begins with the server's public address if configured, else with the address in use.
        """
        made = self._post("/session/link", [], None, _SessionLink)
        place = drop_none(code=made.code, job=job or None, project=project or None)
        return f"{made.public_url or self.transport.server}/#/open?{urlencode(place)}"

    def get(self, path: str, parameters: Sequence[tuple[str, str]], shape: type[_T]) -> _T:
        """Read a path below the API's base as that type."""
        return _decode(self._call("GET", path, parameters), shape)

    def _post(self, path: str, parameters: Sequence[tuple[str, str]], content: object, shape: type[_T]) -> _T:
        body = None if content is None else msgspec.json.encode(content)
        return _decode(self._call("POST", path, parameters, body), shape)

    def _call(
        self, method: str, path: str, parameters: Sequence[tuple[str, str]] = (), body: bytes | None = None
    ) -> Response:
        query = f"?{urlencode(parameters)}" if parameters else ""
        return self.transport.request(method, f"{API}{path}{query}", body)


class _Latest(msgspec.Struct):
    values: list[LatestValue] = []


class _Events(msgspec.Struct):
    events: list[Event] = []
    total: int = 0


class _Nodes(msgspec.Struct):
    nodes: list[Node] = []
    faults: list[NodeFaults] = []


def _retention_of(project: str) -> str:
    return f"/projects/{quote(project, safe='')}/retention"


def _make_job_path(job: str) -> str:
    return f"/jobs/{quote(job, safe='')}"


def _decode(answer: Response, shape: type[_T]) -> _T:
    try:
        return msgspec.convert(_drop_null(msgspec.json.decode(answer.body)), shape)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise JobmeterError(f"the server's answer cannot be read: {error}") from error


def _drop_null(value: object) -> object:
    # Unknown fields are null, which a struct replaces by its default. Points have no null and are left unchanged.
    if isinstance(value, dict):
        return {
            name: part if name == "points" else _drop_null(part) for name, part in value.items() if part is not None
        }
    if isinstance(value, list):
        return [_drop_null(part) for part in value]
    return value
