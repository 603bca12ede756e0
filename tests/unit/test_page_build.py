"""Tests of the page's build: an error in its source fails loudly, and missing tools do not."""

import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.e2e import page

ROOT = Path(__file__).parents[2]
NODE = """#!/bin/sh
test "$1" = --version && echo v99.0.0 && exit 0
case "$2" in
ci) echo "$CI" >&2; test -z "$CI" ;;
run) mkdir "$JOBMETER_PAGE_OUT" && echo page > "$JOBMETER_PAGE_OUT/index.html" ;;
esac
"""


class Tree:
    """Copy of the page's source, which a test can break."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.web = root / "web"
        self.page = root / "src/jobmeter/server/page"
        self.page.parent.mkdir(parents=True)
        shutil.copytree(ROOT / "web", self.web, ignore=shutil.ignore_patterns("node_modules", "__pycache__"))
        self.environment = dict(os.environ)

    def build(self) -> tuple[int, str]:
        command = [sys.executable, "web/build.py"]
        done = subprocess.run(command, cwd=self.root, env=self.environment, capture_output=True, text=True, check=False)
        return done.returncode, done.stderr

    def stub_node(self, **environment: str) -> None:
        """Replace Node.js by a script. CI is the error of `npm ci`."""
        programs = self.root / "bin"
        programs.mkdir()
        for name in ("node", "npm"):
            (programs / name).write_text(NODE)
            (programs / name).chmod(0o755)
        self.environment |= {"PATH": f"{programs}:{os.environ['PATH']}", "CI": "", **environment}


@pytest.fixture
def tree(tmp_path):
    return Tree(tmp_path)


@pytest.fixture
def real(tree):
    """Return the tree with the real compiler and bundler."""
    builder = runpy.run_path(str(page.BUILDER))
    if builder["find_node"]() is None or not builder["has_packages"]():
        pytest.skip("Node.js or the page's packages are not installed: make page")
    (tree.web / "node_modules").symlink_to(ROOT / "web/node_modules")
    return tree


def test_a_type_error_fails_the_build_and_its_text_is_shown(real):
    source = real.web / "src/format.ts"
    source.write_text(f"{source.read_text()}\nexport const broken: number = 'text';\n")
    status, text = real.build()
    assert status == 1
    assert "src/format.ts" in text
    assert "TS2322" in text
    assert not real.page.exists()


def test_the_page_of_this_checkout_was_built_from_its_source():
    page.needs_built_page()
    assert (ROOT / "src/jobmeter/server/page/index.html").is_file()


def test_a_lock_file_that_does_not_match_fails_the_build(tree):
    tree.stub_node(CI="npm error code EUSAGE\nnpm error `npm ci` can only install packages when they are in sync.")
    status, text = tree.build()
    assert status == 1
    assert "EUSAGE" in text


@pytest.mark.parametrize("code", ["ENOTFOUND", "EAI_AGAIN", "ECONNREFUSED", "ETIMEDOUT", "E503"])
def test_a_registry_that_does_not_answer_leaves_the_page_out(tree, code):
    tree.stub_node(CI=f"npm error code {code}\nnpm error network request failed")
    status, text = tree.build()
    assert status == 0
    assert "The page is not built" in text
    assert code in text


def test_packages_that_are_installed_as_locked_are_not_installed_again(real):
    real.stub_node(CI="npm error code EUSAGE")
    assert real.build() == (0, "")


@pytest.mark.parametrize(
    ("current", "tools", "outcome"),
    [
        (True, True, None),
        (True, False, None),
        (False, True, pytest.fail.Exception),
        (False, False, pytest.skip.Exception),
    ],
)
def test_tests_of_the_page_are_skipped_without_tools_alone(monkeypatch, current, tools, outcome):
    monkeypatch.setattr("runpy.run_path", lambda _: {"is_current": lambda: current, "has_tools": lambda: tools})
    if outcome is None:
        page.needs_built_page()
    else:
        with pytest.raises(outcome):
            page.needs_built_page()
