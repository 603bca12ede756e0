"""Tests of replicas of jobs: figures from recorded trees, and real processes that come and go."""

import os
import subprocess
import sys
from contextlib import contextmanager
from typing import ClassVar

import pytest
from tests.support.waiting import pause
from tests.unit.collect.trees import HOST, V1, V2, end_process, plant, plant_process

from jobmeter.collect.base import NodeIdentity, Owner
from jobmeter.collect.cgroup.paths import CgroupPlace, Hierarchies
from jobmeter.collect.cgroup.reader import GroupReader
from jobmeter.collect.discover.classify import NodeClassifier
from jobmeter.collect.discover.member import Member, MembershipSource, Process
from jobmeter.collect.discover.table import ProcessTable
from jobmeter.collect.jobs import JobsCollector
from jobmeter.collect.process.count import Ended, ProcessCounters
from jobmeter.collect.process.stat import Key, ProcessIo, ProcessStat
from jobmeter.testing.collector import NOW_MS, CollectorContract

PLACE = NodeIdentity("n1")
PAGE = os.sysconf("SC_PAGE_SIZE")
POD = (
    "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0a1b2c3d_0001_0002_0003_00000000abcd.slice/"
    "cri-containerd-01.scope\n"
)
SLURM = """\
4:memory:/slurm_n1/uid_65534/job_21/step_0/task_0
3:cpuset:/slurm_n1/uid_65534/job_21/step_0
2:cpuacct:/slurm_n1/uid_65534/job_21/step_0/task_2
1:cpu:/
0::/
"""


class Recorded:
    """Collector over a tree."""

    def __init__(self, root, *trees):
        self.root = plant(root, HOST, *trees)
        proc = f"{root}/proc"
        groups = GroupReader(Hierarchies(proc, str(root)), f"{root}/sys")
        table = ProcessTable(NodeClassifier("n1", proc), proc)
        self.collector = JobsCollector(PLACE, table, groups, proc, 100, root)

    def look(self, now_ms=NOW_MS):
        return {(s.series.metric, s.series.job, s.series.replica): s.value for s in self.collector.collect(now_ms)}

    def process(self, *arguments, **more):
        plant_process(self.root, *arguments, **more)

    def end(self, pid):
        end_process(self.root, pid)


@pytest.fixture
def plain(tmp_path):
    return Recorded(tmp_path)


class TestProcesses(CollectorContract):
    @pytest.fixture
    def collector(self, plain):
        plain.process(100, JOBMETER_JOB_ID="j", JOBMETER_REPLICA="worker-0", io=(10, 20))
        plain.process(101, 100, threads=7)
        return plain.collector


class TestSlurm(CollectorContract):
    @pytest.fixture
    def collector(self, tmp_path):
        recorded = Recorded(tmp_path, V1)
        recorded.process(100, groups=SLURM, SLURM_JOB_ID="21", SLURM_PROCID="2")
        return recorded.collector


class TestPod(CollectorContract):
    @pytest.fixture
    def collector(self, tmp_path):
        recorded = Recorded(tmp_path, V2)
        recorded.process(100, groups=POD, HOSTNAME="bert-worker-0")
        return recorded.collector


def test_figures_from_processes_alone(plain):
    plain.process(100, JOBMETER_JOB_ID="j", ticks=150, resident=100, io=(10, 20), threads=2)
    plain.process(101, 100, ticks=50, resident=50, io=(1, 2), threads=3)
    plain.process(200, ticks=9999)  # of no job
    values = plain.look()
    assert {key[1:] for key in values} == {("j", "worker-0")}
    values = {metric: value for (metric, _, _), value in values.items()}
    assert values == {
        "cpu.time": 2.0,
        "cpu.limit": 2.0,
        "memory.usage": 150 * PAGE,
        "memory.peak": 150 * PAGE,
        "memory.limit": 24684096 * 1024,
        "disk.read": 11,
        "disk.write": 22,
        "io.read": 18,
        "io.write": 18,
        "process.count": 2,
        "thread.count": 5,
    }


