"""The size of modules and functions: what has grown past the bound is split, not excused."""

import ast
import statistics
from pathlib import Path

import jobmeter

SOURCE = Path(jobmeter.__file__).parent
MODULES = sorted(SOURCE.rglob("*.py"))
MODULE_LINES, FUNCTION_LINES = 500, 60


def functions(module: Path):
    for node in ast.walk(ast.parse(module.read_text())):
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
