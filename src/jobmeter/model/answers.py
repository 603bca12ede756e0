"""Bodies of our own API's answers that its clients read too.

A server writes every field. A field has a default for clients of servers of earlier releases, which lack it.
Times are epoch milliseconds; None, null in JSON, is what is unknown.
"""

from typing import Any

import msgspec


class DeviceBody(msgspec.Struct, frozen=True, kw_only=True):
    """A device that a replica of a job has or had."""

    node: str = ""
    device: str = ""
    replica: str = ""
    rank: int | None = None


class MetricSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One metric of a job over its life. None: not measured.

    ``points`` are the job's values in steps of ``JobSummary.step_ms`` from ``JobSummary.start_ms`` on, None where
    nothing was measured: the sum of its members' where the unit adds up (``Aggregate.WHOLE``). ``job_mean`` is their
    mean (of a counter: the rate over the job's life), ``job_max`` the highest of the job, for which the highest samples
    of its members in one step are added; ``last`` the newest of them. ``mean`` and ``max`` are those of one member: the
    mean of its members' means over its life, and the highest that any of them showed (of a counter: the highest rate in
    one step). All in ``unit``. ``total`` is a counter's increase over all members, in ``total_unit``.
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

    ``text`` is a sentence, ``reason`` that of the events. ``jobs`` had the device then, or were
    on the node, as far as the caller may see them.
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
    """The newest value of one line, in ``unit``, and when its newest sample was measured."""

    metric: str
    unit: str = ""
    replica: str = ""
    node: str = ""
    device: str = ""
    rank: int | None = None
    time: int = 0
    value: float = 0.0


class ComparedLine(msgspec.Struct, frozen=True, kw_only=True):
    """One metric of one job; ``points`` are pairs of the milliseconds since its start, in whole steps, and a value."""

    job: str
    project: str = ""
    metric: str
    unit: str = ""
    points: list[tuple[int, float]] = []


class DamagedBody(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the store that cannot be read: its rows are missing from answers.

    ``rows``: their number, null where it is unknown. With ``at_most`` it is an upper bound.
    """

    table: str
    part: str = ""
    reason: str = ""
    rows: int | None = None
    at_most: bool = False
    start: int | None = None
    end: int | None = None


class SchedulerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster's scheduler, as its ``jobmeter scheduler`` reported it last, at ``heard``. Times in epoch milliseconds.

    ``problem`` says what is missing of the cluster's jobs, and ``since`` from when on; empty and null where nothing is.
    """

    kind: str
    cluster: str = ""
    project: str = ""
    heard: int = 0
    interval_ms: int = 0
    problem: str = ""
    since: int | None = None


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """How the server does: rows, bytes and samples in memory, work under way by lane, and the clusters' schedulers.

    ``kernel``: "loaded", or why the compiled kernel is missing; NumPy does its work then, more slowly. A server
    remembers the schedulers that reported to it since it started.
    """

    version: str = ""
    kernel: str = ""
    uptime_seconds: float = 0.0
    rows: dict[str, int] = {}
    bytes: dict[str, int] = {}
    window: dict[str, int] = {}
    queue_bytes: int = 0
    work: dict[str, int] = {}
    rolled_until: int | None = None
    damaged: list[DamagedBody] = []
    schedulers: list[SchedulerStatus] = []


class UsageRow(msgspec.Struct, frozen=True, kw_only=True):
    """The calls of one account and operation.

    ``pricing`` is ``priced``, ``free`` (however often it is called) or ``unpriced`` (nobody states a price). Amounts
    are decimal numbers as texts; null where nobody states a price and one is needed. ``free`` and ``free_left`` are
    null where every call is free.
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
    """The calls of a month, ``[start, end)``, and the sum of the costs that are known."""

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


class Shared(msgspec.Struct, frozen=True, kw_only=True):
    """A token whose holder may read one job, and when it ends."""

    token: str
    expires: int


class RuleBody(msgspec.Struct, frozen=True, kw_only=True):
    """A diagnostic rule: what it looks for, and what to do where it finds that."""

    name: str
    sees: str = ""
    advice: str = ""
    source: str = ""


class RuleList(msgspec.Struct, frozen=True, kw_only=True):
    """Every rule, by name."""

    rules: list[RuleBody] = []


class ShipperBody(msgspec.Struct, frozen=True, kw_only=True):
    """A log shipper.

    ``project`` is whose lines it ships, null for those of every project; ``sink_project`` and ``logstore`` name the
    sink. ``state`` is ``shipping`` or, while the sink does not take lines, ``failing``: ``error`` says why then.
    ``waiting`` lines are not shipped yet, the oldest of them for ``lag_seconds``.
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
    """The key that the call was made with. ``job`` is set for a link, which opens that job alone until ``expires``."""

    id: str = ""
    name: str = ""
    role: str = ""
    project: str | None = None
    job: str | None = None
    expires: int | None = None


class TraceBody(msgspec.Struct, frozen=True, kw_only=True):
    """A trace as far as its spans began in the range that was requested.

    ``name``, ``service`` and ``job`` are those of the root. ``start_ns`` is a text of digits.
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
    """One page of traces. ``next`` goes on behind it, null at the end; ``total`` is null unless requested."""

    traces: list[TraceBody] = []
    next: str | None = None
    total: int | None = None


class SpanEventBody(msgspec.Struct, frozen=True, kw_only=True):
    """What happened during a span. ``dropped``: attributes that the sender left out."""

    time_ns: str = "0"
    name: str = ""
    attributes: dict[str, Any] = {}
    dropped: int = 0


class SpanLinkBody(msgspec.Struct, frozen=True, kw_only=True):
    """Another span that belongs to this one."""

    trace: str
    span: str
    state: str = ""
    attributes: dict[str, Any] = {}
    dropped: int = 0


class SpanBody(msgspec.Struct, frozen=True, kw_only=True):
    """A span. ``parent`` is empty for a root; values of attributes are JSON, bytes base64."""

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
    """Spans of one trace, by their start. ``next`` goes on behind them, null at the end."""

    trace: str = ""
    spans: list[SpanBody] = []
    next: str | None = None