def test_figures_of_a_slurm_task_come_from_its_groups(tmp_path):
    recorded = Recorded(tmp_path, V1)
    recorded.process(100, groups=SLURM, ticks=7, io=(10, 20), SLURM_JOB_ID="21", SLURM_PROCID="2")
    values = {metric: value for (metric, _, _), value in recorded.look().items()}
    assert values["cpu.time"] == 12.5
    assert values["memory.usage"] == 104857600 - 20971520
    assert values["memory.limit"] == 314572800
    assert values["memory.oom.kills"] == 1
    assert values["disk.read"] == 10


def test_figures_of_a_pod(tmp_path):
    recorded = Recorded(tmp_path, V2)
    recorded.process(100, groups=POD, io=None, HOSTNAME="bert-worker-0")
    values = recorded.look()
    (job,) = {job for _, job, _ in values}
    assert job == "pod-0a1b2c3d-0001-0002-0003-00000000abcd"  # its name in the agent, until the server answers
    assert values["cpu.time", job, "worker-0"] == 7.25
    assert values["cpu.limit", job, "worker-0"] == 2
    assert values["cpu.throttled.time", job, "worker-0"] == 0.5
    assert values["disk.write", job, "worker-0"] == 2000  # the agent may not read processes of other users
    assert values["pressure.cpu", job, "worker-0"] == 3.0


class TestQuotaAbove:
    """Tests of a quota on a parent, in a hierarchy of version 1 in which the replica has no group of its own."""

    @staticmethod
    def _throttle(root, seconds):
        stat = f"nr_periods 40\nnr_throttled 30\nthrottled_time {int(seconds * 1e9)}\n"
        plant(root, {"sys/fs/cgroup/cpu/batch/cpu.stat": stat})

    @pytest.fixture
    def recorded(self, tmp_path):
        recorded = Recorded(tmp_path, V1)
        groups = SLURM.replace("cpu:/\n", "cpu:/batch/inner\n")
        recorded.process(100, groups=groups, SLURM_JOB_ID="21", SLURM_PROCID="2")
        self._throttle(tmp_path, 80)
        return recorded

    def test_usage_since_the_first_scan_counts(self, recorded):
        assert recorded.look()["cpu.throttled.time", "21", "worker-2"] == 0.0
        self._throttle(recorded.root, 81.5)
        assert recorded.look()["cpu.throttled.time", "21", "worker-2"] == 1.5

    def test_reading_continues_at_the_position_after_a_restart(self, recorded):
        recorded.look()
        self._throttle(recorded.root, 82)
        recorded.look()
        self._throttle(recorded.root, 99)
        assert Recorded(recorded.root, V1).look()["cpu.throttled.time", "21", "worker-2"] == 2.0

    def test_a_group_that_is_made_again_counts_from_its_start(self, recorded):
        recorded.look()
        self._throttle(recorded.root, 81)
        recorded.look()
        self._throttle(recorded.root, 0.5)
        assert recorded.look()["cpu.throttled.time", "21", "worker-2"] == 1.5

    def test_a_replica_under_no_quota_has_none(self, tmp_path):
        recorded = Recorded(tmp_path, V1)
        recorded.process(100, groups=SLURM, SLURM_JOB_ID="21", SLURM_PROCID="2")
        assert ("cpu.throttled.time", "21", "worker-2") not in recorded.look()


def test_a_step_that_ends_takes_nothing_away(tmp_path):
    recorded = Recorded(tmp_path, V1)
    batch = SLURM.replace("step_0", "step_batch").replace("task_2", "task_0")
    plant(
        tmp_path,
        {"sys/fs/cgroup/cpuacct/slurm_n1/uid_65534/job_21/step_batch/task_0/cpuacct.usage": "1000000000\n"},
    )
    recorded.process(100, groups=batch, SLURM_JOB_ID="21", SLURM_PROCID="2")
    recorded.process(101, groups=SLURM, SLURM_JOB_ID="21", SLURM_PROCID="2")
    assert recorded.look()["cpu.time", "21", "worker-2"] == 13.5
    recorded.end(101)
    assert recorded.look()["cpu.time", "21", "worker-2"] == 13.5


