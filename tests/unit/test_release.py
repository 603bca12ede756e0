"""Tests of a release: the version in every place, the change log from fragments, and checksums."""

import re
import runpy
import shutil
import subprocess
from pathlib import Path

import pytest

import jobmeter

ROOT = Path(__file__).parents[2]
RELEASE = runpy.run_path(str(ROOT / "deploy/release.py"))
KINDS = ("feature", "fix", "removal", "doc")


def run(*command, cwd=None):
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def tree(tmp_path):
    """Copy the files that a release changes, with one fragment of each kind."""
    for place in (*RELEASE["PLACES"], "CHANGELOG.md", "changes/README.md", "changes/template.md.jinja"):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / place, tmp_path / place)
    for kind in KINDS:
        (tmp_path / f"changes/some-{kind}.{kind}.md").write_text(f"A change of kind {kind}.\n")
    return tmp_path


def test_all_places_state_the_version_of_the_program():
    assert RELEASE["current"]() == jobmeter.__version__


def test_a_new_version_is_written_to_every_place(tree):
    before = RELEASE["current"](tree)
    RELEASE["write_version"]("9.8.7rc1", tree)
    assert RELEASE["current"](tree) == "9.8.7rc1"
    for place in RELEASE["PLACES"]:
        assert before not in re.findall(r"\d+\.\d+\.\d+", (tree / place).read_text()), place


@pytest.mark.parametrize("version", ["0.0.9", "1.2", "v1.2.3", "1.2.3-beta", "0.1.0rc1"])
def test_an_invalid_or_lower_version_changes_nothing(tree, version):
    before = {place: (tree / place).read_text() for place in RELEASE["PLACES"]}
    with pytest.raises(RELEASE["ReleaseError"], match=re.escape(version)):
        RELEASE["write_version"](version, tree)
    assert {place: (tree / place).read_text() for place in before} == before


def test_places_that_differ_are_refused(tree):
    chart = tree / "deploy/kubernetes/chart/Chart.yaml"
    chart.write_text(chart.read_text().replace('appVersion: "', 'appVersion: "9'))
    with pytest.raises(RELEASE["ReleaseError"], match=r"Chart\.yaml"):
        RELEASE["write_version"]("9.8.7", tree)


def test_fragments_become_a_section_and_go(tree):
    RELEASE["write_changes"]("9.8.7", tree)
    text = (tree / "CHANGELOG.md").read_text()
    assert text.index("\n## 9.8.7 (") < text.index("\n## 0.1.0 (")
    for kind, heading in zip(KINDS, ("New", "Fixed", "Removed", "Documentation"), strict=True):
        assert f"\n### {heading}\n\n- A change of kind {kind}.\n" in text
    assert sorted(path.name for path in (tree / "changes").iterdir()) == ["README.md", "template.md.jinja"]


def test_a_version_that_the_change_log_has_takes_no_fragments(tree):
    before = (tree / "CHANGELOG.md").read_text()
    assert "4 change fragments wait" in RELEASE["write_changes"]("0.1.0", tree)
    assert (tree / "CHANGELOG.md").read_text() == before
    assert len(list((tree / "changes").glob("*.*.md"))) == 4


def test_fragments_of_this_tree_have_a_kind():
    names = [path.name for path in (ROOT / "changes").iterdir() if path.name not in {"README.md", "template.md.jinja"}]
    assert [name for name in names if not re.fullmatch(rf"[a-z0-9-]+\.({'|'.join(KINDS)})\.md", name)] == []


def test_pack_wants_the_wheels_of_this_version(tree):
    with pytest.raises(RELEASE["ReleaseError"], match="make wheel"):
        RELEASE["pack"](tree)


TOOL = """#!/bin/sh
echo "$(basename "$0") $*" >> "$CALLS"
test "$1" = "$FAILS" && exit 1
while test $# -gt 1; do test "$1" = --output && echo image > "$2"; shift; done
exit 0
"""


@pytest.fixture
def packable(tree, monkeypatch):
    """Add a wheel in dist/ to the tree. A test chooses the installed programs."""
    (tree / "bin").mkdir()
    (tree / "dist").mkdir()
    (tree / f"dist/jobmeter-{jobmeter.__version__}-py3-none-any.whl").write_bytes(b"wheel")
    install(tree, "sh", "sha256sum", "tar", "gzip", "basename")
    monkeypatch.setenv("PATH", str(tree / "bin"))
    monkeypatch.setenv("CALLS", str(tree / "calls"))
    monkeypatch.setenv("FAILS", "")
    return tree


def install(tree, *programs):
    for name in programs:
        (tree / "bin" / name).symlink_to(str(shutil.which(name)))


def install_stub(tree, *tools):
    """Install programs that record their calls. The one whose first argument is $FAILS fails."""
    for name in tools:
        (tree / "bin" / name).write_text(TOOL)
        (tree / "bin" / name).chmod(0o755)


def test_pack_adds_deploy_files_and_checksums_that_hold(packable):
    (packable / "dist/.gitignore").write_text("*")
    lines = RELEASE["pack"](packable)
    assert "neither podman nor docker is installed" in lines[0]
    packed = f"jobmeter-{jobmeter.__version__}-deploy.tar.gz"
    listed = run("tar", "tf", packable / "dist" / packed)
    assert f"jobmeter-{jobmeter.__version__}-deploy/kubernetes/chart/Chart.yaml" in listed
    assert run("sha256sum", "--check", "SHA256SUMS", cwd=packable / "dist").count(": OK") == 2


def test_pack_builds_the_image_and_the_chart_where_their_tools_are(packable):
    install_stub(packable, "podman", "helm")
    RELEASE["pack"](packable)
    image = f"jobmeter-{jobmeter.__version__}-image.tar"
    calls = (packable / "calls").read_text()
    assert f"podman build --file deploy/Containerfile --tag jobmeter:{jobmeter.__version__} .\n" in calls
    assert "helm package deploy/kubernetes/chart --destination" in calls
    assert image in (packable / "dist/SHA256SUMS").read_text()
    assert not list((packable / "dist").glob("*deploy.tar.gz"))


def test_a_container_tool_that_does_not_answer_leaves_the_image_out(packable, monkeypatch):
    install_stub(packable, "docker")
    monkeypatch.setenv("FAILS", "info")
    assert "docker is installed but does not answer" in RELEASE["pack"](packable)[0]


def test_an_image_that_cannot_be_built_fails_the_release(packable, monkeypatch):
    install_stub(packable, "podman")
    monkeypatch.setenv("FAILS", "build")
    with pytest.raises(RELEASE["ReleaseError"], match="podman build"):
        RELEASE["pack"](packable)
    assert not (packable / "dist/SHA256SUMS").exists()
