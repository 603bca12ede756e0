"""Measures the source: its size, and its obstacles for readers. `python -m tests.house` prints the figures."""

import ast
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from benchmarks.sources import states

import jobmeter
from tests.support.noun_names import list_noun_names
from tests.support.prose import VERBS, faults

SOURCE = Path(jobmeter.__file__).parent
UNIT = Path(__file__).parent / "unit"
CORE = ("model", "query", "store", "registry", "server", "collect")
"""Packages in which a class name has one meaning in the whole tree."""


@dataclass(frozen=True, slots=True)
class Figure:
    """Count of the source. The tests allow up to ``bar``; ``target`` is the aim."""

    name: str
    count: Callable[[], int]
    bar: int
    target: int


def find_named(source: str) -> list[ast.AST]:
    """Return the syntax nodes of a module and of its classes, functions and arguments."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef, ast.arg)
    return [node for node in ast.walk(ast.parse(source)) if isinstance(node, kinds)]


@cache
def named_nodes() -> dict[str, list[ast.AST]]:
    """Return the nodes of each module that have names, by its path below the package."""
    return {str(path.relative_to(SOURCE)): find_named(path.read_text()) for path in sorted(SOURCE.rglob("*.py"))}


def lines() -> int:
    """Count the lines of Python and C."""
    return sum(path.read_text().count("\n") for end in ("py", "c", "h") for path in SOURCE.rglob(f"*.{end}"))


def forbidden_docstrings() -> int:
    """Count forbidden words in docstrings."""
    return sum(len(faults(path.read_text())) for path in SOURCE.rglob("*.py"))


def shared_class_names() -> dict[str, list[str]]:
    """Return the public class names that several modules define, with the modules."""
    modules = defaultdict(list)
    for module, nodes in named_nodes().items():
        for node in nodes:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                modules[node.name].append(module)
    return {name: places for name, places in modules.items() if len(places) > 1}


def in_core(modules: list[str]) -> bool:
    """Return True if one of the places of a name is in the core."""
    return any(module.split("/")[0] in CORE for module in modules)


def docstrings() -> Iterator[str]:
    """Yield the docstring of each module, class and function that has one."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for nodes in named_nodes().values():
        yield from (text for node in nodes if isinstance(node, kinds) and (text := ast.get_docstring(node)))


def forwarding_docstrings() -> int:
    """Count docstrings that only name another place."""
    return sum(re.fullmatch(r"(See|As) ``[^`]*``\.?", text) is not None for text in docstrings())


def packages_without_tests() -> list[str]:
    """Return the packages without a folder of tests at their path below `tests/unit`.

    Operations of dialects have their cases in the folder of their dialect. Migrations run in each test of a store.
    """
    packages = {path.parent.relative_to(SOURCE) for path in SOURCE.rglob("__init__.py")} - {Path()}
    own = {path.parent.relative_to(UNIT) for path in UNIT.rglob("test_*.py")}
    exempt = {"operations", "migrations", "versions"}
    return sorted(str(package) for package in packages - own if not exempt & set(package.parts))


def private_accesses() -> int:
    """Count the places where a unit test reads a private attribute of another object.

    Python documents a few names that begin with an underscore: the methods of named tuples, and ``os._exit``.
    """
    documented = {"_fields", "_replace", "_asdict", "_exit"}
    found = 0
    for path in UNIT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute):
                own = isinstance(node.value, ast.Name) and node.value.id == "self"
                private = bool(re.match(r"_[a-z]\w*(?<!_)$", node.attr))
                found += private and not own and node.attr not in documented
    return found


def names_without_verb() -> list[str]:
    """Return the public functions and methods whose names begin with no verb, apart from listed exceptions."""
    listed = list_noun_names()
    return [name for name in noun_names() if name not in listed]


def noun_names() -> list[str]:
    """Return the public functions and methods whose names begin with no verb, apart from registered ones."""
    found = []
    for module, nodes in named_nodes().items():
        scopes = [node for node in nodes if isinstance(node, ast.Module | ast.ClassDef)]
        for node in (node for scope in scopes for node in scope.body):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
                registered = any(isinstance(one, ast.Call) for one in node.decorator_list)
                is_property = any("property" in ast.unparse(one).lower() for one in node.decorator_list)
                if not registered and not is_property and node.name.split("_")[0] not in VERBS:
                    found.append(f"{module}: {node.name}")
    return found


FIGURES = (
    Figure("lines of Python and C", lines, 147_233, 84_000),
    Figure("docstrings with forbidden words", forbidden_docstrings, 0, 0),
    Figure(
        "class names of the core with several meanings",
        lambda: sum(map(in_core, shared_class_names().values())),
        0,
        0,
    ),
    Figure("class names with several meanings, all", lambda: len(shared_class_names()), 0, 0),
    Figure("docstrings that only name another place", forwarding_docstrings, 1, 40),
    Figure("packages without tests at their path", lambda: len(packages_without_tests()), 0, 0),
    Figure("kinds of objects that outlive a request", lambda: len(states()), 20, 13),
    Figure("private attributes that unit tests read", private_accesses, 0, 0),
    Figure("functions whose names begin with no verb", lambda: len(names_without_verb()), 0, 0),
)


def main() -> None:
    """Print each figure with its bar and its target."""
    width = max(len(figure.name) for figure in FIGURES)
    print(f"{'':{width}}  {'now':>8} {'bar':>8} {'target':>8}")
    for figure in FIGURES:
        print(f"{figure.name:{width}}  {figure.count():8,} {figure.bar:8,} {figure.target:8,}")


if __name__ == "__main__":
    main()