class TestOutside:
    """Tests of a Slurm task with a container that a runtime has put into a separate group."""

    TASK: ClassVar = {"groups": SLURM, "SLURM_JOB_ID": "21", "SLURM_PROCID": "2"}
    AWAY: ClassVar = {"groups": "2:cpuacct:/machine/libpod-1\n4:memory:/machine/libpod-1\n0::/\n"}
    GROUP_SECONDS = 12.5

    @pytest.fixture
    def recorded(self, tmp_path):
        recorded = Recorded(tmp_path, V1)
        recorded.process(100, **self.TASK, ticks=0)
        return recorded

    def cpu(self, recorded):
        return recorded.look()["cpu.time", "21", "worker-2"] - self.GROUP_SECONDS

    def test_what_moved_away_is_counted_from_the_scan_that_found_it(self, recorded):
        recorded.process(101, 100, **self.TASK, ticks=300)
        assert self.cpu(recorded) == 0
        recorded.process(101, 100, **self.AWAY, ticks=300)
        assert self.cpu(recorded) == 0, "its own group has counted that"
        recorded.process(101, 100, **self.AWAY, ticks=450)
        recorded.process(102, 101, **self.AWAY, start=2000, ticks=50)
        assert self.cpu(recorded) == 2.0, "what begins outside has used all outside"
        recorded.end(102)
        assert self.cpu(recorded) == 2.0
        recorded.end(101)
        assert self.cpu(recorded) == 2.0
        assert self.cpu(recorded) == 2.0

    def test_what_left_and_ended_between_two_scans_is_counted_by_who_waited_for_it(self, recorded):
        assert self.cpu(recorded) == 0
        recorded.process(100, **self.TASK, ticks=2, waited=250)
        assert self.cpu(recorded) == pytest.approx(2.52)

    def test_a_restart_of_the_agent_continues(self, recorded):
        recorded.look()
        recorded.process(101, 100, **self.AWAY, ticks=10)
        recorded.look()
        recorded.process(101, 100, **self.AWAY, ticks=150)
        recorded.process(100, **self.TASK, ticks=0, waited=70)
        before = self.cpu(recorded)
        again = Recorded(recorded.root, V1)
        assert self.cpu(again) == pytest.approx(before)
        again.process(101, 100, **self.AWAY, ticks=250)
        assert self.cpu(again) == pytest.approx(before + 1)
        again.end(101)
        self.cpu(again)
        assert self.cpu(Recorded(recorded.root, V1)) == pytest.approx(before + 1)

    def test_the_group_of_another_replica_is_not_outside(self, recorded):
        other = SLURM.replace("task_2", "task_3")
        group = "sys/fs/cgroup/cpuacct/slurm_n1/uid_65534/job_21/step_0/task_3/cpuacct.usage"
        plant(recorded.root, {group: "7000000000\n"})
        recorded.process(200, groups=other, SLURM_JOB_ID="21", SLURM_PROCID="3", ticks=0)
        recorded.process(101, 100, **self.TASK, ticks=100)
        recorded.look()
        recorded.process(101, 100, groups=other, ticks=300)
        recorded.look()
        recorded.process(101, 100, groups=other, ticks=500)
        values = recorded.look()
        assert values["cpu.time", "21", "worker-3"] == 7.0
        assert values["cpu.time", "21", "worker-2"] == self.GROUP_SECONDS + 2.0, "until it was found there"

    def test_its_memory_is_added(self, recorded):
        inside = recorded.look()["memory.usage", "21", "worker-2"]
        recorded.process(101, 100, **self.AWAY, resident=1000)
        assert recorded.look()["memory.usage", "21", "worker-2"] == inside + 1000 * PAGE
        plant(
            recorded.root, {"proc/101/smaps_rollup": "1000-2000 ---p 0 00:00 0 [rollup]\nRss: 4000 kB\nPss: 300 kB\n"}
        )
        assert recorded.look()["memory.usage", "21", "worker-2"] == inside + 300 * 1024


def _peak(recorded, now_ms):
    return recorded.look(now_ms)["memory.peak", "21", "worker-2"]


