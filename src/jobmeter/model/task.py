"""Diagnostic tasks: what to examine, and the result."""

import secrets
from enum import StrEnum

import msgspec

from jobmeter.model.event import Event
from jobmeter.model.finding import Finding
from jobmeter.model.question import Question
from jobmeter.model.stacks import NodeEvidence

MAX_NODES = 256
MAX_LOG_LINES = 10_000
MAX_LOG_BYTES = 512 * 1024
MOST_OPEN = 100
"""Tasks of a project that are not finished."""


class TaskType(StrEnum):
    """What a task looks at."""

    NODE = "node"
    """Nodes: checks that their agents make now; samples, events and lines of the kernels stored of the range."""
    LOGS = "logs"
    """Log lines that the task brings along."""
    JOB = "job"
    """A job, by every rule."""
    STACKS = "stacks"
    """The ranks of a running job: where each is now. Whoever measures the job collects the evidence."""


class TaskState(StrEnum):
    """Where a task is."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    INTERRUPTED = "interrupted"
    """It could not be completed; ``message`` says why."""


class Verdict(StrEnum):
    """The result of a task or a node."""

    HEALTHY = "healthy"
    FAULT = "fault"
    UNKNOWN = "unknown"
    """No fault was found, and not everything could be examined."""


class CheckStatus(StrEnum):
    """What a check found."""

    OK = "ok"
    WARNING = "warning"
    CRITICAL = "critical"
    UNAVAILABLE = "unavailable"
    """The check could not be made."""


class Check(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one check of a node found. ``values`` are figures by name, in the units that the names say."""

    name: str
    status: CheckStatus
    text: str
    values: dict[str, float] = {}


class NodeAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the agent of a node answered to a task; ``time`` None: it gave no answer."""

    node: str
    cluster: str = ""
    time: int | None = None
    verdict: Verdict = Verdict.UNKNOWN
    text: str = ""
    checks: list[Check] = []
    stacks: NodeEvidence | None = None
    """For a task of type ``stacks``: the evidence of the job's ranks on the node."""


class GivenLog(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Log lines in a task: their instance, and its node."""

    instance: str = ""
    node: str = ""
    lines: list[str] = []


class NewTask(msgspec.Struct, Question["DiagnosticTask"], frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A task to make. ``start`` and ``end`` in epoch ms; by default the last hour.

    A task of type ``node`` names ``nodes``, those of ``cluster`` where one is named; one of type ``job`` or ``stacks``
    names its job, and one of type ``logs`` has ``logs``.
    """

    type: TaskType = TaskType.NODE
    cluster: str = ""
    nodes: list[str] = []
    job: str = ""
    start: int | None = None
    end: int | None = None
    logs: list[GivenLog] = []
    project: str | None = None
    label: str = ""
    """The caller's own word for the type, returned unchanged."""


class DiagnosticTask(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A task and its result. Times in epoch ms."""

    id: str
    type: TaskType
    state: TaskState
    project: str
    created: int
    start: int
    end: int
    cluster: str = ""
    nodes: list[str] = []
    resource_group: str = ""
    job: str = ""
    label: str = ""
    finished: int | None = None
    verdict: Verdict | None = None
    message: str = ""
    findings: list[Finding] = []
    events: list[Event] = []
    answers: list[NodeAnswer] = []
    logs: list[GivenLog] = []
    deadline: int = 0
    """Until when agents may answer."""
    attempts: int = 0
    looked: bool = False
    """Whether stored data was evaluated."""


class TaskPage(msgspec.Struct, frozen=True):
    """One page of tasks, the newest first, without their results; ``total`` match in all."""

    tasks: list[DiagnosticTask]
    total: int


class TaskFilter(msgspec.Struct, Question[TaskPage], frozen=True, kw_only=True):
    """Which tasks. Empty parts match every task. ``after`` is the id of the last task of the page before.

    ``labels`` are the callers' words for the type, or the type itself of a task without one; ``clusters`` those that
    tasks name; ``nodes``: a task is about one of them.
    """

    projects: frozenset[str] | None = None
    ids: tuple[str, ...] = ()
    types: frozenset[TaskType] = frozenset()
    labels: frozenset[str] = frozenset()
    job: str = ""
    states: frozenset[TaskState] = frozenset()
    resource_groups: frozenset[str] = frozenset()
    clusters: frozenset[str] = frozenset()
    nodes: frozenset[str] = frozenset()
    after: str = ""
    limit: int = 100


class NodeRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """What an agent is to do: the checks of a task by their names, or the evidence of the ranks of ``job``."""

    task: str
    checks: list[str]
    job: str = ""


def new_task_id() -> str:
    """Return a random id for a task."""
    return f"diag-{secrets.token_hex(12)}"


CHECKS = ("disks", "links", "gpus", "clock", "tasks", "kernel_log", "memory")
"""The checks that an agent makes: each reads, none changes anything."""
