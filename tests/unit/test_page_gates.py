"""Tests of the checks of the page's source: the unit tests pass, and the linter finds faults that need types."""

import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CONDITIONAL_HOOK = """
import { useState } from "preact/hooks";
export function useChoice(wanted: boolean): number {
  if (!wanted) return 0;
  return useState(0)[0];
}
"""


@pytest.fixture
def copy(tmp_path):
    """Copy the page's source with the packages of this tree."""
    builder = runpy.run_path(str(ROOT / "web/build.py"))
    if builder["find_node"]() is None or not builder["has_packages"]():
        pytest.skip("Node.js or the page's packages are not installed: make page")
    shutil.copytree(ROOT / "web", tmp_path / "web", ignore=shutil.ignore_patterns("node_modules", "__pycache__"))
    (tmp_path / "web/node_modules").symlink_to(ROOT / "web/node_modules")
    return tmp_path


def run(root, script):
    command = [sys.executable, "web/build.py", script]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


def test_the_unit_tests_of_the_page_pass(copy):
    assert run(copy, "test") == (0, "")


def test_a_unit_test_that_fails_is_reported(copy):
    for path in (copy / "web/tests").iterdir():
        path.unlink()
    (copy / "web/tests/broken.test.ts").write_text(
        'import { expect, it } from "vitest";\nit("adds", () => expect(1).toBe(2));\n'
    )
    status, text = run(copy, "test")
    assert status == 1
    assert "broken.test.ts" in text


def test_a_hook_behind_a_condition_fails_the_linter(copy):
    (copy / "web/src/parts/broken.ts").write_text(CONDITIONAL_HOOK)
    node = runpy.run_path(str(ROOT / "web/build.py"))["find_node"]()[0]
    command = [node, "node_modules/eslint/bin/eslint.js", "src/parts/broken.ts"]
    done = subprocess.run(command, cwd=copy / "web", capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "rules-of-hooks" in done.stdout


def test_a_change_of_the_tests_does_not_build_the_page_again(tmp_path):
    shutil.copytree(ROOT / "web", tmp_path / "web", ignore=shutil.ignore_patterns("node_modules", "__pycache__"))
    digest = runpy.run_path(str(tmp_path / "web/build.py"))["digest"]
    before = digest()
    (tmp_path / "web/tests/more.test.ts").write_text("")
    assert digest() == before
    (tmp_path / "web/src/more.ts").write_text("")
    assert digest() != before
