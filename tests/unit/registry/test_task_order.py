"""Tests of choosing the next diagnostic tasks, on both databases."""

from jobmeter.model.task import DiagnosticTask, NodeAnswer, TaskState, TaskType
from jobmeter.registry.base import Registry


def add(registry: Registry, name: str, project: str, created: int, state: TaskState, *nodes: str) -> None:
    kind = TaskType.NODE if nodes else TaskType.LOGS
    task = DiagnosticTask(
        id=name,
        type=kind,
        state=state,
        project=project,
        created=created,
        start=0,
        end=1,
        nodes=list(nodes),
        deadline=1_000,
    )
    registry.tasks.add(task)


def due(registry: Registry, now_ms: int, limit: int = 100) -> list[str]:
    return [task.id for task in registry.tasks.list_due(now_ms, limit)]


def test_projects_take_turns(registry: Registry) -> None:
    for number in range(4):
        add(registry, f"a{number}", "a", number, TaskState.WAITING)
    for number in range(2):
        add(registry, f"b{number}", "b", 10 + number, TaskState.WAITING)
    add(registry, "c0", "c", 0, TaskState.DONE)
    assert due(registry, 500) == ["a0", "b0", "a1", "b1", "a2", "a3"]
    assert due(registry, 500, limit=2) == ["a0", "b0"]


def test_a_running_task_waits_for_its_nodes_until_its_deadline(registry: Registry) -> None:
    add(registry, "new", "p", 0, TaskState.WAITING, "n1", "n2")
    add(registry, "asked", "p", 1, TaskState.RUNNING, "n1", "n2")
    add(registry, "left", "p", 2, TaskState.RUNNING)
    assert due(registry, 500) == ["new", "left"]
    assert due(registry, 1_000) == ["new", "asked", "left"]
    for node in ("n1", "n2"):
        assert due(registry, 500) == ["new", "left"]
        assert registry.tasks.answer("p", "asked", NodeAnswer(node=node, time=400))
    assert due(registry, 500) == ["new", "asked", "left"]