@pytest.mark.parametrize("groups", [SLURM, SLURM.replace("step_0", "step_batch"), "0::/\n"])
def test_a_number_that_is_given_to_another_job_takes_no_peak_along(plain, groups):
    """A cluster that lost its state reuses its numbers: the same steps run again, minutes later."""
    task = {"groups": groups, "SLURM_JOB_ID": "21", "SLURM_PROCID": "2"}
    plain.process(100, resident=1000, **task)
    assert _peak(plain, NOW_MS) == 1000 * PAGE
    plain.end(100)
    plain.process(200, start=2000, resident=10, **task)
    assert _peak(plain, NOW_MS + 60_000) == 10 * PAGE
    plain.process(201, 200, start=2001, resident=20, **task)
    assert _peak(plain, NOW_MS + 70_000) == 30 * PAGE


def test_a_later_step_of_the_same_job_has_the_jobs_peak(plain):
    task = {"SLURM_JOB_ID": "21", "SLURM_PROCID": "2", "SLURM_JOB_START_TIME": ""}
    plain.process(100, resident=1000, groups=SLURM, **task)
    _peak(plain, NOW_MS)
    plain.end(100)
    plain.process(200, start=2000, resident=10, groups=SLURM.replace("step_0", "step_1"), **task)
    assert _peak(plain, NOW_MS + 60_000) == 1000 * PAGE


def test_a_job_is_identified_by_its_start_where_slurm_has_it(plain):
    task = {"groups": SLURM, "SLURM_JOB_ID": "21", "SLURM_PROCID": "2"}
    plain.process(100, resident=1000, SLURM_JOB_START_TIME="1795193807", **task)
    _peak(plain, NOW_MS)
    plain.end(100)
    later = {**task, "groups": SLURM.replace("step_0", "step_7")}
    plain.process(200, start=2000, resident=10, SLURM_JOB_START_TIME="1795193807", **later)
    assert _peak(plain, NOW_MS + 10_000) == 1000 * PAGE
    plain.end(200)
    plain.process(300, start=3000, resident=20, SLURM_JOB_START_TIME="1795193999", **later)
    assert _peak(plain, NOW_MS + 20_000) == 20 * PAGE


def test_two_jobs_with_equal_replica_names_never_meet(plain):
    plain.process(100, JOBMETER_JOB_ID="a", ticks=100)
    plain.process(200, JOBMETER_JOB_ID="b", ticks=300)
    values = plain.look()
    assert values["cpu.time", "a", "worker-0"] == 1
    assert values["cpu.time", "b", "worker-0"] == 3


def test_a_replica_that_restarted_is_another_attempt(plain):
    plain.process(100, JOBMETER_JOB_ID="a", ticks=100)
    plain.look()
    plain.end(100)
    plain.process(101, JOBMETER_JOB_ID="a", JOBMETER_ATTEMPT="1", ticks=5)
    (sample,) = [s for s in plain.collector.collect(NOW_MS) if s.series.metric == "cpu.time"]
    assert (sample.series.attempt, sample.value) == (1, 0.05)


def test_processes_measured_by_jobmeter_run_are_left_to_it(plain):
    plain.process(100, JOBMETER_JOB_ID="a", JOBMETER_MEASURED="run")
    assert plain.look() == {}


def test_a_child_that_ended_still_counts_and_its_memory_does_not(plain):
    plain.process(100, JOBMETER_JOB_ID="j", ticks=100, resident=10)
    plain.process(101, 100, ticks=500, resident=90)
    assert plain.look()["cpu.time", "j", "worker-0"] == 6
    plain.end(101)
    plain.process(100, JOBMETER_JOB_ID="j", ticks=100, resident=10)  # its parent did not wait for it
    values = plain.look()
    assert values["cpu.time", "j", "worker-0"] == 6
    assert values["memory.usage", "j", "worker-0"] == 10 * PAGE
    assert values["memory.peak", "j", "worker-0"] == 100 * PAGE


