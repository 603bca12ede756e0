"""Events of a job, a replica or a node: rare, with a message, stored with the job's record."""

from collections.abc import Mapping
from enum import StrEnum
from hashlib import blake2b

import msgspec

from jobmeter.model.finding import Severity, Subject
from jobmeter.model.job import JobState
from jobmeter.model.question import Question

FINDING, FINDING_ENDED = "Finding", "FindingEnded"
"""Reasons of events about findings: when a finding opens, and when it closes."""
ALERT_FIRING, ALERT_RESOLVED = "AlertFiring", "AlertResolved"
"""Reasons of events about alerts: when an alert about a job begins to fire, and when it ends."""
STACK_EVIDENCE = "StackEvidence"
"""Reason of events that name the calls in which the ranks of a job are. Events of one comparison have equal times."""
ALLOCATION_MISMATCH = "AllocationMismatch"
"""Reason of an agent's event about a replica that computes on a device that was not allocated to it."""
GPU_LOST, GPU_BACK, GPU_NOT_PERMITTED = "GpuLost", "GpuBack", "GpuNotPermitted"
"""Reasons of an agent's events about a GPU: measurement lost, measurement resumed, access denied."""
DEVICE_HANGS = "DeviceHangs"
"""Reason of an agent's event about a device on which a call does not return."""
DEVICE_FAULT = "DeviceFault"
"""Reason of an agent's event about a fault that a device reports by a code of its vendor."""
XID = "Xid"
"""Reason of an agent's event about an error that NVIDIA's driver reports by its code (XID)."""
DRIVER_MISMATCH = "DriverMismatch"
"""Reason of an agent's event about a node whose GPU driver and library have different versions."""
DRIVER_RELEASED = "DriverReleased"
"""Reason of an agent's event about a driver that it closed on request, for a reset or a change of partitions."""
COMMAND_LINE = "command line"
"""Actor of changes made by a command on the server's own data."""
WHOLE_SERVER = ""
"""Project of events without a project: callers that see every project see them."""


