"""Tests of the suite's verdict on tests that fail always, once, or in large numbers."""

import os
import subprocess
import sys
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from tests.suite import MOST_REPEATED, compile_tests, deal

ROOT = Path(__file__).resolve().parent.parent
ONCE = """
from pathlib import Path
def test_first_time():
    mark = Path(__file__).with_suffix(".ran")
    ran = mark.exists()
    mark.touch()
    assert ran
"""


def run(folder: Path, source: str, processes: int) -> subprocess.CompletedProcess[str]:
    """Run the suite in a folder with one test module."""
    (folder / "pytest.ini").touch()
    (folder / "test_one.py").write_text(source)
    code = "import sys; from tests.suite import run_suite; sys.exit(run_suite(['-n', sys.argv[1], 'test_one.py']))"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-c", code, str(processes)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("source", "succeeds", "repeats"),
    [
        ("def test_one(): pass", True, False),
        ("def test_one(): assert False", False, True),
        (ONCE, True, True),
        (ONCE + "def test_other(): assert False", False, True),
        ("".join(f"def test_{number}(): assert False\n" for number in range(MOST_REPEATED + 1)), False, False),
        ("syntax error", False, False),
    ],
    ids=["passes", "fails", "fails-once", "fails-once-and-always", "many-fail", "cannot-be-read"],
)
def test_only_a_test_that_fails_alone_too_fails_the_suite(tmp_path, source, succeeds, repeats):
    ended = run(tmp_path, source, processes=2 if source == ONCE else 0)
    assert (ended.returncode == 0, "again, alone" in ended.stdout) == (succeeds, repeats), ended.stdout
    assert ("Mend them" in ended.stdout) == (source == ONCE)


def test_a_folder_that_was_never_collected_is_compiled_once(tmp_path, monkeypatch):
    for name in ("pytest.ini", "conftest.py", "test_other.py", "unit/test_one.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    compile_tests(tmp_path)
    compiled = {path.name.partition(".")[0] for path in tmp_path.rglob("*-pytest-*.pyc")}
    assert compiled == {"conftest", "test_other", "test_one"}
    monkeypatch.setattr(subprocess, "Popen", None)
    compile_tests(tmp_path)


@dataclass
class Item:
    """Stand-in for a pytest item of a module."""

    path: Path
    number: int
    slow: bool = False

    def get_closest_marker(self, name):
        return self.slow and name == "slow"


@pytest.mark.parametrize("processes", [1, 2, 3, 6])
def test_modules_whose_tests_wait_are_dealt_to_all_processes_as_wholes(processes):
    e2e: list[Any] = [Item(Path(f"tests/e2e/test_{module}.py"), number) for module in range(13) for number in range(9)]
    unit: list[Any] = [
        Item(Path(f"tests/unit/test_{module}.py"), number) for module in range(40) for number in range(25)
    ]
    slow: list[Any] = [Item(Path("tests/unit/test_slow.py"), number, number == 3) for number in range(10)]
    dealt = deal([*e2e, *unit, *slow], processes)
    assert sorted(map(repr, dealt)) == sorted(map(repr, [*e2e, *unit, *slow]))
    waiting = [item for item in dealt if item.path == slow[0].path or "e2e" in item.path.parts]
    assert len([module for module, _ in groupby(waiting, key=lambda item: item.path)]) == 14
    rest = dealt
    for process in range(processes):
        size = len(rest) // (processes - process)  # the split of pytest-xdist
        part, rest = rest[:size], rest[size:]
        assert sum(item.path.parts[1] == "e2e" for item in part) >= 9
        assert (part[0] in waiting) == (process % 2 == 0)
    assert dealt[0].path == slow[0].path


def test_each_process_begins_with_a_module_of_slow_tests():
    modules = [Path(f"tests/{folder}/test_{name}.py") for name in range(12) for folder in ("e2e", "unit")]
    items: list[Any] = [Item(path, number, slow=at % 3 == 0) for at, path in enumerate(modules) for number in range(5)]
    dealt = deal(items, 4)
    assert all(dealt[start].get_closest_marker("slow") for start in range(0, len(dealt), len(dealt) // 4))


def test_more_tests_that_wait_than_a_part_holds_leave_none_out():
    items: list[Any] = [Item(Path("tests/e2e/test_a.py"), number) for number in range(20)]
    items += [Item(Path("tests/unit/test_b.py"), number) for number in range(5)]
    assert sorted(map(repr, deal(items, 4))) == sorted(map(repr, items))