def test_a_replica_is_reported_once_more_when_its_last_process_was_waited_for(plain):
    plain.process(100, JOBMETER_JOB_ID="j", ticks=100)
    plain.look()
    plain.end(100)
    owner = Owner("j", "worker-0")
    plain.collector.note_end(Ended(Key(100, 1000), owner, 1.2345, 8e6, ProcessIo(7.0, 8.0, 9.0, 10.0)))
    values = plain.look()
    assert values["cpu.time", "j", "worker-0"] == 1.2345
    assert values["disk.write", "j", "worker-0"] == 8
    assert values["memory.peak", "j", "worker-0"] == 8e6
    assert ("memory.usage", "j", "worker-0") not in values
    assert plain.look() == {}


def test_ways_to_count_are_not_mixed(tmp_path):
    recorded = Recorded(tmp_path, V1)
    recorded.process(100, groups=SLURM, ticks=7, SLURM_JOB_ID="21", SLURM_PROCID="2")
    assert recorded.look()["cpu.time", "21", "worker-2"] == 12.5
    (tmp_path / "sys/fs/cgroup/cpuacct/slurm_n1/uid_65534/job_21/step_0/task_2/cpuacct.usage").unlink()
    assert recorded.look()["cpu.time", "21", "worker-2"] == 12.5


@pytest.mark.parametrize("trees", [(), (V1,)])
def test_a_restart_of_the_agent_lets_no_counter_fall(tmp_path, trees):
    before = Recorded(tmp_path, *trees)
    groups = SLURM if trees else "0::/\n"
    before.process(100, groups=groups, ticks=100, JOBMETER_JOB_ID="j", io=(10, 0))
    before.process(101, 100, groups=groups, ticks=700, io=(5, 0))
    first = before.look()
    before.end(101)
    after = Recorded(tmp_path, *trees)
    second = after.look()
    for metric in ("cpu.time", "disk.read"):
        assert second[metric, "j", "worker-0"] == first[metric, "j", "worker-0"]
    after.process(100, groups=groups, ticks=150, JOBMETER_JOB_ID="j", io=(11, 0))
    third = after.look()
    assert third["disk.read", "j", "worker-0"] == 16
    if not trees:
        assert third["cpu.time", "j", "worker-0"] == 8.5


def test_counters_that_cannot_be_read_back_are_started_anew(tmp_path):
    (tmp_path / "counters-processes.json").write_text("[{]")
    recorded = Recorded(tmp_path)
    recorded.process(100, ticks=100, JOBMETER_JOB_ID="j")
    assert recorded.look()["cpu.time", "j", "worker-0"] == 1


def test_a_replica_of_long_ago_is_forgotten(plain):
    plain.process(100, JOBMETER_JOB_ID="j")
    plain.look()
    plain.end(100)
    plain.look(NOW_MS + 700_000)
    plain.process(101, JOBMETER_JOB_ID="j", ticks=1, start=2000)
    assert plain.look(NOW_MS + 710_000)["cpu.time", "j", "worker-0"] == 0.01


@contextmanager
def family(code, **variables):
    with subprocess.Popen([sys.executable, "-c", code], env={**os.environ, **variables}, stdin=subprocess.PIPE) as root:
        try:
            yield root
        finally:
            root.kill()


def test_real_children_come_and_go_and_no_counter_falls():
    """Read short-lived, ignored and orphaned children of a real process as fast as possible.

    Each burns more than the 0.12 s that must be counted: the kernel omits a part of a clock tick of each.
    """
    code = """
import os, signal, subprocess, sys, time
burn = [sys.executable, "-c", "import time\\nwhile time.process_time() < 0.15: pass"]
for turn in range(3):
    subprocess.run(burn)
    subprocess.Popen(["sh", "-c", "sleep 0.1 &"]).wait()
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
# Nobody waits for what it used: it stays until it was looked at.
child = subprocess.Popen([sys.executable, "-c", burn[-1] + "\\nimport sys; sys.stdin.read()"])
child.wait()
"""
    collector = JobsCollector(PLACE, ProcessTable(NodeClassifier("n1")), GroupReader(Hierarchies()))
    job = f"real-{os.getpid()}"
    sums, counts = [], []
    with family(code, JOBMETER_JOB_ID=job) as root:
        while root.poll() is None:
            values = {s.series.metric: s.value for s in collector.collect(NOW_MS) if s.series.job == job}
            if values:
                sums.append(values["cpu.time"])
                counts.append(values["process.count"])
            if sums and sums[-1] >= 4 * 0.12:
                root.stdin.close()
            pause()
    assert sums == sorted(sums)
    assert max(counts) >= 2
    assert sums[-1] >= 4 * 0.12


