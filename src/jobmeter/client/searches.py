"""Searches of a server: their fields are the query parameters of ``GET`` requests."""

from collections.abc import Sequence
from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """Base of searches.

    An empty field matches everything or takes the server's default; times are epoch ms or ISO 8601.
    """

    def list_parameters(self, **page: object) -> list[tuple[str, str]]:
        """Return the query parameters, lists first: each value is one parameter, under the singular name."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        several = {name: value for name, value in values.items() if not isinstance(value, str | int | None)}
        single = {name: value for name, value in values.items() if name not in several and value != ""}
        return [(_to_singular(name), part) for name, parts in several.items() for part in parts] + drop_none(
            **single, **page
        )


def _to_singular(name: str) -> str:
    return "severity" if name == "severities" else name.removesuffix("s")


def drop_none(**values: object) -> list[tuple[str, str]]:
    """Return values that are not None as query parameters."""
    return [(name, str(value)) for name, value in values.items() if value is not None]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSearch(Search):
    """Search for jobs."""

    ids: Sequence[str] = ()
    states: Sequence[str] = ()
    types: Sequence[str] = ()
    users: Sequence[str] = ()
    nodes: Sequence[str] = ()
    tags: Sequence[str] = ()
    resource_groups: Sequence[str] = ()
    name: str = ""
    findings: Sequence[str] = ()
    severities: Sequence[str] = ()
    project: str | None = None
    created_from: int | str | None = None
    sort: str | None = None
    order: str | None = None
    limit: int = 100
    offset: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HoursSearch(Search):
    """Search for the device time of projects or users."""

    by: str | None = None
    every: str | None = None
    since: str | None = None
    start: int | str | None = None
    end: int | str | None = None
    project: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingSearch(Search):
    """Search for stored findings of all jobs."""

    findings: Sequence[str] = ()
    severities: Sequence[str] = ()
    open: str | None = None
    since: str | None = None
    project: str | None = None
    limit: int = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class EventSearch(Search):
    """Search for events, of one job or all. ``level`` is the lowest level."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricSearch(Search):
    """Search for metrics of a job: names, range and aggregation."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSearch(Search):
    """Search for log lines of a job or node; ``replicas``, ``attempt`` and ``node`` only apply to a job."""

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
