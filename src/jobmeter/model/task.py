"""Diagnostic tasks: their subject, and their result."""

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
"""Most unfinished tasks of a project."""
MOST_PROCESSES = 10
"""Most processes that one check ranks."""


class TaskType(StrEnum):
    """Subject of a task."""

    NODE = "node"
    """Nodes: checks that their agents make now; stored samples, events and kernel log lines of the range."""
    LOGS = "logs"
    """Log lines given in the task."""
    JOB = "job"
    """A job, by every rule."""
    STACKS = "stacks"
    """The ranks of a running job and where each is now. The measuring agents collect the evidence."""
    PROCESSES = "processes"
    """The processes of nodes or of a running job that use most now. The measuring agents read them."""


OF_CHECKS = frozenset({TaskType.NODE, TaskType.PROCESSES})
"""Types of tasks that agents answer with checks."""
ANSWERS_ASIDE = frozenset({TaskType.STACKS, TaskType.PROCESSES})
"""Types of tasks whose answers are stored outside of the task: there may be many, and no rule evaluates stored data."""


class TaskState(StrEnum):
    """State of a task."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    INTERRUPTED = "interrupted"
    """Not completed; ``message`` gives the reason."""


class Verdict(StrEnum):
    """Result of a task or a node."""

    HEALTHY = "healthy"
    FAULT = "fault"
    UNKNOWN = "unknown"
    """No fault was found, but some data could not be examined."""


class CheckStatus(StrEnum):
    """Result of a check."""

    OK = "ok"
    WARNING = "warning"
    CRITICAL = "critical"
    UNAVAILABLE = "unavailable"
    """The check could not be made."""


class ProcessUse(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Use of one process without its children, within a second. ``job`` is empty for a process of no visible job.

    ``cores`` is processor time, ``memory`` the resident bytes at the end, in which a shared page counts for each
    process. ``traffic`` is storage traffic in bytes per second, absent for a process that may not be read.
    """

    pid: int
    name: str
    job: str = ""
    replica: str = ""
    attempt: int = 0
    rank: int | None = None
    cores: float | None = None
    memory: int = 0
    traffic: float | None = None


class TaskCheck(msgspec.Struct, frozen=True, omit_defaults=True):
    """Result of one check on a node. ``values`` are figures by name, in the units that the names state.

    ``processes`` are the processes that the check ranks, the largest first.
    """

    name: str
    status: CheckStatus
    text: str
    values: dict[str, float] = {}
    processes: list[ProcessUse] = []


class NodeAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Answer of a node's agent to a task; ``time`` is absent without an answer."""

    node: str
    cluster: str = ""
    time: int | None = None
    verdict: Verdict = Verdict.UNKNOWN
    text: str = ""
    checks: list[TaskCheck] = []
    stacks: NodeEvidence | None = None
    """For a task of type ``stacks``: the evidence of the job's ranks on the node."""


class GivenLog(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Log lines in a task: their instance, and its node."""

    instance: str = ""
    node: str = ""
    lines: list[str] = []


class NewTask(msgspec.Struct, Question["DiagnosticTask"], frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Task to create. ``start`` and ``end`` in epoch ms; default: the last hour.

    Type ``node`` needs ``nodes``, optionally with ``cluster``; types ``job`` and ``stacks`` need ``job``; type
    ``processes`` needs ``nodes`` or ``job``; type ``logs`` needs ``logs``.
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
    """Caller's own word for the type, returned unchanged."""


class DiagnosticTask(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Task and its result. Times in epoch ms."""

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
    """Time until which agents may answer."""
    attempts: int = 0
    looked: bool = False
    """True once stored data was evaluated."""


class TaskPage(msgspec.Struct, frozen=True):
    """Page of tasks, newest first, without their results; ``total`` match in all."""

    tasks: list[DiagnosticTask]
    total: int


class TaskFilter(msgspec.Struct, Question[TaskPage], frozen=True, kw_only=True):
    """Filter of tasks. Empty fields match every task. ``after`` is the id of the previous page's last task.

    ``labels`` match the caller's word for the type; for a task without such a word, the type itself. ``clusters`` match
    the cluster that a task names. A task must concern one of ``nodes``.
    """

    of_job = True

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
    """Request to an agent: the checks of a task, by name, or the evidence of the ranks of ``job``.

    With both, the check covers the processes of the job.
    """

    task: str
    checks: list[str]
    job: str = ""


def make_task_id() -> str:
    """Return a random id for a task."""
    return f"diag-{secrets.token_hex(12)}"


CHECKS = ("disks", "links", "gpus", "clock", "tasks", "processes", "kernel_log", "memory")
"""Checks that an agent makes; all only read."""
