"""Tests of full filesystems: a finding of the jobs that use them, and of no other job."""

import numpy as np
import pytest

from jobmeter.diagnose.case import Case, UsedMounts
from jobmeter.diagnose.registry import list_rules
from jobmeter.diagnose.signal import Signal
from jobmeter.diagnose.thresholds import load
from jobmeter.model.job import Job, JobState, JobView, Replica
from jobmeter.model.time import MINUTE, TimeRange

NOW = 1_795_000_000_000
TIMES = np.arange(NOW, NOW + 30 * MINUTE, 10_000)
RULE = next(rule for rule in list_rules() if rule.name == "fs_full")
NUMBERS = load()["fs_full"]


def signal(metric, value, node="n1", part="", replica=""):
    return Signal(metric, TIMES, np.full(len(TIMES), float(value)), replica, node, part=part)


def found(mounts=None, written=None, node="n1"):
    """Return the mounts in the findings of a job on a node with full / and /data.

    ``written`` is its rate of writing.
    """
    view = JobView(
        job=Job(id="j", state=JobState.RUNNING, start=NOW),
        replicas=[Replica(name="w", node="n1", state=JobState.RUNNING, start=NOW)],
        allocations=[],
    )
    case = Case(
        view=view,
        span=TimeRange(NOW, int(TIMES[-1]) + 1),
        now_ms=int(TIMES[-1]) + 1,
        step_ms=10_000,
        means={} if written is None else {"disk.write": [signal("disk.write", written, node, replica="w")]},
        nodes={
            "node.filesystem.size": [signal("node.filesystem.size", 100, part=part) for part in ("/", "/data")],
            "node.filesystem.available": [signal("node.filesystem.available", 1, part=part) for part in ("/", "/data")],
        },
        mounts={} if mounts is None else {"n1": mounts},
    )
    assert RULE.find_facts is not None
    return [one.subject.name for one in RULE.find_facts(RULE, case, NUMBERS)]


BOTH = ["n1:/", "n1:/data"]
SLOW, FAST = 100.0, 10_000.0
"""Rates of writing: in half an hour together less and more than the threshold."""


@pytest.mark.parametrize(
    ("mounts", "written", "wanted"),
    [
        # Its writes were not measured, so no mount can be excluded.
        (None, None, BOTH),
        (None, 0, []),
        (None, SLOW, []),
        (None, FAST, BOTH),
        # It works in one of them, and writes nothing.
        (UsedMounts(worked=frozenset({"/data"})), 0, ["n1:/data"]),
        (UsedMounts(worked=frozenset({"/data"})), None, ["n1:/data"]),
        (UsedMounts(worked=frozenset({"other"})), 0, []),
        # It writes, but the filesystem is unknown, because its files are open only briefly.
        (UsedMounts(worked=frozenset({"other"})), FAST, BOTH),
        # It writes to another filesystem.
        (UsedMounts(worked=frozenset({"/scratch"}), written=frozenset({"/scratch"})), FAST, []),
        (UsedMounts(worked=frozenset({"/"}), written=frozenset({"/scratch"})), FAST, ["n1:/"]),
        (UsedMounts(worked=frozenset({"/scratch"}), written=frozenset({"/data"})), FAST, ["n1:/data"]),
    ],
)
def test_a_mount_counts_for_a_job_that_works_in_it_or_writes_to_it(mounts, written, wanted):
    assert found(mounts, written) == wanted


def test_what_a_replica_writes_on_another_node_does_not_count():
    assert found(written=FAST, node="n2") == BOTH, "of this node nothing was measured"
    assert found(UsedMounts(worked=frozenset({"other"})), written=FAST, node="n2") == []
    assert found(written=FAST, node="") == BOTH, "on whichever node it was"
