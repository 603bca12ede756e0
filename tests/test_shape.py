"""Tests of the size and the names of modules and functions. Code beyond a limit is split, without exceptions."""

import ast
import re
import statistics
from collections.abc import Iterator
from pathlib import Path

import jobmeter
from tests.house import named_nodes

SOURCE = Path(jobmeter.__file__).parent
MODULES = sorted(SOURCE.rglob("*.py"))
MODULE_LINES, FUNCTION_LINES = 500, 60
PRIVATE_WORDS = {"tell", "tells", "telling", "told", "keeper", "kept", "known", "held", "seen", "asked", "asking"}
PRIVATE_WORDS |= {"whoever", "hurry", "coming", "roster", "thing", "things", "settle", "settled", "funnel"}
PRIVATE_WORDS |= {"asks", "door", "doors", "witness"}


def functions(module: Path):
    for node in named_nodes()[str(module.relative_to(SOURCE))]:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, (node.end_lineno or node.lineno) - node.lineno + 1


def lines(module: Path) -> int:
    return module.read_text().count("\n")


def test_no_module_and_no_function_is_too_long():
    modules = {str(module.relative_to(SOURCE)): lines(module) for module in MODULES}
    assert {name: size for name, size in modules.items() if size > MODULE_LINES} == {}
    found = [(str(module), *function) for module in MODULES for function in functions(module)]
    assert [one for one in found if one[2] > FUNCTION_LINES] == []


def test_most_modules_and_functions_are_short():
    sizes = sorted(map(lines, MODULES))
    lengths = sorted(length for module in MODULES for _, length in functions(module))
    assert statistics.median(sizes) <= 100
    assert sizes[int(len(sizes) * 0.9)] <= 350
    assert statistics.median(lengths) <= 10
    assert lengths[int(len(lengths) * 0.9)] <= 35


def names(module: Path) -> Iterator[str]:
    """Yield the names of a module, its classes, functions and arguments, without the tests that it contains."""
    yield module.stem
    for node in named_nodes()[str(module.relative_to(SOURCE))]:
        if isinstance(node, ast.arg):
            yield node.arg
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        if isinstance(node, kinds) and not node.name.startswith("test_"):
            yield node.name


def names_of_tests(module: Path) -> list[str]:
    """Return the names of a module's tests."""
    return re.findall(r"^ *def (test_\w+)", module.read_text(), re.MULTILINE)


def words(name: str) -> set[str]:
    return set(re.sub("(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().split("_"))


def test_names_are_the_fields_words():
    found = {f"{module.relative_to(SOURCE)}: {name}" for module in MODULES for name in names(module)}
    private = {entry for entry in found if words(entry.split(": ")[1]) & PRIVATE_WORDS}
    assert private == set(), "the standard terms of the field"


def test_names_of_tests_are_the_fields_words():
    modules = Path(__file__).parent.rglob("*.py")
    found = {(module.name, name) for module in modules for name in names_of_tests(module)}
    assert {(module, name) for module, name in found if words(name) & PRIVATE_WORDS} == set()
