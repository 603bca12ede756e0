"""Answers of a job manager, as far as they are read.

Source: https://nightlies.apache.org/flink/flink-docs-release-1.20/docs/ops/rest_api/. Times are epoch milliseconds, -1
for events that have not happened.
"""

import msgspec

TERMINAL = frozenset({"FINISHED", "FAILED", "CANCELED"})
"""States of a job after which nothing follows."""


class Summary(msgspec.Struct, frozen=True, rename="kebab"):
    """A job in ``/jobs/overview``. ``last_modification`` is when one of its tasks last changed its state."""

    jid: str
    name: str
    state: str
    start_time: int
    end_time: int = -1
    last_modification: int = -1


class Overview(msgspec.Struct, frozen=True):
    """``/jobs/overview``."""

    jobs: list[Summary] = []


class Vertex(msgspec.Struct, frozen=True):
    """A task of a job: a chain of operators."""

    id: str
    name: str
    parallelism: int = 1


class Details(msgspec.Struct, frozen=True, rename="kebab"):
    """``/jobs/JOB``. ``timestamps`` says when the job entered each state, 0 for never."""

    jid: str
    name: str
    state: str
    start_time: int
    end_time: int = -1
    job_type: str = ""
    vertices: list[Vertex] = []
    timestamps: dict[str, int] = {}


class Subtask(msgspec.Struct, frozen=True, rename="kebab"):
    """One of the parallel instances of a task. ``endpoint`` is the address of its task manager."""

    subtask: int
    status: str = ""
    start_time: int = -1
    endpoint: str = ""
    taskmanager_id: str = ""


class Subtasks(msgspec.Struct, frozen=True):
    """``/jobs/JOB/vertices/TASK``."""

    subtasks: list[Subtask] = []


class Failure(msgspec.Struct, frozen=True, rename="camel"):
    """Why a job was restarted, or failed. The names of task and task manager are None where unknown."""

    exception_name: str
    timestamp: int
    stacktrace: str = ""
    task_name: str | None = None
    task_manager_id: str | None = None
    concurrent_exceptions: list["Failure"] = []


class History(msgspec.Struct, frozen=True):
    """The last failures, newest first."""

    entries: list[Failure] = []


class Exceptions(msgspec.Struct, frozen=True, rename="camel"):
    """``/jobs/JOB/exceptions``."""

    exception_history: History = History()


class Reading(msgspec.Struct, frozen=True):
    """A metric; ``value`` is empty in a list of names."""

    id: str
    value: str = ""
