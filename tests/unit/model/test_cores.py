"""Tests of the cores of a process: its affinity, and the quotas of its cgroups."""

import os

import pytest

from jobmeter.model.cores import count_cores

CORES = len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("quotas", "cores"),
    [
        ({}, CORES),
        ({"a/b": "max 100000"}, CORES),
        ({"a/b": "100000 100000"}, 1),
        ({"a": "150000 100000", "a/b": "max 100000"}, 1),
        ({"": "50000 100000"}, 1),
        ({"a/b": "6400000 100000"}, CORES),
        ({"other": "100000 100000"}, CORES),
    ],
)
def test_the_lowest_quota_on_the_way_up_limits_the_cores(tmp_path, quotas, cores):
    own = tmp_path / "proc/self/cgroup"
    own.parent.mkdir(parents=True)
    own.write_text("0::/a/b\n")
    for group, text in quotas.items():
        folder = tmp_path / "sys/fs/cgroup" / group
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "cpu.max").write_text(text)
    assert count_cores(tmp_path) == cores


def test_without_control_groups_the_affinity_counts(tmp_path):
    assert count_cores(tmp_path) == CORES
