"""Tests of filters of diagnostic tasks, on both databases, against the same filter in Python."""

import random

from jobmeter.model.task import DiagnosticTask, TaskFilter, TaskState, TaskType
from jobmeter.registry.base import Registry

CLUSTERS, NODES, LABELS = ["", "c1", "c2"], ["n1", "n2", "n3"], ["", "NodeCheck", "CheckByAiJobLogs"]


def made(number: int, choose: random.Random) -> DiagnosticTask:
    return DiagnosticTask(
        id=f"diag-{number:03}",
        type=choose.choice(list(TaskType)),
        state=TaskState.DONE,
        project=choose.choice(["default", "lab"]),
        created=1_000 + number // 3,
        start=0,
        end=1,
        cluster=choose.choice(CLUSTERS),
        nodes=choose.sample(NODES, choose.randrange(3)),
        resource_group=choose.choice(["", "rg"]),
        label=choose.choice(LABELS),
    )


def chosen(choose: random.Random, values: list[str]) -> frozenset[str]:
    return frozenset(choose.sample(values, choose.randrange(3)))


def fits(task: DiagnosticTask, one: TaskFilter) -> bool:
    return (
        (one.projects is None or task.project in one.projects)
        and (not one.ids or task.id in one.ids)
        and (not one.labels or (task.label or task.type.value) in one.labels)
        and (not one.clusters or task.cluster in one.clusters)
        and (not one.nodes or bool(one.nodes & set(task.nodes)))
        and (not one.resource_groups or task.resource_group in one.resource_groups)
    )


def test_every_filter_selects_what_it_says(registry: Registry) -> None:
    choose = random.Random(24)
    tasks = [made(number, choose) for number in range(60)]
    for task in tasks:
        registry.tasks.add(task)
    newest = sorted(tasks, key=lambda one: (one.created, one.id), reverse=True)
    sizes = set()
    for _ in range(80):
        question = TaskFilter(
            projects=choose.choice([None, frozenset({"lab"})]),
            ids=tuple(chosen(choose, [task.id for task in tasks])) if choose.random() < 0.2 else (),
            labels=chosen(choose, [*LABELS[1:], *TaskType]),
            clusters=chosen(choose, CLUSTERS),
            nodes=chosen(choose, [*NODES, "n9"]),
            resource_groups=choose.choice([frozenset(), frozenset({"rg"})]),
        )
        expected = [task.id for task in newest if fits(task, question)]
        page = registry.tasks.find(question)
        assert ([task.id for task in page.tasks], page.total) == (expected, len(expected)), question
        sizes.add(len(expected))
    assert len(sizes) > 8, "the filters differ in what they select"
