"""Searches of a server with their query parameters."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSearch:
    """Which jobs. What is empty matches everything; times are epoch ms or ISO 8601."""

    ids: Sequence[str] = ()
    states: Sequence[str] = ()
    types: Sequence[str] = ()
    users: Sequence[str] = ()
    name: str = ""
    findings: Sequence[str] = ()
    severities: Sequence[str] = ()
    project: str | None = None
    created_from: int | str | None = None
    limit: int = 100
    offset: int = 0

    def parameters(self) -> list[tuple[str, str]]:
        """The query parameters of ``GET /jobs``."""
        repeated = (
            ("id", self.ids),
            ("state", self.states),
            ("type", self.types),
            ("user", self.users),
            ("finding", self.findings),
            ("severity", self.severities),
        )
        pairs = [(name, value) for name, values in repeated for value in values]
        return pairs + given(
            name=self.name or None,
            project=self.project,
            created_from=self.created_from,
            limit=self.limit,
            offset=self.offset or None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EventSearch:
    """Which events. ``level`` is the least; times are epoch ms or ISO 8601. What is empty matches everything."""

    replicas: Sequence[str] = ()
    nodes: Sequence[str] = ()
    types: Sequence[str] = ()
    sources: Sequence[str] = ()
    level: str | None = None
    since: str | None = None
    start: int | str | None = None
    end: int | str | None = None
    contains: str = ""
    project: str | None = None

    def parameters(self, **page: object) -> list[tuple[str, str]]:
        """The query parameters of ``GET /events`` and ``GET /jobs/{id}/events``."""
        repeated = (("replica", self.replicas), ("node", self.nodes), ("type", self.types), ("source", self.sources))
        pairs = [(name, value) for name, values in repeated for value in values]
        return pairs + given(
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
        return pairs + given(
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
    """Which log lines of a job, or of a node; what is empty matches everything. Times are epoch ms or ISO 8601.

    ``replicas``, ``attempt`` and ``node`` are for those of a job only.
    """

    replicas: Sequence[str] = ()
    attempt: int | None = None
    node: str | None = None
    query: str | None = None
    severity: str | None = None
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
        return [("replica", name) for name in self.replicas] + given(
            attempt=self.attempt,
            node=self.node,
            query=self.query,
            severity=self.severity,
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


def given(**values: object) -> list[tuple[str, str]]:
    """Those that are not None, as query parameters."""
    return [(name, str(value)) for name, value in values.items() if value is not None]
