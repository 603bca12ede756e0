"""The native API as typed calls. Answers are plain structs; times are epoch milliseconds."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar
from urllib.parse import quote, urlencode

import msgspec

from jobmeter.client.transport import API, FRAMES, Response, Transport
from jobmeter.errors import JobmeterError
from jobmeter.model.event import Event
from jobmeter.model.finding import Finding
from jobmeter.model.job import Allocation, Job, Node, Replica

PAGE = 1000
"""Most jobs, or events, in one answer."""

_T = TypeVar("_T")


class JobList(msgspec.Struct, frozen=True, kw_only=True):
    """One page of jobs, and how many match in all."""

    jobs: list[Job] = []
    total: int = 0


class DeviceUse(msgspec.Struct, frozen=True, kw_only=True):
    """A device that a replica of a job has or had."""

    node: str = ""
    device: str = ""
    replica: str = ""
    rank: int | None = None


class MetricSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One metric of a job over its life. None is what was not measured.

    ``job_mean``, ``job_max`` and ``points`` (in steps of ``JobSummary.step_ms``) are of the job: of its members
    together where the unit adds up. ``mean`` and ``max`` are those of one member. ``total`` is a counter's increase
    over all members in ``total_unit``.
    """

    metric: str
    unit: str = ""
    job_mean: float | None = None
    job_max: float | None = None
    mean: float | None = None
    max: float | None = None
    last: float | None = None
    total: float | None = None
    total_unit: str = ""
    points: list[float | None] = []


class JobSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What a job used over its whole life, until now while it runs. Times in epoch milliseconds."""

    duration_ms: int | None = None
    start_ms: int = 0
    step_ms: int = 1
    replicas: int = 0
    nodes: int = 0
    devices: int = 0
    metrics: list[MetricSummary] = []
    gpu_energy_joules: float | None = None

    def find(self, metric: str) -> MetricSummary | None:
        """What is told of that metric; None when the job was not measured for it."""
        return next((one for one in self.metrics if one.metric == metric), None)


class JobDetail(msgspec.Struct, frozen=True, kw_only=True):
    """One job with everything that belongs to it."""

    job: Job
    replicas: list[Replica] = []
    allocations: list[Allocation] = []
    devices: list[DeviceUse] = []
    nodes: list[str] = []
    summary: JobSummary = msgspec.field(default_factory=JobSummary)


class MetricLine(msgspec.Struct, frozen=True, kw_only=True):
    """One line of an answer: ``points`` are (bucket start in epoch ms, value), ascending; what is missing is absent."""

    metric: str
    unit: str = ""
    replica: str = ""
    node: str = ""
    device: str = ""
    rank: int | None = None
    points: list[tuple[int, float]] = []


class MetricAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The lines that were asked for, and the range, step and tiers that they came from."""

    job: str = ""
    project: str = ""
    start: int = 0
    end: int = 0
    step: int = 0
    by: str = ""
    statistic: str = ""
    lines: list[MetricLine] = []
    samples: int = 0
    tiers: list[str] = []


class LatestValue(msgspec.Struct, frozen=True, kw_only=True):
    """The newest value of one line, and when it was measured."""

    metric: str
    unit: str = ""
    replica: str = ""
    node: str = ""
    device: str = ""
    time: int = 0
    value: float = 0.0


class LogEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One log line: ``time`` in milliseconds, ``time_ns`` the same moment in nanoseconds; None: it names no level."""

    text: str
    time: int = 0
    time_ns: str = "0"
    replica: str = ""
    attempt: int = 0
    node: str = ""
    stream: str = ""
    level: str | None = None


class IngestReceipt(msgspec.Struct, frozen=True, kw_only=True):
    """What became of what was sent: see ``docs/reference/wire-format.md``."""

    accepted: int = 0
    records: int = 0
    rejected: dict[str, int] = {}
    lines: int = 0
    rejected_lines: dict[str, int] = {}
    time: int = 0
    unknown: list[str] = []


class WhoAmI(msgspec.Struct, frozen=True, kw_only=True):
    """The key that the calls are made with."""

    id: str = ""
    name: str = ""
    role: str = ""
    project: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSearch:
    """Which jobs. What is empty matches everything; times are epoch ms or ISO 8601."""

    ids: Sequence[str] = ()
    states: Sequence[str] = ()
    types: Sequence[str] = ()
    users: Sequence[str] = ()
    name: str = ""
    project: str | None = None
    created_from: int | str | None = None
    limit: int = 100
    offset: int = 0

    def parameters(self) -> list[tuple[str, str]]:
        """The query parameters of ``GET /jobs``."""
        repeated = (("id", self.ids), ("state", self.states), ("type", self.types), ("user", self.users))
        pairs = [(name, value) for name, values in repeated for value in values]
        return pairs + _given(
            name=self.name or None,
            project=self.project,
            created_from=self.created_from,
            limit=self.limit,
            offset=self.offset or None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EventSearch:
    """Which events of a job. ``level`` is the least; times are epoch ms or ISO 8601."""

    level: str | None = None
    since: str | None = None
    start: int | str | None = None
    end: int | str | None = None
    contains: str = ""
    project: str | None = None

    def parameters(self, **page: object) -> list[tuple[str, str]]:
        """The query parameters of ``GET /jobs/{id}/events``."""
        return _given(
            level=self.level,
            since=self.since,
            start=self.start,
            end=self.end,
            contains=self.contains or None,
            project=self.project,
            **page,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricSearch:
    """Which metrics of a job, over which range, joined how. None takes the server's default."""

    metrics: Sequence[str]
    start: int | str | None = None
    end: int | str | None = None
    since: str | None = None
    step: str | None = None
    by: str | None = None
    aggregate: str | None = None
    statistic: str | None = None
    replicas: Sequence[str] = ()
    devices: Sequence[str] = ()
    project: str | None = None

    def parameters(self) -> list[tuple[str, str]]:
        """The query parameters of ``GET /jobs/{id}/metrics``."""
        repeated = (("metric", self.metrics), ("replica", self.replicas), ("device", self.devices))
        pairs = [(name, value) for name, values in repeated for value in values]
        return pairs + _given(
            start=self.start,
            end=self.end,
            since=self.since,
            step=self.step,
            by=self.by,
            aggregate=self.aggregate,
            statistic=self.statistic,
            project=self.project,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSearch:
    """Which log lines of a job; what is empty matches everything. Times are epoch ms or ISO 8601."""

    replicas: Sequence[str] = ()
    attempt: int | None = None
    stream: str | None = None
    level: str | None = None
    contains: str | None = None
    start: int | str | None = None
    end: int | str | None = None
    since: str | None = None
    order: str | None = None
    limit: int | None = None
    project: str | None = None

    def parameters(self) -> list[tuple[str, str]]:
        """The query parameters of ``GET /jobs/{id}/logs``."""
        return [("replica", name) for name in self.replicas] + _given(
            attempt=self.attempt,
            stream=self.stream,
            level=self.level,
            contains=self.contains,
            start=self.start,
            end=self.end,
            since=self.since,
            order=self.order,
            limit=self.limit,
            project=self.project,
        )


class Api:
    """Calls of one server. Safe to use from several threads, as its transport is.

    Every method raises the error that the server refused with, or UnavailableError when no answer came.
    """

    def __init__(self, transport: Transport) -> None:
        self.transport = transport

    def jobs(self, search: JobSearch) -> JobList:
        """One page of jobs, newest first."""
        return self._get("/jobs", search.parameters(), JobList)

    def every_job(self, search: JobSearch, limit: int) -> Iterator[Job]:
        """At most ``limit`` jobs, fetched page by page as they are taken."""
        offset = search.offset
        while limit > 0:
            page = self.jobs(replace(search, limit=min(limit, PAGE), offset=offset))
            yield from page.jobs
            offset += len(page.jobs)
            limit -= len(page.jobs)
            if not page.jobs or offset >= page.total:
                return

    def job(self, job: str, project: str | None = None) -> JobDetail:
        """One job. Raises NotFoundError."""
        return self._get(_of(job), _given(project=project), JobDetail)

    def newest_events(self, job: str, search: EventSearch, limit: int) -> tuple[list[Event], int]:
        """At most ``limit`` events, newest first, and how many match in all. Raises NotFoundError."""
        found: list[Event] = []
        while True:
            wanted = min(limit - len(found), PAGE)
            parameters = search.parameters(order="desc", limit=wanted, offset=len(found) or None)
            page = self._get(f"{_of(job)}/events", parameters, _Events)
            found.extend(page.events)
            if not page.events or len(found) >= min(limit, page.total):
                return found, page.total

    def findings(self, job: str, project: str | None = None) -> list[Finding]:
        """What the rules found in a job, worst first. Raises NotFoundError."""
        return self._get(f"{_of(job)}/findings", _given(project=project), list[Finding])

    def metrics(self, job: str, search: MetricSearch) -> MetricAnswer:
        """What a job used, as lines of points."""
        return self._get(f"{_of(job)}/metrics", search.parameters(), MetricAnswer)

    def export(self, job: str, search: MetricSearch, form: str) -> bytes:
        """The same as a file: ``form`` is ``csv`` or ``parquet``."""
        return self._call("GET", f"{_of(job)}/metrics", [*search.parameters(), ("format", form)]).body

    def samples(self, job: str, search: MetricSearch, form: str) -> Iterator[bytes]:
        """Every stored reading as a file, however long, as it arrives: ``form`` is ``csv``, ``json`` or ``parquet``.

        ``step``, ``by``, ``aggregate`` and ``statistic`` mean nothing here and must be None.
        """
        query = urlencode([*search.parameters(), ("format", form)])
        return self.transport.pieces(f"{API}{_of(job)}/samples?{query}")

    def latest(
        self, job: str, metrics: Sequence[str] = (), by: str | None = None, project: str | None = None
    ) -> list[LatestValue]:
        """The newest value of each line; without ``metrics`` those of the core set."""
        pairs = [("metric", metric) for metric in metrics] + _given(by=by, project=project)
        return self._get(f"{_of(job)}/latest", pairs, _Latest).values

    def logs(self, job: str, search: LogSearch) -> Iterator[LogEntry]:
        """The log lines of a job, however many, as they arrive."""
        query = urlencode([*search.parameters(), ("format", "jsonl")])
        for line in self.transport.lines(f"{API}{_of(job)}/logs?{query}"):
            try:
                yield msgspec.json.decode(line, type=LogEntry)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise JobmeterError(f"the server's answer cannot be read: {error}") from error

    def nodes(self, project: str | None = None) -> list[Node]:
        """The machines that agents run on."""
        return self._get("/nodes", _given(project=project), _Nodes).nodes

    def ingest(self, frames: bytes) -> IngestReceipt:
        """Send frames of the native wire format; on return what was accepted is durable."""
        answer = self.transport.request("POST", f"{API}/ingest", frames, {"Content-Type": FRAMES})
        return _decode(answer, IngestReceipt)

    def whoami(self) -> WhoAmI:
        """Whose key this is. Raises UnauthenticatedError for one that does not hold."""
        return self._get("/whoami", [], WhoAmI)

    def _get(self, path: str, parameters: Sequence[tuple[str, str]], shape: type[_T]) -> _T:
        return _decode(self._call("GET", path, parameters), shape)

    def _call(self, method: str, path: str, parameters: Sequence[tuple[str, str]]) -> Response:
        query = f"?{urlencode(parameters)}" if parameters else ""
        return self.transport.request(method, f"{API}{path}{query}")


class _Latest(msgspec.Struct):
    values: list[LatestValue] = []


class _Events(msgspec.Struct):
    events: list[Event] = []
    total: int = 0


class _Nodes(msgspec.Struct):
    nodes: list[Node] = []


def _of(job: str) -> str:
    return f"/jobs/{quote(job, safe='')}"


def _given(**values: object) -> list[tuple[str, str]]:
    return [(name, str(value)) for name, value in values.items() if value is not None]


def _decode(answer: Response, shape: type[_T]) -> _T:
    try:
        return msgspec.convert(_without_null(msgspec.json.decode(answer.body)), shape)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise JobmeterError(f"the server's answer cannot be read: {error}") from error


def _without_null(value: object) -> object:
    # What is unknown comes as null; a struct knows it by its default. Points hold no null: they are left as they are.
    if isinstance(value, dict):
        return {
            name: part if name == "points" else _without_null(part) for name, part in value.items() if part is not None
        }
    if isinstance(value, list):
        return [_without_null(part) for part in value]
    return value
