"""What happened to a job, a replica or a node: rare, worded, kept with the job's record."""

from enum import StrEnum

import msgspec

from jobmeter.model.question import Asks


class Level(StrEnum):
    """How much an event or a log line matters, least first."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class EventSource(StrEnum):
    """Who tells of an event."""

    STATE = "state"
    """Jobmeter itself, when a job's or replica's state changed: ``reason`` is the new state."""
    JOB = "job"
    REPLICA = "replica"
    NODE = "node"


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that happened, at ``time`` (epoch ms). Names that do not apply are empty.

    An event is known by everything but its level: sent again, it counts once. ``reason`` is one word (``OOMKilled``),
    ``message`` a sentence.
    """

    time: int
    project: str = "default"
    job: str = ""
    replica: str = ""
    attempt: int = 0
    cluster: str = ""
    node: str = ""
    source: EventSource = EventSource.JOB
    level: Level = Level.INFO
    reason: str = ""
    message: str = ""


class EventPage(msgspec.Struct, frozen=True):
    """One page of events, and how many match in all."""

    events: list[Event]
    total: int


class EventFilter(msgspec.Struct, Asks[EventPage], frozen=True, kw_only=True):
    """Which events to list, by time and then in the order in which they arrived. Empty parts match everything.

    ``projects`` None means all that the asker may see. ``start`` is inclusive, ``end`` exclusive, both epoch ms.
    ``contains`` looks in reason and message, without regard to case.
    """

    projects: frozenset[str] | None = None
    jobs: tuple[str, ...] = ()
    replicas: frozenset[str] = frozenset()
    nodes: frozenset[str] = frozenset()
    clusters: frozenset[str] = frozenset()
    sources: frozenset[EventSource] = frozenset()
    levels: frozenset[Level] = frozenset()
    contains: str = ""
    start: int | None = None
    end: int | None = None
    descending: bool = False
    offset: int = 0
    limit: int = 100
