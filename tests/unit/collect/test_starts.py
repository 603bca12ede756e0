"""Tests of a counter's zero at the start of a replica that began while the agent ran: recorded trees, fixed clock."""

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.collect.test_jobs import PLACE, SLURM
from tests.unit.collect.trees import HOST, V1, plant, plant_process

from jobmeter.collect.base import Owner
from jobmeter.collect.cgroup.paths import Hierarchies
from jobmeter.collect.cgroup.reader import GroupReader
from jobmeter.collect.discover.classify import NodeClassifier
from jobmeter.collect.discover.table import ProcessTable
from jobmeter.collect.incidents import IncidentWatch
from jobmeter.collect.jobs import COUNTERS, JobsCollector
from jobmeter.collect.process.count import Ended
from jobmeter.collect.process.stat import Key, ProcessIo
from jobmeter.collect.starts import Starts

EPOCH_MS = 1_795_000_000_000
"""The start of the machine."""
GROUP = "sys/fs/cgroup/cpuacct/slurm_n1/uid_65534/job_21/step_0/task_2/cpuacct.usage"


class Node:
    """Recorded machine, an agent on it, and its clock: milliseconds since the machine started."""

    def __init__(self, root, *trees, at=10_000):
        self.root = plant(root, HOST, *trees)
        self.at = at
        self.agent()

    def agent(self):
        proc = f"{self.root}/proc"
        self.collector = JobsCollector(
            PLACE,
            ProcessTable(NodeClassifier("n1", proc), proc),
            GroupReader(Hierarchies(proc, str(self.root)), f"{self.root}/sys"),
            proc,
            100,
            self.root,
            starts=Starts(lambda ms: EPOCH_MS + ms, lambda: self.at * 1_000_000, 100, 2),
        )

    def look(self, at):
        self.at = at
        return self.collector.collect(EPOCH_MS + at)

    def points(self, at, metric="cpu.time"):
        return [(s.time_ms - EPOCH_MS, s.value) for s in self.look(at) if s.series.metric == metric]

    def process(self, pid, started, seconds, parent=1, groups="0::/\n", **more):
        """Plant a process that started in the clock tick, 10 ms, that ends at that time."""
        plant_process(
            self.root, pid, parent, start=started // 10 - 1, ticks=round(seconds * 100), groups=groups, **more
        )


@pytest.fixture
def node(tmp_path):
    return Node(tmp_path)


def test_a_replica_started_between_two_scans_was_zero_at_its_start(node):
    assert node.points(11_000) == []
    node.process(100, 11_420, 0.5, JOBMETER_JOB_ID="j", io=(300, 40))
    samples = node.look(12_000)
    zeros = [sample for sample in samples if sample.time_ms == EPOCH_MS + 11_420]
    assert {(sample.series.metric, sample.value) for sample in zeros} == {
        ("cpu.time", 0.0),
        ("disk.read", 0.0),
        ("disk.write", 0.0),
        ("io.read", 0.0),
        ("io.write", 0.0),
    }
    assert samples[: len(zeros)] == zeros, "a zero comes before what was read"
    assert node.points(13_000) == [(13_000, 0.5)]


def test_a_group_stood_at_zero_when_its_first_process_started(tmp_path):
    node = Node(tmp_path, V1)
    node.look(11_000)
    (tmp_path / GROUP).write_text("900000000\n")
    node.process(100, 11_300, 0.1, groups=SLURM, SLURM_JOB_ID="21", SLURM_PROCID="2")
    samples = node.look(12_000)
    watch = IncidentWatch()
    watch.watch(samples)
    assert [one.reason for one in watch.take_records(EPOCH_MS).events] == ["OOMKilled"]
    zeros = {sample.series.metric for sample in samples if sample.time_ms == EPOCH_MS + 11_300}
    assert {"cpu.time", "memory.oom.kills", "disk.read"} <= zeros <= COUNTERS


def test_a_group_that_was_there_before_its_process_has_no_zero(tmp_path):
    node = Node(tmp_path, V1)
    node.look(11_000)
    # Two cores cannot use as much in two seconds, the time since the reading before the last.
    (tmp_path / GROUP).write_text("12500000000\n")
    node.process(100, 11_300, 0.1, groups=SLURM, SLURM_JOB_ID="21", SLURM_PROCID="2")
    assert node.points(12_000) == [(12_000, 12.5)]


