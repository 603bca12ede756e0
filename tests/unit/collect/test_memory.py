"""Tests of the memory of processes: real ones that share their pages, and the budget for readings."""

import os
import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobmeter.collect import files
from jobmeter.collect.base import NodeIdentity, Owner
from jobmeter.collect.cgroup.high_water import HighWater
from jobmeter.collect.cgroup.paths import Hierarchies
from jobmeter.collect.cgroup.reader import GroupReader
from jobmeter.collect.cgroup.usage import CgroupUsage
from jobmeter.collect.discover.classify import NodeClassifier
from jobmeter.collect.discover.table import ProcessTable
from jobmeter.collect.jobs import JobsCollector
from jobmeter.collect.process.memory import BURST_SECONDS, SHARE, MemoryMeasure, ProcessMemory
from jobmeter.collect.process.stat import Key, ProcessStat, read_stat
from jobmeter.testing.collector import NOW_MS

MIB = 2**20
LOADERS = """
import os, sys
data = bytearray(b"x" * (100 << 20))
for _ in range(8):
    if not os.fork():
        os.write(1, b"%d\\n" % os.getpid())
        sys.stdin.read()
        os._exit(0)
os.write(1, b"%d\\n" % os.getpid())
sys.stdin.read()
"""
"""Data loaders that share 100 MiB with the process that forked them."""


def own_pages(pid: int) -> int:
    """Return the proportional set size as the kernel gives it mapping by mapping, in bytes."""
    lines = Path(f"/proc/{pid}/smaps").read_text().splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


