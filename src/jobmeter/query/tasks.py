"""Questions about diagnostic tasks, and their answers."""

import msgspec
from msgspec.structs import replace

from jobmeter.access.principal import Scope
from jobmeter.errors import NotFoundError
from jobmeter.model.question import Question
from jobmeter.model.task import ANSWERS_ASIDE, DiagnosticTask, NodeAnswer, TaskFilter, TaskPage, TaskState, TaskType
from jobmeter.registry.base import Registry

MAX_PAGE = 100


class TaskQuestion(msgspec.Struct, Question[DiagnosticTask], frozen=True):
    """Question for a task with its results. Raises NotFoundError if the caller can see none of that id."""

    of_job = True

    id: str


class TaskAnswersQuestion(msgspec.Struct, Question[list[NodeAnswer]], frozen=True):
    """Question for the answers of all nodes of a task; a node that has not answered has no time."""

    whole_server = True

    id: str


class DueTasksQuestion(msgspec.Struct, Question[list[DiagnosticTask]], frozen=True):
    """Question for open tasks that can continue now, by turns of their projects."""

    whole_server = True

    limit: int


class NodeTasksQuestion(msgspec.Struct, Question[list[DiagnosticTask]], frozen=True, kw_only=True):
    """Question for the tasks of a type that wait for an answer of that node."""

    project: str
    cluster: str
    node: str
    type: TaskType
    limit: int


def list_tasks(registry: Registry, question: TaskFilter, scope: Scope) -> TaskPage:
    """Answer a ``TaskFilter``."""
    if scope.job is not None:
        return TaskPage([], 0)
    visible = replace(
        question, projects=scope.intersect_projects(question.projects), limit=min(question.limit, MAX_PAGE)
    )
    return registry.tasks.find(visible)


def read_task(registry: Registry, question: TaskQuestion, scope: Scope) -> DiagnosticTask:
    """Answer a ``TaskQuestion``."""
    found = list_tasks(registry, TaskFilter(ids=(question.id,), limit=1), scope).tasks
    if not found:
        name = question.id[:64]
        raise NotFoundError(f"there is no diagnostic task {name}", "task", name)
    one = found[0]
    if one.type in ANSWERS_ASIDE or (one.state is TaskState.RUNNING and one.type is TaskType.NODE):
        return replace(one, answers=registry.tasks.list_answers(one.id))
    return one


def list_node_tasks(registry: Registry, question: NodeTasksQuestion, scope: Scope, now_ms: int) -> list[DiagnosticTask]:
    """Answer a ``NodeTasksQuestion``."""
    if not scope.allows(question.project):
        return []
    return registry.tasks.list_waiting_for(
        question.project, question.cluster, question.node, now_ms, question.limit, question.type
    )
