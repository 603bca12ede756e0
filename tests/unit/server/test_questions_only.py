"""Tests that the server reads the registry and the store only through questions, whose scope the executor checks."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import jobmeter
from jobmeter.registry.alerts import AlertTable
from jobmeter.registry.annotations import AnnotationTable
from jobmeter.registry.base import Registry
from jobmeter.registry.leases import LeaseTable
from jobmeter.registry.tasks import TaskTable
from jobmeter.store.window.store import WindowedStore

SOURCE = Path(jobmeter.__file__).parent
MODULES = sorted(path for part in ("server", "dialects") for path in (SOURCE / part).rglob("*.py"))
NAMES = {"registry", "_registry", "store", "_store"}
"""Names that refer to the registry or the store in code."""
COMMANDS = {
    *("backup", "close", "delete_job", "fill", "mark_lost", "mark_nodes", "move", "prepare", "prune"),
    *("record", "restore", "roll_up", "set_retention", "leases.prepare", "tasks.add", "tasks.answer", "tasks.save"),
    *("annotations.change_tags", "annotations.add_note", "annotations.delete_note"),
    *("alerts.decide", "alerts.delete_message", "alerts.put", "alerts.put_silence", "alerts.retry"),
}
"""Methods that write, or that start or end the use of a registry or store."""
TAKERS = {
    *("create_key", "change_policies", "revoke_key", "create_link", "end_link", "forget_links", "emit"),
    *("create_job_task", "finish_stacks"),
}
"""Functions that receive the registry for a command."""
EXCEPTIONS = {
    "server/app.py": "it makes the parts of the server and gives the registry and the store to them",
    "server/background.py": "its log names the number of series that it loaded into the window",
    "server/workers/answers.py": "it makes the parts of a worker, whose executor checks the scope",
    "server/workers/owner.py": "it finds the records that the executor of a worker asks for",
    "server/missing.py": "it looks for lost parts before there is an executor",
}


def chain(node: ast.expr) -> list[str]:
    """Return the names of ``a.b.c``, outermost last; empty for any other expression."""
    if isinstance(node, ast.Name):
        return [node.id]
    if isinstance(node, ast.Attribute):
        before = chain(node.value)
        return [*before, node.attr] if before else []
    return []


def uses(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield uses of the registry or the store: line, and the attribute used (empty: the object itself)."""
    parents = {child: parent for parent in ast.walk(tree) for child in ast.iter_child_nodes(parent)}
    for node in ast.walk(tree):
        names = chain(node) if isinstance(node, ast.Name | ast.Attribute) else []
        if not names or names[-1] not in NAMES or isinstance(getattr(node, "ctx", None), ast.Store):
            continue
        parent, taken = parents[node], []
        while isinstance(parent, ast.Attribute):
            taken.append(parent.attr)
            parent = parents[parent]
        yield getattr(node, "lineno", 0), ".".join(taken) or given_to(node, parent)


def given_to(node: ast.AST, parent: ast.AST) -> str:
    """Return the function that receives a value, or "=" for an attribute that keeps it for commands."""
    if isinstance(parent, ast.Call) and node in parent.args:
        return f"{chain(parent.func)[-1]}()"
    if isinstance(parent, ast.Assign) and chain(parent.targets[0])[-1:] in (["_registry"], ["_store"]):
        return "="
    return ""


def reads(path: Path) -> list[tuple[str, int, str]]:
    """Return the places of a module that may read the registry or the store."""
    allowed = {*COMMANDS, *(f"{name}()" for name in TAKERS), "="}
    name = str(path.relative_to(SOURCE))
    return [(name, line, taken) for line, taken in uses(ast.parse(path.read_text())) if taken not in allowed]


def test_no_module_reads_without_a_question():
    found = [read for path in MODULES for read in reads(path)]
    assert [read for read in found if read[0] not in EXCEPTIONS] == []
    assert {read[0] for read in found} == set(EXCEPTIONS), "an exception without a use"


READS = [
    ("found = services.registry.list_findings([])", "list_findings"),
    ("services.store.read_statistics()", "read_statistics"),
    ("table = self._registry.tasks", "tasks"),
    ("self._registry.tasks.list_due(0, 1)", "tasks.list_due"),
    ("list_keys(services.registry)", "list_keys()"),
    ("registry = services.registry", ""),
]


@pytest.mark.parametrize(("line", "taken"), READS)
def test_a_read_is_found(line, taken):
    assert [found for _, found in uses(ast.parse(line))] == [taken]
    assert taken not in COMMANDS


def test_every_command_is_a_method():
    tables = {"alerts": AlertTable, "annotations": AnnotationTable, "leases": LeaseTable, "tasks": TaskTable}
    methods = {f"{table}.{name}" for table, kind in tables.items() for name in vars(kind)}
    assert methods | {*dir(Registry), *dir(WindowedStore)} >= COMMANDS
