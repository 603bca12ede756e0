"""Tests of ``make test-clusters``: the chosen parts, and the report of omitted ones."""

import subprocess
import sys

import pytest
from tests import cluster_suite
from tests.cluster_suite import PARTS, ROOT, Part, chosen, run


def test_every_file_of_every_part_is_there():
    assert [name for part in PARTS for name in part.files if not (ROOT / name).is_file()] == []


def test_parts_are_chosen_by_name():
    assert [part.name for part in chosen("flink, slurm")] == ["slurm", "flink"]
    assert chosen("") == list(PARTS)
    with pytest.raises(ValueError, match="there is no part slrum"):
        chosen("slrum")


def test_a_wrong_part_is_refused():
    done = subprocess.run(
        [sys.executable, "-m", "tests.cluster_suite", "--parts", "x"], cwd=ROOT, capture_output=True, check=False
    )
    assert done.returncode == 2
    assert b"there is no part x" in done.stderr


def test_skipped_parts_are_reported_and_a_failure_counts(monkeypatch, capsys, tmp_path):
    def missing():
        pytest.skip("slurmd is not installed: make programs")

    (tmp_path / "test_y.py").write_text(
        "import os, pytest\n"
        "@pytest.mark.skipif('ONE' not in os.environ, reason='no SDK: make sdk')\n"
        "def test_one(): assert os.environ['ONE'] == 'right'\n"
        "def test_two(): pytest.skip('no two')\n"
    )
    parts = [Part("a", ("x",), missing), Part("b", (str(tmp_path / "test_y.py"),), cluster_suite.nothing)]
    assert run(parts) == 0
    told = capsys.readouterr().out
    assert "a: left out: slurmd is not installed: make programs\nb: left out (0 tests, " in told
    assert ", 2 skipped: no SDK: make sdk; no two)" in told
    monkeypatch.setenv("ONE", "right")
    assert run(parts) == 0
    assert "b: passed (1 tests, " in capsys.readouterr().out
    monkeypatch.setenv("ONE", "wrong")
    assert run(parts) == 1
    assert "b: FAILED (1 tests, " in capsys.readouterr().out


def test_the_image_is_requested_by_name(monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    monkeypatch.delenv("JOBMETER_IMAGE", raising=False)
    assert "podman build -f deploy/Containerfile" in Part("image", (), cluster_suite.needs_image).lack()
