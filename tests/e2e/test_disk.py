"""Tests of a full disk and a read-only folder: clear errors, no false acknowledgement, recovery with free space."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.frames import row, samples
from tests.support.processes import API, running
from tests.support.waiting import wait_until


def mounted(where: Path, *options: str) -> bool:
    """True if a small file system could be mounted there."""
    where.mkdir(exist_ok=True)
    return (
        subprocess.run(["mount", "-t", "tmpfs", *options, "tmpfs", where], capture_output=True, check=False).returncode
        == 0
    )


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    where = tmp_path / "small"
    if os.geteuid() != 0 or not mounted(where, "-o", "size=160m"):
        pytest.skip("needs the right to mount a tmpfs")
    yield where
    subprocess.run(["umount", "-l", where], check=True)


def body(number: int, count: int = 1000) -> bytes:
    now = int(time.time() * 1000) // 1000 * 1000
    points = [(now - i * 1000, i / 7) for i in range(count)]
    return samples([row("app.number", points, job=f"job-{number}")])


def counted(server, number: int) -> int:
    reply = server.call(
        "GET", f"{API}/jobs/job-{number}/metrics", metric="app.number", since="2h", step="2h", statistic="count"
    )
    if reply.status == 404:
        return 0
    return int(sum(value for line in reply.json()["lines"] for _, value in line["points"]))


@pytest.mark.slow
def test_a_full_disk_is_refused_clearly_and_recovers(small_disk: Path) -> None:
    with running(small_disk / "data") as server:
        assert server.ingest(body(1)).status == 200
        filler = small_disk / "filler"
        # Unbuffered: otherwise the close of the file would repeat the failed write.
        with filler.open("wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(b"\0" * 65_536)
        refused = None
        for number in range(2, 40):
            refused = server.ingest(body(number))
            if refused.status != 200:
                break
        assert refused is not None
        assert refused.status == 503, refused.body
        assert refused.json()["error"]["code"] == "unavailable"
        assert "disk is full" in refused.json()["error"]["message"].lower()
        assert counted(server, 1) == 1000
        filler.unlink()
        wait_until(lambda: server.ingest(body(number)).status == 200)
        assert counted(server, number) == 1000


@pytest.mark.slow
def test_a_read_only_data_folder_is_named(tmp_path: Path) -> None:
    where = tmp_path / "readonly"
    if os.geteuid() != 0 or not mounted(where, "-o", "size=8m,ro"):
        pytest.skip("needs the right to mount a tmpfs")
    try:
        command = [sys.executable, "-m", "jobmeter", "serve", "--data", str(where / "data"), "--port", "0"]
        result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert result.returncode == 1
        assert "Traceback" not in result.stderr
        assert str(where / "data") in result.stderr
        assert "read-only" in result.stderr.lower()
    finally:
        subprocess.run(["umount", "-l", where], check=True)
