"""The suite's verdict on tests that fail always, once, or in large numbers."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.suite import MOST_REPEATED

ROOT = Path(__file__).resolve().parent.parent
ONCE = """
from pathlib import Path
def test_first_time():
    mark = Path(__file__).with_suffix(".ran")
    ran = mark.exists()
    mark.touch()
    assert ran
"""


def run(folder: Path, source: str) -> subprocess.CompletedProcess[str]:
    """Run the suite in a folder that has one module of tests."""
    (folder / "pytest.ini").touch()
    (folder / "test_one.py").write_text(source)
    code = "import sys; from tests.suite import run_suite; sys.exit(run_suite(['-n', '2', 'test_one.py']))"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=environment, capture_output=True, text=True, check=False
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
    ended = run(tmp_path, source)
    assert (ended.returncode == 0, "again, alone" in ended.stdout) == (succeeds, repeats), ended.stdout
    assert ("Mend them" in ended.stdout) == (source == ONCE)
