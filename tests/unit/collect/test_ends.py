"""Tests of the usage of a group at the end of its last process: real processes, a fake reader."""

import subprocess
from dataclasses import replace

import pytest
from tests.support.waiting import wait_until
from tests.unit.collect.test_jobs import SLURM, Recorded
from tests.unit.collect.trees import V1

from jobmeter.collect.base import Owner
from jobmeter.collect.cgroup.reader import GroupReader
from jobmeter.collect.cgroup.usage import CgroupUsage, merge_readings
from jobmeter.collect.discover.member import Member, MembershipSource, Process
from jobmeter.collect.ends import EndWatch
from jobmeter.collect.process.stat import read_stat

OWNER = Owner("21", "worker-0")
GROUPS = {"memory": "/slurm/uid_0/job_21/step_0/task_0"}


class Reader(GroupReader):
    """Reader that gives usages of groups, and records the requested ones."""

    def __init__(self):
        self.asked = []

    def read(self, groups):
        self.asked.append(groups)
        return CgroupUsage(cpu_seconds=1.5, memory_peak=200.0, oom_kills=1)


@pytest.fixture
def child():
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as found:
        yield found
        found.kill()


def process(child, groups=GROUPS):
    stat = read_stat("/proc", child.pid)
    assert stat is not None
    return Process(stat, Member(owner=OWNER, source=MembershipSource.SLURM, groups=groups))


def test_the_groups_are_read_when_the_process_ends(child):
    reader = Reader()
    watch = EndWatch(reader)
    watch.watch([process(child)])
    assert reader.asked == []
    child.kill()
    (final,) = wait_until(watch.drain, "the last reading")
    assert (final.owner, dict(final.groups), final.usage.oom_kills) == (OWNER, GROUPS, 1)
    assert watch.drain() == []


def test_a_process_without_groups_of_its_own_and_one_that_is_no_longer_given_are_not_watched(child):
    reader = Reader()
    watch = EndWatch(reader)
    watch.watch([process(child, groups={})])
    watch.watch([process(child)])
    watch.watch([])
    child.kill()
    child.wait()
    assert watch.drain() == []
    assert reader.asked == []


def test_a_process_whose_number_is_anothers_by_now_is_not_watched(child):
    reader = Reader()
    watched = process(child)
    stale = Process(watched.stat._replace(key=watched.stat.key._replace(start=1)), watched.member)
    watch = EndWatch(reader)
    watch.watch([stale])
    child.kill()
    child.wait()
    assert reader.asked == []


def test_the_most_that_a_group_ever_had_is_the_peak(tmp_path):
    recorded = Recorded(tmp_path, V1)
    group = tmp_path / "sys/fs/cgroup/memory/slurm_n1/uid_65534/job_21/step_0/task_0"
    (group / "memory.max_usage_in_bytes").write_text("987654321\n")
    recorded.process(100, groups=SLURM, SLURM_JOB_ID="21", SLURM_PROCID="2")
    assert recorded.look()["memory.peak", "21", "worker-2"] == 987654321


def test_slurms_own_process_before_its_exec_is_no_replica(tmp_path):
    recorded = Recorded(tmp_path, V1)
    recorded.process(100, groups=SLURM)
    (tmp_path / "proc/100/comm").write_text("slurmstepd\n")
    assert recorded.look() == {}
    (tmp_path / "proc/100/comm").write_text("python3\n")
    recorded.process(100, groups=SLURM, SLURM_JOB_ID="21", SLURM_PROCID="2")
    assert {replica for _, _, replica in recorded.look()} == {"worker-2"}


def test_a_job_of_the_same_number_that_began_later_does_not_go_on_from_the_old_one(tmp_path):
    before = Recorded(tmp_path)
    before.process(100, ticks=800, JOBMETER_JOB_ID="1")
    assert before.look()["cpu.time", "1", "worker-0"] == 8
    before.end(100)
    again = Recorded(tmp_path)
    again.process(200, ticks=50, start=2**40, JOBMETER_JOB_ID="1")
    assert again.look()["cpu.time", "1", "worker-0"] == 0.5


def test_a_reading_that_came_too_late_takes_nothing_from_the_one_before():
    before = CgroupUsage(cpu_seconds=3.1, memory_peak=200.0, oom_kills=1, stalled={"cpu": 0.5})
    assert merge_readings(before, CgroupUsage()) == before
    assert merge_readings(before, CgroupUsage(cpu_seconds=3.2)) == replace(before, cpu_seconds=3.2)
    assert merge_readings(before, CgroupUsage(cpu_seconds=3.2, oom_kills=0)).oom_kills == 0


def test_the_groups_that_a_process_was_put_into_later_are_read(child):
    reader = Reader()
    watch = EndWatch(reader)
    watch.watch([process(child, groups={"memory": "/slurm/uid_0/job_21/step_0"})])
    watch.watch([process(child)])
    child.kill()
    (final,) = wait_until(watch.drain, "the last reading")
    assert dict(final.groups) == GROUPS
