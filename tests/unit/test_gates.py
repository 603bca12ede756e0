"""Tests of rules for the tests themselves."""

import re
from pathlib import Path

import mypy.api

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent
SLEEPS = TESTS / "support" / "waiting.py"
_SLEEP = re.compile(r"\bsleep\(")


def test_no_test_sleeps_but_to_wait_for_a_state():
    """A test waits for the effect of another thread or process: see ``tests.support.waiting``."""
    found = [
        f"{path.relative_to(TESTS)}:{number}"
        for path in sorted(TESTS.rglob("*.py"))
        if path not in {SLEEPS, Path(__file__)}
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if _SLEEP.search(line)
    ]
    assert found == []


_GIVEN_A_STRUCT = """\
import dataclasses
from dataclasses import replace as changed

import msgspec


class One(msgspec.Struct, frozen=True):
    x: int = 0


@dataclasses.dataclass
class Other:
    x: int = 0


class Part(One, frozen=True):
    pass


def each(either: One | Other, kind: type[One]) -> None:
    changed(Part(), x=1)
    dataclasses.replace(either, x=1)
    dataclasses.asdict(One())
    dataclasses.astuple(One())
    dataclasses.fields(One)
    dataclasses.fields(kind)
    dataclasses.fields(Other)
    changed(Other(), x=1)
"""


def test_mypy_refuses_a_struct_where_dataclasses_takes_a_dataclass(tmp_path):
    """mypy treats a Struct as a dataclass, but ``dataclasses.replace`` of one raises TypeError."""
    file = tmp_path / "given.py"
    file.write_text(_GIVEN_A_STRUCT)
    found, wrong, _ = mypy.api.run(["--config-file", str(ROOT / "pyproject.toml"), "--cache-dir=/dev/null", str(file)])
    lines = _GIVEN_A_STRUCT.splitlines()
    refused = [lines[int(number) - 1].strip() for number in re.findall(r"given\.py:(\d+): error: .*Struct", found)]
    first = lines.index("    changed(Part(), x=1)")
    assert wrong == ""
    assert refused == [line.strip() for line in lines[first : first + 6]], found
