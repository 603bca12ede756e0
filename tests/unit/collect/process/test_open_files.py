"""Tests of process files that stay open, compared with files that are opened for each reading."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.waiting import wait_until

from jobmeter.collect.process.open_files import OpenFiles
from jobmeter.collect.process.stat import list_pids, parse_io, parse_stat, read_io, read_stat

BUSY = """
import sys, time
sys.stdin.readline()
while time.process_time() < 0.2:
    pass
print(1, flush=True)
sys.stdin.read()
"""


def descriptors() -> int:
    """Return the number of open files of /proc; other files may be closed at any time."""
    return sum(os.path.realpath(one).endswith("/stat") for one in Path("/proc/self/fd").iterdir())


@pytest.fixture
def child():
    command = [sys.executable, "-c", BUSY]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        if process.poll() is None:
            process.communicate()


def test_each_reading_is_current(child):
    stats, moved = OpenFiles("/proc", "stat", parse_stat), OpenFiles("/proc", "io", parse_io)
    first = stats.read(child.pid)
    child.stdin.write("\n")
    child.stdin.flush()
    child.stdout.readline()
    wait_until(lambda: (now := read_stat("/proc", child.pid)) and now.state == "S", "the child waits for input")
    last = stats.read(child.pid)
    assert first is not None
    assert last is not None
    assert last == read_stat("/proc", child.pid)
    assert last.cpu_ticks > first.cpu_ticks
    assert moved.read(child.pid) == moved.read(child.pid) == read_io("/proc", child.pid)


def test_a_process_that_has_ended_has_no_content(child):
    stats = OpenFiles("/proc", "stat", parse_stat)
    assert stats.read(child.pid) is not None
    child.communicate()
    assert stats.read(child.pid) is None
    assert stats.read(child.pid) is None


def test_a_text_is_parsed_again_only_if_it_has_changed(tmp_path):
    parsed: list[bytes] = []

    def parse(_pid: int, text: bytes) -> bytes:
        parsed.append(text)
        return text

    stats = OpenFiles(str(tmp_path), "stat", parse)
    file = Path(tmp_path, "7", "stat")
    file.parent.mkdir()
    for text in (b"one", b"one", b"two", b"one", b"one"):
        file.write_bytes(text)
        assert stats.read(7) == text
    assert parsed == [b"one", b"two", b"one"]


def test_files_are_closed_with_their_processes_and_with_the_reader():
    before = descriptors()
    stats = OpenFiles("/proc", "stat", parse_stat)
    for pid in (os.getpid(), os.getppid(), 1):
        stats.read(pid)
    assert descriptors() == before + 3
    stats.close_others([1])
    assert descriptors() == before + 1
    del stats
    assert descriptors() == before


def test_most_descriptors_are_left_to_others(monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda _kind: (8, 8))
    stats = OpenFiles("/proc", "stat", parse_stat)
    before = descriptors()
    pids = list_pids("/proc")[:5]
    assert len(pids) > 2
    for _ in range(2):
        own = stats.read(os.getpid())
        assert own is not None
        assert own.key.pid == os.getpid()
        for pid in pids:
            stats.read(pid)
    assert descriptors() == before + 2
