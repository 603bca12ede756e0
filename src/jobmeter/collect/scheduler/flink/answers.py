"""Used fields of a job manager's answers.

https://nightlies.apache.org/flink/flink-docs-release-1.20/docs/ops/rest_api/. Times are epoch milliseconds, -1 for
events that have not happened.
"""

import msgspec

TERMINAL = frozenset({"FINISHED", "FAILED", "CANCELED"})
"""Final states of a job."""


class Summary(msgspec.Struct, frozen=True, rename="kebab"):
    """Job in ``/jobs/overview``. ``last_modification`` is the last change of the state of any of its tasks."""

    jid: str
    name: str
    state: str
    start_time: int
    end_time: int = -1
    last_modification: int = -1


class FlinkOverview(msgspec.Struct, frozen=True):
    """Answer of ``/jobs/overview``."""

    jobs: list[Summary] = []


class Vertex(msgspec.Struct, frozen=True):
    """Task of a job: a chain of operators."""

    id: str
    name: str
    parallelism: int = 1


class Details(msgspec.Struct, frozen=True, rename="kebab"):
    """Answer of ``/jobs/JOB``. ``timestamps`` are the times at which the job entered each state, 0 for never."""

    jid: str
    name: str
    state: str
    start_time: int
    end_time: int = -1
    job_type: str = ""
    vertices: list[Vertex] = []
    timestamps: dict[str, int] = {}


class Subtask(msgspec.Struct, frozen=True, rename="kebab"):
    """Parallel instance of a task. ``endpoint`` is the address of its task manager."""

    subtask: int
    status: str = ""
    start_time: int = -1
    endpoint: str = ""
    taskmanager_id: str = ""


class Subtasks(msgspec.Struct, frozen=True):
    """Answer of ``/jobs/JOB/vertices/TASK``."""

    subtasks: list[Subtask] = []


class FlinkFailure(msgspec.Struct, frozen=True, rename="camel"):
    """Reason of a restart or failure of a job. An unknown task or task manager is None."""

    exception_name: str
    timestamp: int
    stacktrace: str = ""
    task_name: str | None = None
    task_manager_id: str | None = None
    concurrent_exceptions: list["FlinkFailure"] = []


class FlinkHistory(msgspec.Struct, frozen=True):
    """Last failures, newest first."""

    entries: list[FlinkFailure] = []


class Exceptions(msgspec.Struct, frozen=True, rename="camel"):
    """Answer of ``/jobs/JOB/exceptions``."""

    exception_history: FlinkHistory = FlinkHistory()


class FlinkReading(msgspec.Struct, frozen=True):
    """Metric; ``value`` is empty in a list of names."""

    id: str
    value: str = ""
