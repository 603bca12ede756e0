"""Tests of the embedded store across processes: killed, on a full disk, locked, backed up and restored."""

import json
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.unit.store.child import STEPS

ROOT = Path(__file__).parents[3]
CHILD = ("-m", "tests.unit.store.child")


def run(*arguments: object, killed: bool = False) -> list[dict[str, Any]]:
    """Return the lines that a child prints; the child exits with 0, or kills itself."""
    done = subprocess.run(
        [sys.executable, *CHILD, *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == (-signal.SIGKILL if killed else 0), done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def write_and_kill(folder: Path, first: int, seconds: float) -> int:
    """Write until killed; return the total number of acknowledged batches."""
    with subprocess.Popen(
        [sys.executable, *CHILD, "write", str(folder), str(first)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert json.loads(child.stdout.readline()) == {"ready": True}
        killer = threading.Timer(seconds, child.kill)
        killer.start()
        acknowledged = first
        for line in child.stdout:
            acknowledged = json.loads(line)["acknowledged"] + 1
        killer.cancel()
    return acknowledged


@pytest.mark.slow
def test_what_was_acknowledged_survives_kill_9(tmp_path):
    folder, acknowledged = tmp_path / "store", 0
    for _ in range(6):
        acknowledged = write_and_kill(folder, acknowledged, random.uniform(0.02, 1.5))
        said = run("check", folder, acknowledged)[0]
        # The unacknowledged batch may be stored in part: at most two more times.
        assert said["missing"] == said["wrong"] == 0, said
        assert not (said["found"] and said["unknown"]), said  # a process may be killed before its first batch
        assert said["extra_times"] <= 2, said
    assert acknowledged > 0


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS)
def test_a_death_at_any_step_leaves_what_was_acknowledged(tmp_path, step):
    folder = tmp_path / "store"
    done = subprocess.run(
        [sys.executable, *CHILD, "die", str(folder), step], cwd=ROOT, capture_output=True, check=False
    )
    assert done.returncode == -9, done.stderr[-3000:]
    said = run("risen", folder)[0]
    # The last write was not acknowledged, but may be stored.
    first = 3.0 if step in {"write", "kept"} and said["values"][0] == 3.0 else 2.0
    assert said["values"] == [first] + [2.0] * 19
    assert said["rows"] == 20
    # The hour was rolled up with samples that have been replaced since.
    assert not said["trusted"]
    assert said["right"]
    # The series had its first samples in the journal only.
    assert said["described"]
    assert said["last"] == [first, 9.0]


def run_on_a_small_disk(disk: Path, verb: str, options: str = "") -> dict[str, Any]:
    """Return the line of a child whose store is on its own disk; skip the test if mounting is not permitted."""
    disk.mkdir()
    child = f"{sys.executable} {' '.join(CHILD)} {verb} {disk}/store"
    script = f"mount -t tmpfs -o size=96m tmpfs {disk} && {options} exec {child}"
    done = subprocess.run(["unshare", "-rm", "sh", "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    if "unshare:" in done.stderr or "mount:" in done.stderr:
        pytest.skip("this system lets nobody mount a small disk")
    assert done.returncode == 0, done.stderr[-3000:]
    said: dict[str, Any] = json.loads(done.stdout)
    return said


@pytest.mark.slow
def test_a_full_disk_refuses_and_recovers(tmp_path):
    said = run_on_a_small_disk(tmp_path / "disk", "fill")
    # Chance decides which write finds the disk full, the samples or the marks of their hours.
    assert said["message"].startswith("the telemetry engine cannot ")
    assert said["message"].endswith(" now: the disk is full")
    assert said["readable"]
    assert said["whole"]


def test_a_read_only_folder_is_refused(tmp_path):
    disk = tmp_path / "disk"
    said = run_on_a_small_disk(disk, "attempt", f"mkdir {disk}/store && mount -o remount,ro {disk} &&")
    assert said["error"] == "UnavailableError"
    assert said["message"].endswith("the data folder is read-only")


def test_a_folder_that_may_not_be_written_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    said = run("attempt", tmp_path / "file" / "store")[0]
    assert said["error"] == "UnavailableError"


def test_a_second_process_is_refused(tmp_path):
    folder = tmp_path / "store"
    with subprocess.Popen(
        [sys.executable, *CHILD, "write", str(folder), "0"], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        said = run("attempt", folder)[0]
        child.kill()
        child.stdout.read()
    assert said["error"] == "ConfigurationError"
    assert "in use by another process" in said["message"]
    assert run("attempt", folder) == [{"error": ""}]


@pytest.mark.slow
def test_a_backup_of_a_busy_store_answers_the_same(tmp_path):
    said = run("back_up", tmp_path / "store", tmp_path / "backup")[0]
    shutil.rmtree(tmp_path / "store")
    restored = run("restore", tmp_path / "copy", tmp_path / "backup")[0]
    assert restored["again"] == "ConflictError"
    assert restored["lines"]
    checked = run("check", tmp_path / "copy", said["begun"])[0]
    assert checked["missing"] == checked["unknown"] == checked["wrong"] == 0, checked
    assert checked["extra_times"] <= said["ended"] - said["begun"] + 2


def test_a_backup_from_before_there_were_log_lines_is_restored(tmp_path):
    run("back_up_as_before", tmp_path / "store", tmp_path / "backup")
    restored = run("restore", tmp_path / "copy", tmp_path / "backup")[0]
    assert restored["again"] == "ConflictError"
    assert restored["bare"]


DAMAGE = {
    "data/metadata/jobmeter/samples.sql": None,
    "data/metadata/jobmeter/minutes.sql": None,
    "ledger/metadata/jobmeter/series.sql": None,
    "ledger/metadata/jobmeter/marks.sql": b"",
    "ledger/data/jobmeter/series/*/data.bin": b"short",
    "data/data/jobmeter/samples/*/columns.txt": None,
    "data/.backup": b"<config><contents>",
    "ledger/.backup": b"\xff",
}


def test_a_backup_that_lacks_a_file_is_refused_by_its_name_and_restores_nothing(tmp_path):
    run("write_days", tmp_path / "store")
    run("back_up_as_before", tmp_path / "store", tmp_path / "backup")
    backups, hurt = [], []
    for at, (name, content) in enumerate(DAMAGE.items()):
        backups.append(tmp_path / f"backup-{at}")
        shutil.copytree(tmp_path / "backup", backups[-1])
        hurt.append(min(backups[-1].glob(name)))
        hurt[-1].unlink() if content is None else hurt[-1].write_bytes(content)
    for file, said in zip(hurt, run("restore_refused", tmp_path / "refused", *backups), strict=True):
        assert (said["error"], said["rows"]) == ("ConfigurationError", 0), (file, said)
        assert str(file) in said["message"]
    # A backup whose list lacks the table, too.
    listed = tmp_path / "backup" / "data" / ".backup"
    listed.write_text(re.sub(r"<file><name>metadata/jobmeter/samples.sql.*?</file>", "", listed.read_text()))
    (said,) = run("restore_refused", tmp_path / "copy", tmp_path / "backup")
    assert said["error"] == "ConfigurationError"
    assert said["message"].endswith("is not complete: it has no table samples")


def test_what_an_older_program_left_is_read_and_rolled_up_as_it_was(tmp_path):
    run("write_as_before", tmp_path / "store", tmp_path / "backup")
    expected = [{"same": True, "trusted": True}, {"same": True}]
    assert run("read_as_before", tmp_path / "store", "") == expected
    assert run("read_as_before", tmp_path / "copy", tmp_path / "backup") == expected


def test_a_store_of_a_newer_program_is_refused(tmp_path):
    said = run("from_the_future", tmp_path / "store")[0]
    assert said["error"] == "ConfigurationError"
    assert "schema 999" in said["message"]
