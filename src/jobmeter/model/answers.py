"""Bodies of our own API's answers that its clients read too.

A server writes every field. Fields have defaults for clients of earlier servers that lack them. Times are epoch
milliseconds; unknown values are None, null in JSON.
"""

from typing import Any

import msgspec

from jobmeter.model.finding import Severity
from jobmeter.model.job import JobState


class DeviceBody(msgspec.Struct, frozen=True, kw_only=True):
    """A device that a replica of a job has or had."""

    node: str = ""
    device: str = ""
    replica: str = ""
    rank: int | None = None


class MetricSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A metric of a job over its life. None: not measured.

    ``points`` are the job's values in steps of ``JobSummary.step_ms`` from ``JobSummary.start_ms`` on, None for
    unmeasured steps. They sum the members if the unit adds up (``Aggregate.WHOLE``). ``job_mean`` is their mean (of a
    counter: the rate over the job's life). ``job_max`` is the highest value of the job, adding the members' highest
    samples in one step. ``last`` is the newest value. ``mean`` and ``max`` describe one member: the mean of the
    members' means, and the highest value of any member (of a counter: the highest rate in one step). All in ``unit``.
    ``total`` is the increase of a counter over all members, in ``total_unit``; for a rate, the increase of its counter.
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


class FaultJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that a fault hit, whether it runs or not."""

    id: str
    project: str = ""
    name: str = ""


class FaultBody(msgspec.Struct, frozen=True, kw_only=True):
    """A fault of a node, or of a device of it: ``count`` reports from ``start`` to ``last``, in epoch milliseconds.

    ``text`` is a sentence, ``reason`` the reason of its events. ``jobs`` are the visible jobs that had the device, or
    ran on the node, at that time.
    """

    device: str = ""
    reason: str = ""
    text: str = ""
    start: int = 0
    last: int = 0
    count: int = 1
    jobs: list[FaultJob] = []


class NodeFaults(msgspec.Struct, frozen=True, kw_only=True):
    """The faults of a node that were reported within a day and are not known to have passed, the newest first."""

    node: str
    cluster: str = ""
    faults: list[FaultBody] = []


class LatestValue(msgspec.Struct, frozen=True, kw_only=True):
    """The newest value of one line, in ``unit``, with the time of its newest sample."""

    metric: str
    unit: str = ""
    replica: str = ""
    node: str = ""
    device: str = ""
    rank: int | None = None
    time: int = 0
    value: float = 0.0


class ComparedLine(msgspec.Struct, frozen=True, kw_only=True):
    """A metric of a job; ``points`` are pairs of milliseconds since its start, in whole steps, and a value."""

    job: str
    project: str = ""
    metric: str
    unit: str = ""
    points: list[tuple[int, float]] = []


class DamagedBody(msgspec.Struct, frozen=True, kw_only=True):
    """An unreadable part of the store: its rows are missing from answers.

    ``rows``: their number, null if unknown. With ``at_most`` it is an upper bound.
    """

    table: str
    part: str = ""
    reason: str = ""
    rows: int | None = None
    at_most: bool = False
    start: int | None = None
    end: int | None = None


class SchedulerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Last report of a cluster's scheduler by its ``jobmeter scheduler``, at ``heard``. Times in epoch milliseconds.

    ``problem`` tells which job data is missing, and ``since`` from what time; empty and null without problems.
    """

    kind: str
    cluster: str = ""
    project: str = ""
    heard: int = 0
    interval_ms: int = 0
    problem: str = ""
    since: int | None = None


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """Server status: rows, bytes and samples in memory, running work by lane, and the clusters' schedulers.

    ``kernel``: "loaded", or the reason why the compiled kernel is missing; NumPy then replaces it and is slower.
    ``processes`` counts the process that stores and answers, and its workers. ``schedulers`` have those that reported
    within a week. ``replicas`` has for each replica of the telemetry store whether it answers and has all data,
    ``shards`` for each shard whether it can be read. The sizes lack the rows of a shard that cannot be read.
    ``role`` describes this server among those that use the same ClickHouse server; empty if no other can.
    """

    version: str = ""
    kernel: str = ""
    processes: int = 1
    uptime_seconds: float = 0.0
    rows: dict[str, int] = {}
    bytes: dict[str, int] = {}
    window: dict[str, int] = {}
    queue_bytes: int = 0
    work: dict[str, int] = {}
    rolled_until: int | None = None
    damaged: list[DamagedBody] = []
    replicas: dict[str, bool] = {}
    shards: dict[str, bool] = {}
    role: str = ""
    schedulers: list[SchedulerStatus] = []


class UsageRow(msgspec.Struct, frozen=True, kw_only=True):
    """The calls of one account and operation.

    ``pricing`` is ``priced``, ``free`` (whatever the number of calls) or ``unpriced`` (the price is unknown). Amounts
    are decimal numbers as texts; null if a price is needed but unknown. ``free`` and ``free_left`` are null if every
    call is free.
    """

    account: str
    api: str
    operation: str
    calls: int
    failed: int
    pricing: str
    free: int | None = None
    free_left: int | None = None
    unit_price: str | None = None
    cost: str | None = None


class UsageBody(msgspec.Struct, frozen=True, kw_only=True):
    """The calls of a month, ``[start, end)``, and the sum of the known costs."""

    month: str
    time_zone: str
    start: int
    end: int
    currency: str
    charge: str
    calls: int
    failed: int
    cost: str
    usage: list[UsageRow] = []


class DeviceHoursBucket(msgspec.Struct, frozen=True, kw_only=True):
    """Device seconds from ``start`` until the next bucket, with the cost of the idle ones.

    ``used`` and ``idle`` are null if no device was measured. ``cost`` is null unless an idle device has a price.
    ``unpriced`` are the idle seconds of devices without a price. Time without measurements is neither used nor idle.
    """

    start: int
    allocated: float
    used: float | None = None
    idle: float | None = None
    cost: float | None = None
    unpriced: float = 0.0


class DeviceHoursGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Device time of one project or user: ``total`` is the sum of ``buckets``. ``jobs`` counts jobs with devices."""

    name: str
    jobs: int
    total: DeviceHoursBucket
    buckets: list[DeviceHoursBucket]


class DeviceHoursBody(msgspec.Struct, frozen=True, kw_only=True):
    """Device time in ``[start, end)`` by project or user, the longest idle time first.

    ``every`` is the length of the buckets in ms; the range cuts the first and the last. ``others`` is the sum of the
    ``combined`` unlisted groups; null if all groups are listed.
    """

    start: int
    end: int
    every: int
    by: str
    currency: str
    groups: list[DeviceHoursGroup] = []
    others: DeviceHoursGroup | None = None
    combined: int = 0


class Shared(msgspec.Struct, frozen=True, kw_only=True):
    """A token whose holder may read one job, and its expiry."""

    token: str
    expires: int


class RuleBody(msgspec.Struct, frozen=True, kw_only=True):
    """A diagnostic rule: the fault that it detects, and advice."""

    name: str
    title: str = ""
    sees: str = ""
    advice: str = ""
    source: str = ""


class RuleList(msgspec.Struct, frozen=True, kw_only=True):
    """All rules, by name."""

    rules: list[RuleBody] = []


class ShipperBody(msgspec.Struct, frozen=True, kw_only=True):
    """A log shipper.

    ``project`` is the project whose lines it ships, null for every project. ``sink_project`` and ``logstore`` name the
    sink. ``state`` is ``shipping`` or, while the sink does not accept lines, ``failing``; then ``error`` gives the
    reason. ``waiting`` lines are not shipped yet; the oldest has waited for ``lag_seconds``.
    """

    id: str
    project: str | None = None
    resource_group: str
    sink_project: str
    logstore: str
    created: int
    state: str
    waiting: int = 0
    lag_seconds: float = 0.0
    shipped: int = 0
    dropped: int = 0
    rejected: int = 0
    failures: int = 0
    error: str = ""


class ShipperList(msgspec.Struct, frozen=True, kw_only=True):
    """Shippers, by creation."""

    shippers: list[ShipperBody] = []


class WhoAmI(msgspec.Struct, frozen=True, kw_only=True):
    """The calling key. ``job`` is set for a link, which only opens that job until ``expires``."""

    id: str = ""
    name: str = ""
    role: str = ""
    project: str | None = None
    job: str | None = None
    expires: int | None = None


class TraceBody(msgspec.Struct, frozen=True, kw_only=True):
    """A trace, limited to spans that began in the requested range.

    ``name``, ``service`` and ``job`` come from the root. ``start_ns`` is a text of digits.
    """

    trace: str
    project: str = ""
    name: str = ""
    service: str = ""
    job: str = ""
    start: int = 0
    start_ns: str = ""
    duration_ns: int = 0
    spans: int = 0
    errors: int = 0


class TraceList(msgspec.Struct, frozen=True, kw_only=True):
    """A page of traces.

    ``next`` is the cursor of the next page, null at the end; ``total`` is null unless requested.
    """

    traces: list[TraceBody] = []
    next: str | None = None
    total: int | None = None


class SpanEventBody(msgspec.Struct, frozen=True, kw_only=True):
    """An event in a span. ``dropped``: attributes that the sender left out."""

    time_ns: str = "0"
    name: str = ""
    attributes: dict[str, Any] = {}
    dropped: int = 0


class SpanLinkBody(msgspec.Struct, frozen=True, kw_only=True):
    """A link to another span."""

    trace: str
    span: str
    state: str = ""
    attributes: dict[str, Any] = {}
    dropped: int = 0


class SpanBody(msgspec.Struct, frozen=True, kw_only=True):
    """A span. ``parent`` is empty for a root; attribute values are JSON, bytes are base64."""

    span: str
    parent: str = ""
    project: str = ""
    name: str = ""
    kind: str = ""
    service: str = ""
    job: str = ""
    replica: str = ""
    attempt: int = 0
    node: str = ""
    start: int = 0
    start_ns: str = "0"
    duration_ns: int = 0
    status: str = ""
    message: str = ""
    attributes: dict[str, Any] = {}
    resource: dict[str, Any] = {}
    scope: str = ""
    scope_version: str = ""
    events: list[SpanEventBody] = []
    links: list[SpanLinkBody] = []
    state: str = ""
    dropped_attributes: int = 0
    dropped_events: int = 0
    dropped_links: int = 0


class SpanList(msgspec.Struct, frozen=True, kw_only=True):
    """Spans of one trace, by their start. ``next`` is the cursor of the next page, null at the end."""

    trace: str = ""
    spans: list[SpanBody] = []
    next: str | None = None


class FindingEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A stored finding with its job. The fault began at ``start`` and was last reported at ``time``.

    ``open``: the job runs, and the finding has not ended.
    """

    project: str
    job: str
    name: str = ""
    user: str = ""
    state: JobState = JobState.UNKNOWN
    rule: str = ""
    severity: Severity = Severity.INFO
    sentence: str = ""
    start: int = 0
    time: int = 0
    open: bool = False


class FindingList(msgspec.Struct, frozen=True, kw_only=True):
    """Findings; ``more``: others follow them."""

    findings: list[FindingEntry] = []
    more: bool = False
