"""Tests of a job's CPU time from the job's group, for tasks whose own group was removed before it was read."""

import subprocess

import pytest
from tests.support.waiting import wait_until
from tests.unit.collect.test_ends import Reader, process
from tests.unit.collect.test_jobs import PLACE
from tests.unit.collect.trees import HOST, V1, end_process, plant, plant_process

from jobmeter.collect.base import Owner
from jobmeter.collect.cgroup.job_group import JobGroupCounters, JobGroupReader, JobUsage
from jobmeter.collect.cgroup.paths import Hierarchies
from jobmeter.collect.cgroup.reader import GroupReader
from jobmeter.collect.cgroup.usage import CgroupUsage
from jobmeter.collect.discover.classify import NodeClassifier
from jobmeter.collect.discover.member import Member, MembershipSource, Process
from jobmeter.collect.discover.table import ProcessTable
from jobmeter.collect.ends import EndWatch, FinalUsage
from jobmeter.collect.jobs import JobsCollector

JOB = "/slurm_n1/uid_65534/job_21"
KEY = (("cpuacct", JOB),)
ONE, OTHER = Owner("21", "worker-0"), Owner("21", "worker-1")
GROUPS = "2:cpuacct:{}/step_{}/task_{}\n0::/\n"


def used(whole, extern=None, began=0, ended=0):
    times = {"began": began, "ended": ended}
    return JobUsage(CgroupUsage(cpu_seconds=whole, **times), CgroupUsage(cpu_seconds=extern, **times))


class Ends(EndWatch):
    """Reader of the usage at the end of processes, which a test sets."""

    def __init__(self, reader):
        super().__init__(reader)
        self.finals = []

    def watch(self, processes):
        pass

    def drain(self):
        finals, self.finals = self.finals, []
        return finals


class Node:
    """Node with a job, whose groups a test creates and removes."""

    def __init__(self, root):
        self.root = plant(root, HOST, V1)
        proc = f"{root}/proc"
        self.reader = reader = GroupReader(Hierarchies(proc, str(root)), f"{root}/sys")
        self.ends = Ends(reader)
        table = ProcessTable(NodeClassifier("n1", proc), proc)
        self.collector = JobsCollector(PLACE, table, reader, proc, 100, ends=self.ends)
        self.now = 1_000_000

    def used(self, path, seconds):
        folder = self.root / f"sys/fs/cgroup/cpuacct{path}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "cpuacct.usage").write_text(f"{int(seconds * 1e9)}\n")

    def remove(self, path):
        (self.root / f"sys/fs/cgroup/cpuacct{path}/cpuacct.usage").unlink()

    def task(self, pid, step, task=0, tasks_per_node="1"):
        plant_process(
            self.root,
            pid,
            groups=GROUPS.format(JOB, step, task),
            SLURM_JOB_ID="21",
            SLURM_PROCID=str(task),
            SLURM_TASKS_PER_NODE=tasks_per_node,
        )

    def end(self, pid):
        end_process(self.root, pid)

    def seconds(self):
        self.now += 1_000
        samples = self.collector.collect(self.now)
        return {s.series.replica: round(s.value, 3) for s in samples if s.series.metric == "cpu.time"}


@pytest.fixture
def node(tmp_path):
    return Node(tmp_path)


def test_a_step_whose_group_was_removed_counts_by_the_group_of_its_job(node):
    node.task(100, "batch")
    node.task(101, "0")
    node.used(f"{JOB}/step_batch/task_0", 0.1)
    node.used(f"{JOB}/step_0/task_0", 2.0)
    node.used(JOB, 2.1)
    assert node.seconds() == {"worker-0": 2.1}
    node.end(101)
    node.remove(f"{JOB}/step_0/task_0")
    node.used(JOB, 3.0)
    assert node.seconds() == {"worker-0": 3.0}
    node.used(f"{JOB}/step_batch/task_0", 0.2)
    node.used(JOB, 3.1)
    assert node.seconds() == {"worker-0": 3.1}


def test_the_last_reading_of_the_job_comes_with_the_end_of_its_last_task(node):
    node.task(100, "batch")
    node.used(f"{JOB}/step_batch/task_0", 2.0)
    node.used(JOB, 2.0)
    assert node.seconds() == {"worker-0": 2.0}
    node.end(100)
    node.remove(f"{JOB}/step_batch/task_0")
    node.remove(JOB)
    groups = (("cpuacct", f"{JOB}/step_batch/task_0"),)
    node.ends.finals.append(FinalUsage(ONE, groups, CgroupUsage(), KEY, used(2.9, began=100, ended=101)))
    assert node.seconds() == {"worker-0": 2.9}


