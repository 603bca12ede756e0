"""The native API as typed calls. Answers are plain structs; times are epoch milliseconds."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypeVar
from urllib.parse import quote, urlencode

import msgspec

from jobmeter.client.bodies import Comparison, IngestReceipt, JobDetail, JobList, LogEntry, MetricAnswer, TimelineMoment
from jobmeter.client.searches import EventSearch, JobSearch, LogSearch, MetricSearch, given
from jobmeter.client.transport import API, FRAMES, Response, Transport
from jobmeter.errors import JobmeterError
from jobmeter.model.answers import (
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
from jobmeter.model.quality import JobQuality
from jobmeter.model.retention import Retention
from jobmeter.model.task import DiagnosticTask, NewTask, TaskPage

PAGE = 1000
"""Most jobs, or events, in one answer."""

_T = TypeVar("_T")


class _SessionLink(msgspec.Struct, frozen=True):
    code: str
    public_url: str = ""


class Api:
    """Calls of one server. Safe to use from several threads, as its transport is.

    Every method raises the error that the server refused with, or UnavailableError when no answer came.
    """

    def __init__(self, transport: Transport) -> None:
        self.transport = transport

    def jobs(self, search: JobSearch) -> JobList:
        """One page of jobs, newest first, with what was found in them."""
        return self.get("/jobs", [*search.parameters(), ("findings", "true")], JobList)

    def every_job(self, search: JobSearch, limit: int) -> Iterator[tuple[Job, FindingSummary | None]]:
        """At most ``limit`` jobs with what was found in each, fetched page by page as they are taken."""
        offset = search.offset or 0
        while limit > 0:
            page = self.jobs(replace(search, limit=min(limit, PAGE), offset=offset or None))
            found = {(one.project, one.id): one for one in page.findings}
            yield from ((job, found.get((job.project, job.id))) for job in page.jobs)
            offset += len(page.jobs)
            limit -= len(page.jobs)
            if not page.jobs or offset >= page.total:
                return

    def job(self, job: str, project: str | None = None, *, summary: bool = True) -> JobDetail:
        """One job; without its summary, which reads all its samples, it comes quickly. Raises NotFoundError."""
        with_summary = None if summary else "false"
        return self.get(_of(job), given(summary=with_summary, project=project), JobDetail)

    def find(self, text: str, project: str | None = None) -> Job:
        """The job of that id, name, unique beginning of an id, or ``last``. Raises NotFoundError or ConflictError."""
        return self.get("/resolve", [("job", text), *given(project=project)], Job)

    def newest_events(self, job: str | None, search: EventSearch, limit: int) -> tuple[list[Event], int]:
        """At most ``limit`` events, newest first, and how many match in all; of every job and node for None.

        Raises NotFoundError.
        """
        path = "/events" if job is None else f"{_of(job)}/events"
        found: list[Event] = []
        while True:
            page_size = min(limit - len(found), PAGE)
            parameters = search.parameters(order="desc", limit=page_size, after=found[-1].id if found else None)
            page = self.get(path, parameters, _Events)
            found.extend(page.events)
            if not page.events or len(found) >= min(limit, page.total):
                return found, page.total

    def findings(self, job: str, project: str | None = None) -> list[Finding]:
        """What the rules found in a job, worst first. Raises NotFoundError."""
        return self.get(f"{_of(job)}/findings", given(project=project), list[Finding])

    def rules(self) -> list[RuleBody]:
        """The diagnostic rules of the server."""
        return self.get("/rules", [], RuleList).rules

    def quality(self, job: str, project: str | None = None) -> JobQuality:
        """The quality of a job's stored samples. Raises NotFoundError."""
        return self.get(f"{_of(job)}/quality", given(project=project), JobQuality)

    def usage(self, month: str | None = None, project: str | None = None) -> UsageBody:
        """The calls of a month such as ``2026-11`` (None: the present one) and what they cost."""
        return self.get("/usage", given(month=month, project=project), UsageBody)

    def timeline(
        self, job: str, kinds: Sequence[str] = (), limit: int = 1_000, project: str | None = None
    ) -> list[TimelineMoment]:
        """What happened to a job and its nodes, the newest ``limit``, the oldest first. Raises NotFoundError."""
        pairs = [*(("kind", kind) for kind in kinds), *given(limit=limit, project=project)]
        return self.get(f"{_of(job)}/timeline", pairs, list[TimelineMoment])

    def create_task(self, task: NewTask) -> DiagnosticTask:
        """Create a task that diagnoses nodes, a job or log lines. Raises NotFoundError for an unknown node or job."""
        content = {name: value for name, value in msgspec.structs.asdict(task).items() if value}
        return self._post("/tasks", [], content, DiagnosticTask)

    def task(self, task: str) -> DiagnosticTask:
        """A diagnostic task and what it found so far. Raises NotFoundError."""
        return self.get(f"/tasks/{quote(task, safe='')}", [], DiagnosticTask)

    def tasks(self, limit: int, project: str | None = None) -> list[DiagnosticTask]:
        """At most ``limit`` (100) diagnostic tasks, the newest first."""
        return self.get("/tasks", given(limit=limit, project=project), TaskPage).tasks

    def metrics(self, job: str, search: MetricSearch) -> MetricAnswer:
        """What a job used, as lines of points."""
        return self.get(f"{_of(job)}/metrics", search.parameters(), MetricAnswer)

    def export(self, job: str, search: MetricSearch, form: str) -> bytes:
        """The same as a file: ``form`` is ``csv`` or ``parquet``."""
        return self._call("GET", f"{_of(job)}/metrics", [*search.parameters(), ("format", form)]).body

    def samples(self, job: str, search: MetricSearch, form: str) -> Iterator[bytes]:
        """Every stored reading as a file, however long, as it arrives: ``form`` is ``csv``, ``json`` or ``parquet``.

        ``step``, ``by``, ``aggregate`` and ``statistic`` do not apply and must be None.
        """
        query = urlencode([*search.parameters(), ("format", form)])
        return self.transport.pieces(f"{API}{_of(job)}/samples?{query}")

    def latest(
        self, job: str, metrics: Sequence[str] = (), by: str | None = None, project: str | None = None
    ) -> list[LatestValue]:
        """The newest value of each line; without ``metrics`` those of the core set."""
        pairs = [("metric", metric) for metric in metrics] + given(by=by, project=project)
        return self.get(f"{_of(job)}/latest", pairs, _Latest).values

    def logs(self, job: str, search: LogSearch) -> Iterator[LogEntry]:
        """The log lines of a job, however many, as they arrive."""
        return self._lines(f"{_of(job)}/logs", search)

    def node_logs(self, node: str, search: LogSearch) -> Iterator[LogEntry]:
        """The lines of a node's system log, however many, as they arrive. Raises NotFoundError."""
        return self._lines(f"/nodes/{quote(node, safe='')}/logs", search)

    def _lines(self, path: str, search: LogSearch) -> Iterator[LogEntry]:
        query = urlencode([*search.parameters(), ("format", "jsonl")])
        for line in self.transport.lines(f"{API}{path}?{query}"):
            try:
                yield msgspec.json.decode(line, type=LogEntry)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise JobmeterError(f"the server's answer cannot be read: {error}") from error

    def compare(
        self, jobs: Sequence[str], metrics: Sequence[str] = (), step: str | None = None, project: str | None = None
    ) -> Comparison:
        """Jobs beside each other, aligned at their start; with ``metrics`` their courses too."""
        pairs = [*(("job", job) for job in jobs), *(("metric", metric) for metric in metrics)]
        return self.get("/compare", [*pairs, *given(step=step, project=project)], Comparison)

    def delete(self, job: str, project: str | None = None) -> None:
        """Forget a job and everything measured for it. Raises NotFoundError."""
        self._call("DELETE", _of(job), given(project=project))

    def share(self, job: str, expires_in: int | None = None, project: str | None = None) -> Shared:
        """A token that opens one job's metrics, for so many seconds (by default a week)."""
        content = None if expires_in is None else {"expires_in": expires_in}
        return self._post(f"{_of(job)}/share", given(project=project), content, Shared)

    def status(self) -> Status:
        """The state of the server."""
        return self.get("/status", [], Status)

    def retention(self, project: str) -> Retention:
        """How long a project's samples are stored."""
        return self.get(_retention_of(project), [], Retention)

    def set_retention(self, project: str, retention: Retention | None) -> Retention:
        """Set for how many days a project's samples are stored; None resets to the server's own retention."""
        if retention is None:
            self._call("DELETE", _retention_of(project))
            return self.retention(project)
        return _decode(self._call("PUT", _retention_of(project), body=msgspec.json.encode(retention)), Retention)

    def nodes(self, project: str | None = None) -> list[Node]:
        """The machines that agents run on."""
        return self.get("/nodes", given(project=project), _Nodes).nodes

    def nodes_and_faults(self, project: str | None = None) -> tuple[list[Node], list[NodeFaults]]:
        """The same, and the faults of those that have any."""
        found = self.get("/nodes", given(faults="true", project=project), _Nodes)
        return found.nodes, found.faults

    def shippers(self, project: str | None = None) -> list[ShipperBody]:
        """The log shippers, by creation."""
        return self.get("/shippers", given(project=project), ShipperList).shippers

    def create_shipper(self, group: str, sink: tuple[str, str], project: str | None = None) -> ShipperBody:
        """Ship the log lines of a resource group, of one project or of all, to a sink: its project and its logstore."""
        content = {"resource_group": group, "sink_project": sink[0], "logstore": sink[1]}
        return self._post("/shippers", given(project=project), content, ShipperBody)

    def delete_shipper(self, shipper_id: str) -> ShipperBody:
        """Delete a shipper; gives its last state. Raises NotFoundError."""
        return _decode(self._call("DELETE", f"/shippers/{quote(shipper_id, safe='')}"), ShipperBody)

    def ingest(self, frames: bytes) -> IngestReceipt:
        """Send frames of the native wire format; on return what was accepted is durable."""
        answer = self.transport.request("POST", f"{API}/ingest", frames, {"Content-Type": FRAMES})
        return _decode(answer, IngestReceipt)

    def page_link(self, job: str = "", project: str = "") -> str:
        """A link to the page, or that of a job, which signs in once as this key, within fifteen minutes.

        The link begins with the server's public address where its settings name one, else with the address in use.
        """
        made = self._post("/session/link", [], None, _SessionLink)
        place = given(code=made.code, job=job or None, project=project or None)
        return f"{made.public_url or self.transport.server}/#/open?{urlencode(place)}"

    def get(self, path: str, parameters: Sequence[tuple[str, str]], shape: type[_T]) -> _T:
        """The answer of a path below the API's base, as that type."""
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


def _of(job: str) -> str:
    return f"/jobs/{quote(job, safe='')}"


def _decode(answer: Response, shape: type[_T]) -> _T:
    try:
        return msgspec.convert(_without_null(msgspec.json.decode(answer.body)), shape)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise JobmeterError(f"the server's answer cannot be read: {error}") from error


def _without_null(value: object) -> object:
    # Unknown fields are null, which a struct has as its default. Points have no null: they are left as they are.
    if isinstance(value, dict):
        return {
            name: part if name == "points" else _without_null(part) for name, part in value.items() if part is not None
        }
    if isinstance(value, list):
        return [_without_null(part) for part in value]
    return value