def test_pages_that_forked_loaders_share_count_once():
    job = f"loaders-{os.getpid()}"
    collector = JobsCollector(NodeIdentity("n1"), ProcessTable(NodeClassifier("n1")), GroupReader(Hierarchies()))
    with subprocess.Popen(
        [sys.executable, "-c", LOADERS],
        env={**os.environ, "JOBMETER_JOB_ID": job},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as root:
        assert root.stdout is not None
        pids = [int(root.stdout.readline()) for _ in range(9)]
        samples = [sample for sample in collector.collect(NOW_MS) if sample.series.job == job]
        values = {sample.series.metric: sample.value for sample in samples}
        truth = sum(map(own_pages, pids))
        resident = sum(stat.memory for pid in pids if (stat := read_stat("/proc", pid)))
        root.communicate()
    assert values["process.count"] == 9
    assert values["memory.usage"] == pytest.approx(truth, rel=0.05)
    assert values["memory.peak"] == pytest.approx(truth, rel=0.05)
    assert resident > 5 * values["memory.usage"]
    assert collector.memory.measures[Owner(job, "worker-0")] is MemoryMeasure.PROPORTIONAL


class Paced:
    """Processes each of whose readings costs CPU time."""

    def __init__(self, root: Path, cost: float, processes: dict[int, tuple[int, int]]) -> None:
        """Set the resident and the proportional size of each of ``processes``, in KiB."""
        self.now = self.used = 0.0
        self.ticks = 0
        self.cost = cost
        self.reads: list[int] = []
        self.sizes = processes
        self.read = files.read_pairs
        self.memory = ProcessMemory(str(root), lambda: self.now, self.cpu)
        self.root = root
        for pid, (_, proportional) in processes.items():
            (root / str(pid)).mkdir()
            (root / str(pid) / "smaps_rollup").write_text(f"0-1 ---p 0 00:00 0 [rollup]\nPss: {proportional} kB\n")

    def read_pairs(self, path: str):
        self.used += self.cost
        self.reads.append(int(path.split("/")[-2]))
        return self.read(path)

    def cpu(self) -> float:
        return self.used

    def stats(self) -> list[ProcessStat]:
        return [ProcessStat(Key(pid, 1), 1, "S", self.ticks, 1, size * 1024) for pid, (size, _) in self.sizes.items()]

    def look(self, seconds: float, *, busy: bool = True) -> float:
        self.now += seconds
        self.ticks += busy
        with patch.object(files, "read_pairs", self.read_pairs):
            self.memory.update(self.stats(), [])
        return self.memory.read_proportional(self.stats())[0]


@given(
    cost=st.floats(1e-5, 2.0),
    count=st.integers(1, 30),
    pauses=st.lists(st.floats(0.1, 100.0), min_size=1, max_size=40),
)
def test_readings_take_no_more_than_their_share(tmp_path_factory, cost, count, pauses):
    paced = Paced(tmp_path_factory.mktemp("proc"), cost, dict.fromkeys(range(1, count + 1), (1000, 100)))
    for pause in pauses:
        paced.look(pause)
    assert paced.used <= BURST_SECONDS + sum(pauses) * SHARE + cost + 1e-9
    times = [paced.reads.count(pid) for pid in range(1, count + 1)]
    assert max(times) - min(times) <= 1, "each in its turn"


def test_a_process_that_is_not_read_yet_shares_as_the_others_do(tmp_path):
    paced = Paced(tmp_path, BURST_SECONDS / 2, dict.fromkeys(range(1, 11), (1000, 100)))
    assert paced.look(0.0) == 10 * 100 * 1024
    assert len(paced.reads) == 2


def test_what_a_process_has_gained_since_its_reading_is_its_own(tmp_path):
    paced = Paced(tmp_path, BURST_SECONDS, {1: (1000, 100)})
    assert paced.look(0.0) == 100 * 1024
    paced.sizes = {1: (1500, 0)}
    assert paced.look(0.0) == 600 * 1024
    paced.sizes = {1: (500, 0)}
    assert paced.look(0.0) == 50 * 1024
    assert len(paced.reads) == 1


def test_idle_processes_are_read_once_a_minute_and_when_one_begins_or_ends(tmp_path):
    paced = Paced(tmp_path, 1e-6, dict.fromkeys(range(1, 5), (1000, 100)))
    for _ in range(6):
        paced.look(10.0, busy=False)
    assert paced.reads == [1, 2, 3, 4]
    paced.look(10.0, busy=False)
    assert paced.reads == [1, 2, 3, 4] * 2
    del paced.sizes[4]
    paced.look(1.0, busy=False)
    assert paced.reads[8:] == [1, 2, 3]
    paced.sizes[2] = (1001, 100)
    paced.look(1.0, busy=False)
    assert paced.reads[11:] == [2]
    paced.look(1.0)
    assert sorted(paced.reads[12:]) == [1, 2, 3]


def test_the_budget_delays_readings_but_drops_none(tmp_path):
    cost = BURST_SECONDS / 25
    paced = Paced(tmp_path, cost, dict.fromkeys(range(1, 11), (1000, 100)))
    for _ in range(3):
        paced.look(0.0)
    before = len(paced.reads)
    assert before < 30, "the budget is used up"
    del paced.sizes[10]
    for _ in range(11):
        paced.look(cost / SHARE, busy=False)
    assert set(paced.reads[before:]) == set(range(1, 10))


def test_a_process_that_may_not_be_read_counts_by_its_resident_size(tmp_path):
    paced = Paced(tmp_path, 0.0, {1: (1000, 100), 2: (1000, 100)})
    (tmp_path / "2/smaps_rollup").unlink()
    assert paced.look(1.0) == 1100 * 1024
    assert paced.memory.read_proportional(paced.stats())[1] is MemoryMeasure.RESIDENT


OWNER = Owner("j", "worker-0")
A, B = Key(1, 1), Key(2, 1)


def marks(high, mark, living=None, ended=None, beside=0.0, kills=0):
    return high.take_marks(OWNER, [CgroupUsage(memory_peak=mark, oom_kills=kills)], living or {}, ended or {}, beside)


def test_file_cache_does_not_raise_the_mark_of_a_group():
    assert marks(HighWater(), 413.0, {A: 12.0}) == [12.0]
    assert marks(HighWater(), 413.0, {A: 12.0}, kills=1) == [413.0], "it had given back its cache"


def test_a_peak_between_two_scans_is_the_processes():
    high = HighWater()
    assert marks(high, 30.0, {A: 10.0, B: 10.0}) == [20.0]
    assert marks(high, 300.0, {A: 250.0, B: 10.0}) == [260.0]
    assert marks(high, 255.0, {A: 250.0}) == [255.0], "one has ended, of which nothing is new"


def test_processes_that_have_ended_count_by_their_last_figures():
    high = HighWater()
    marks(high, 10.0, {A: 10.0})
    assert marks(high, 900.0, {}, {A: 500.0}) == [500.0]
    assert marks(HighWater(), 900.0, {}, {A: 300.0, B: 400.0}) == [400.0], "they need not have lived together"


def test_files_in_memory_are_in_use():
    assert marks(HighWater(), 413.0, {A: 12.0}, beside=100.0) == [112.0]


def test_without_the_marks_of_processes_that_of_the_group_counts():
    assert marks(HighWater(), 413.0, {A: 12.0, B: None}) == [413.0]
    assert marks(HighWater(), 413.0) == [413.0]