def test_unread_usage_of_two_replicas_is_not_attributed(node):
    for task in (0, 1):
        node.task(100 + task, "0", task, tasks_per_node="2")
        node.used(f"{JOB}/step_0/task_{task}", 1.0)
    node.used(JOB, 5.0)
    assert node.seconds() == {"worker-0": 1.0, "worker-1": 1.0}


def test_a_second_replica_takes_nothing_of_what_the_first_one_had(node):
    node.task(100, "batch")
    node.used(f"{JOB}/step_batch/task_0", 1.0)
    node.used(JOB, 3.0)
    assert node.seconds() == {"worker-0": 3.0}
    node.task(101, "1", 1)
    node.used(f"{JOB}/step_1/task_1", 4.0)
    node.used(JOB, 7.5)
    assert node.seconds() == {"worker-0": 3.0, "worker-1": 4.0}


def test_usage_of_the_external_step_is_not_the_job_s(node):
    reader = JobGroupReader(node.reader)
    node.used(JOB, 5.0)
    node.used(f"{JOB}/step_extern", 1.5)
    assert reader.read(KEY) == used(5.0, 1.5)
    node.task(100, "batch")
    node.used(f"{JOB}/step_batch/task_0", 1.0)
    assert node.seconds() == {"worker-0": 3.5}
    node.remove(f"{JOB}/step_extern")
    assert reader.read(KEY) is None, "the job's group has its seconds still"
    reader.forget([KEY])
    assert reader.read(KEY) == used(5.0)
    node.remove(JOB)
    assert reader.read(KEY) is None


def test_a_group_that_is_made_again_goes_on_and_another_attempt_begins_anew():
    counters = JobGroupCounters()
    counters.set_replicas([(KEY, ONE)])
    counters.update(KEY, 0, used(4.0))
    counters.update(KEY, 0, used(1.0))
    again = Owner("21", "worker-0", 1)
    counters.set_replicas([(KEY, again)])
    counters.update(KEY, 1, used(0.5))
    totals = {ONE: {"cpu": 2.0}, again: {"cpu": 0.25}, OTHER: {"cpu": 1.0}}
    counters.add(totals)
    assert totals == {ONE: {"cpu": 5.0}, again: {"cpu": 0.5}, OTHER: {"cpu": 1.0}}
    assert counters.forget({ONE}) == [KEY]
    assert counters.forget({ONE}) == []


def total(*readings):
    counters = JobGroupCounters()
    counters.set_replicas([(KEY, ONE)])
    for reading in readings:
        counters.update(KEY, 0, reading)
    totals = {ONE: {"cpu": 0.0}}
    counters.add(totals)
    return round(totals[ONE]["cpu"], 3)


def test_out_of_order_readings_of_a_group_do_not_count_cpu_time_twice():
    late = used(1.2, began=1, ended=4)
    assert total(used(1.3, began=2, ended=3), late) == 1.3
    assert total(used(1.0, began=1, ended=2), used(1.3, began=5, ended=6), used(1.2, began=3, ended=4)) == 1.3
    assert total(used(1.3, began=1, ended=2), used(0.2, began=3, ended=4)) == 1.5, "the group was made again"


def test_cpu_time_of_the_tasks_is_monotonic_when_the_extern_step_is_read_after_the_job():
    assert total(used(2.0, 0.5, 1, 2), used(2.0, 0.6, 3, 4)) == 1.5
    assert total(used(2.0, 0.5, 1, 2), used(2.0, 0.6, 3, 4), used(3.1, 0.6, 5, 6)) == 2.5


def test_the_group_of_the_job_is_read_at_the_end_of_a_process():
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as child:
        stat = process(child).stat
        member = Member(owner=ONE, source=MembershipSource.SLURM, groups=dict(KEY), job_groups=dict(KEY))
        watch = EndWatch(Reader())
        watch.watch([Process(stat, member)])
        child.kill()
        (final,) = wait_until(watch.drain, "the last reading")
    usage = final.job_usage
    assert usage is not None
    assert (final.job_groups, usage.whole.cpu_seconds, usage.extern.cpu_seconds) == (KEY, 1.5, 1.5)