def test_a_replica_older_than_the_agent_has_no_zero(node):
    node.process(100, 9_000, 0.5, JOBMETER_JOB_ID="j")
    assert node.points(11_000) == [(11_000, 0.5)]
    assert node.points(12_000) == [(12_000, 0.5)]


def test_a_replica_started_between_the_agent_and_its_first_scan_has_a_zero(node):
    node.process(100, 10_500, 0.5, JOBMETER_JOB_ID="j")
    assert node.points(11_000) == [(10_500, 0.0), (11_000, 0.5)]


def test_a_restart_of_the_agent_sends_no_zero_again(node):
    node.look(11_000)
    node.process(100, 11_500, 0.5, JOBMETER_JOB_ID="j")
    assert len(node.points(12_000)) == 2
    node.agent()
    node.process(101, 12_500, 0.25, 100, JOBMETER_JOB_ID="j")
    assert node.points(13_000) == [(13_000, 0.75)]
    assert len(node.points(14_000)) == 1


def test_a_process_that_joined_late_has_no_zero(node):
    """The process had no job for a while: the job's part of its usage is unknown."""
    node.look(11_000)
    node.process(100, 11_500, 0.5)
    for at in (12_000, 13_000, 14_000):
        assert node.points(at) == []
    # This process started before the earlier readings and has a job only now.
    node.process(101, 11_500, 0.5, JOBMETER_JOB_ID="j")
    assert node.points(15_000) == [(15_000, 0.5)]


def test_a_copy_of_its_parent_at_the_first_look_has_one(node):
    node.look(11_000)
    node.process(100, 11_990, 0.0)
    assert node.points(12_000) == []
    node.process(100, 11_990, 0.5, JOBMETER_JOB_ID="j")
    assert node.points(13_000) == [(11_990, 0.0), (13_000, 0.5)]


def test_a_command_that_ended_before_the_first_look_has_one(node):
    node.at = 10_600
    node.collector.note_end(Ended(Key(100, 1_009), Owner("j", "worker-0"), 0.5, 1e6, ProcessIo(10.0, 20.0, 30.0, 40.0)))
    assert node.points(10_600) == [(10_100, 0.0), (10_600, 0.5)]


def test_no_zero_is_later_than_the_first_reading(node):
    node.process(100, 12_000, 0.5, JOBMETER_JOB_ID="j")
    assert node.points(12_000) == [(12_000, 0.5)]


def test_a_reading_right_after_the_start_waits_for_the_next_look(node):
    node.look(11_000)
    node.process(100, 11_980, 0.02, JOBMETER_JOB_ID="j")
    assert node.points(12_000) == [(11_980, 0.0)]
    node.process(100, 11_980, 0.5, JOBMETER_JOB_ID="j")
    assert node.points(13_000) == [(13_000, 0.5)]


@given(st.lists(st.tuples(st.integers(250, 999), st.floats(0, 1)), min_size=1, max_size=6), st.randoms())
def test_the_increases_add_up_to_the_last_reading(tmp_path_factory, steps, chance: random.Random):
    """The sum holds for any times of readings and any growth of the tree, if it began while the agent ran."""
    node = Node(tmp_path_factory.mktemp("node"))
    at, used = node.at + chance.randrange(1, 2_000), 0.0
    node.look(at)
    started = at + 10
    points = []
    for number, (pause, share) in enumerate(steps):
        at += 20 + pause
        node.process(100 + number, started if not number else at - 10, share * pause / 1000, 100, JOBMETER_JOB_ID="j")
        used += round(share * pause / 10) / 100
        points += node.points(at)
    assert points[0] == (started // 10 * 10, 0.0)
    assert [time for time, _ in points] == sorted({time for time, _ in points})
    assert sum(after - before for (_, before), (_, after) in pairwise(points)) == pytest.approx(points[-1][1])
    assert points[-1][1] == pytest.approx(used, abs=0.011 * len(steps))