def test_memory_of_a_real_process_is_measured():
    job = f"memory-{os.getpid()}"
    collector = JobsCollector(PLACE, ProcessTable(NodeClassifier("n1")), GroupReader(Hierarchies()))
    code = "x = bytearray(150_000_000); print('ready', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, "JOBMETER_JOB_ID": job},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as root:
        assert root.stdout is not None
        root.stdout.readline()
        values = {s.series.metric: s.value for s in collector.collect(NOW_MS) if s.series.job == job}
        root.communicate(b"\n")
    assert 150e6 < values["memory.usage"] < 250e6


def test_a_process_that_has_ended_has_no_limits(tmp_path):
    recorded = Recorded(tmp_path, V1)
    recorded.process(100, groups=SLURM, SLURM_JOB_ID="21", SLURM_PROCID="2")
    before = recorded.look()["memory.limit", "21", "worker-2"]
    recorded.process(101, 100, groups=SLURM, start=2000)
    recorded.look()
    (tmp_path / "proc/100/cgroup").unlink()
    assert recorded.look()["memory.limit", "21", "worker-2"] == before, "of the process that is there"
    (tmp_path / "proc/101/cgroup").unlink()
    assert ("memory.limit", "21", "worker-2") not in recorded.look()


def test_bytes_that_moved_between_the_last_look_and_the_end_are_the_groups(tmp_path):
    recorded = Recorded(tmp_path, V1)
    groups = SLURM + "5:blkio:/batch/inner\n"
    step = "/slurm_n1/uid_65534/job_21/step_0/task_0"
    recorded.process(100, groups=groups.replace("/batch/inner", step), io=(0, 7), SLURM_JOB_ID="21", SLURM_PROCID="2")
    path = f"sys/fs/cgroup/blkio{step}/blkio.throttle.io_service_bytes_recursive"
    plant(tmp_path, {path: "254:0 Write 5\n253:0 Write 5\n", "sys/dev/block/254:0/device/model": ""})
    assert recorded.look()["disk.write", "21", "worker-2"] == 7
    plant(tmp_path, {path: "254:0 Write 16\n253:0 Write 16\n"})
    assert recorded.look()["disk.write", "21", "worker-2"] == 16


def test_a_process_that_no_update_had_counts_at_the_place_of_its_end(tmp_path):
    owner, counters = Owner("j", "worker-0"), ProcessCounters(str(tmp_path), 100)
    counters.update([], [Ended(Key(5, 7), owner, 1.5, 0.0, place=CgroupPlace.OUTSIDE)])
    assert counters.sum_totals() == {owner: {"outside": 1.5}}
    counters.update([], [Ended(Key(6, 7), owner, 0.5, 0.0)])
    assert counters.sum_totals() == {owner: {"outside": 1.5, "cpu": 0.5}}


def test_late_final_figures_count_at_the_place_where_the_process_was(tmp_path):
    owner, counters = Owner("j", "worker-0"), ProcessCounters(str(tmp_path), 100)
    member = Member(owner=owner, source=MembershipSource.TAGS)
    orphan, child = Key(5, 7), Key(6, 7)
    living = [
        Process(ProcessStat(orphan, 1, "S", 0, 0, 0), member),
        Process(ProcessStat(child, 5, "R", 78, 0, 0), member),
    ]
    outside = dict.fromkeys((orphan, child), CgroupPlace.OUTSIDE)
    counters.update(living[:1], [], places={orphan: CgroupPlace.OUTSIDE})
    for _ in range(2):
        counters.update(living, [], places=outside)
    before = counters.sum_totals()[owner]["outside"]
    for _ in range(3):
        counters.update([], [])
    counters.update([], [Ended(orphan, owner, 0.8, 0.0, waited_seconds=0.8)])
    assert before == 0.78
    assert counters.sum_totals()[owner] == {"cpu": 0.0, "outside": 0.8}