class Level(StrEnum):
    """Importance of an event or a log line, least first."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


LEVEL_OF: Mapping[Severity, Level] = {
    Severity.INFO: Level.INFO,
    Severity.WARNING: Level.WARNING,
    Severity.CRITICAL: Level.ERROR,
}
"""Level of an event about a finding."""


class EventSource(StrEnum):
    """Reporter of an event."""

    STATE = "state"
    """Jobmeter itself, when a job's or replica's state changed: ``reason`` is the new state."""
    JOB = "job"
    REPLICA = "replica"
    NODE = "node"
    SERVER = "server"
    """The server itself: silent nodes, alerts, keys, shippers. Records may not use it."""


class EventType(StrEnum):
    """Type of an event, derived from its source and reason."""

    JOB_STATE = "job_state"
    REPLICA_STATE = "replica_state"
    REPLICA_START = "replica_start"
    REPLICA_END = "replica_end"
    OOM = "oom"
    DEVICE_FAULT = "device_fault"
    THROTTLING = "throttling"
    NODE_UP = "node_up"
    NODE_DOWN = "node_down"
    NODE_REBOOTED = "node_rebooted"
    FINDING = "finding"
    ALERT = "alert"
    SHIPPER = "shipper"
    KEY = "key"
    OTHER = "other"


REASONS: Mapping[EventType, frozenset[str]] = {
    EventType.OOM: frozenset({"OOMKilled", "OOMKilling", "SystemOOM"}),
    EventType.DEVICE_FAULT: frozenset(
        {XID, "EccUncorrected", "RemapFailed", "DeviceLost"}
        | {GPU_LOST, GPU_BACK, GPU_NOT_PERMITTED, DEVICE_HANGS, DEVICE_FAULT, DRIVER_MISMATCH}
        | {"HardwareError", "DiskError", "FilesystemError", "LinkDown"}
    ),
    EventType.THROTTLING: frozenset({"CpuThrottled", "CpuThrottlingEnded", "DeviceThrottled", "DeviceThrottlingEnded"}),
    EventType.FINDING: frozenset({FINDING, FINDING_ENDED}),
}
"""Reasons of each type, for any source."""
SERVER_REASONS: Mapping[EventType, frozenset[str]] = {
    EventType.NODE_UP: frozenset({"NodeUp"}),
    EventType.NODE_DOWN: frozenset({"NodeDown"}),
    EventType.NODE_REBOOTED: frozenset({"NodeRebooted"}),
    EventType.ALERT: frozenset({ALERT_FIRING, ALERT_RESOLVED}),
    EventType.SHIPPER: frozenset(
        {"ShipperCreated", "ShipperChanged", "ShipperDeleted", "ShipperFailed"}
        | {"ShipperRecovered", "ShipperDropped", "ShipperRejected"}
    ),
    EventType.KEY: frozenset({"KeyCreated", "KeyRevoked", "KeyPoliciesChanged"}),
}
"""Reasons that only the server itself gives."""
ENDS = frozenset(state.value for state in JobState if state.finished)
"""Reasons of ``state`` events that mean an end."""
_BY_REASON = {reason: kind for kind, reasons in REASONS.items() for reason in reasons}
_BY_SERVER_REASON = {reason: kind for kind, reasons in SERVER_REASONS.items() for reason in reasons}
_IDENTITY = ("project", "job", "replica", "attempt", "cluster", "node", "source", "reason", "message", "time")


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that happened at ``time`` (epoch ms). Names that do not apply are empty.

    All fields but level and actor identify an event: a repeated event counts once. ``reason`` is one word
    (``OOMKilled``), ``message`` a sentence. ``subject`` is a kind and a name, ``device gpu0``, if the event concerns
    neither a job, a replica nor a node. ``actor`` is the id of the key whose call caused it, ``command line`` for a
    command on the server's own data, and empty without a call.
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
    subject: str = ""
    actor: str = ""

    @property
    def digest(self) -> bytes:
        """Digest of all fields that identify the event, 16 bytes."""
        values = [getattr(self, name) for name in _IDENTITY]
        # Without a subject the digest equals that of releases that had no subjects.
        return blake2b(msgspec.json.encode([*values, *filter(None, [self.subject])]), digest_size=16).digest()

    @property
    def id(self) -> str:
        """Id of the event: 32 hexadecimal digits, equal on every server."""
        return self.digest.hex()

    @property
    def type(self) -> EventType:
        """Type of the event."""
        if self.source is EventSource.STATE:
            if not self.replica:
                return EventType.JOB_STATE
            if self.reason == JobState.RUNNING:
                return EventType.REPLICA_START
            return EventType.REPLICA_END if self.reason in ENDS else EventType.REPLICA_STATE
        if self.source is EventSource.SERVER and self.reason in _BY_SERVER_REASON:
            return _BY_SERVER_REASON[self.reason]
        return _BY_REASON.get(self.reason, EventType.OTHER)

    @property
    def object(self) -> Subject:
        """Object of the event: ``subject``, else the replica, the job or the node."""
        if self.subject:
            kind, _, name = self.subject.partition(" ")
            return Subject(kind, name)
        named = (("replica", self.replica), ("job", self.job), ("node", self.node))
        return next((Subject(kind, name) for kind, name in named if name), Subject("server", ""))


class EventPage(msgspec.Struct, frozen=True):
    """Page of events, and the number of all matches."""

    events: list[Event]
    total: int


class EventFilter(msgspec.Struct, Question[EventPage], frozen=True, kw_only=True):
    """Filter of events, listed by time and then by arrival. Empty fields match everything.

    ``projects`` None means all that the caller may see. ``start`` is inclusive, ``end`` exclusive, both epoch ms.
    ``contains`` searches reason and message, ignoring case. ``without`` are excluded types. ``after`` is the id of an
    event: the list continues after it. ``total`` ignores ``after`` and ``offset``.
    """

    by_resource = of_job = True

    projects: frozenset[str] | None = None
    jobs: tuple[str, ...] = ()
    replicas: frozenset[str] = frozenset()
    nodes: frozenset[str] = frozenset()
    clusters: frozenset[str] = frozenset()
    sources: frozenset[EventSource] = frozenset()
    levels: frozenset[Level] = frozenset()
    types: frozenset[EventType] = frozenset()
    without: frozenset[EventType] = frozenset()
    ids: tuple[str, ...] = ()
    contains: str = ""
    start: int | None = None
    end: int | None = None
    descending: bool = False
    after: str = ""
    offset: int = 0
    limit: int = 100
