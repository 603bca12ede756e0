"""Tests of job ends that take Slurm a minute, beside its accounting, for ``make test-clusters``."""

import os

import pytest

from tests.e2e.test_slurm import same_as_slurm, server, slurm, wait_for_state, watching
from tests.support.waiting import wait_until

__all__ = ["server", "slurm", "watching"]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("slurm"),
    pytest.mark.skipif("JOBMETER_CLUSTERS" not in os.environ, reason="too slow for CI: make test-clusters"),
]


@pytest.mark.usefixtures("watching")
def test_a_time_limit_and_a_node_that_fails_are_reported_as_slurm_has_them(slurm, server):
    limited = slurm.submit("sleep 600", "--time=1", f"--nodelist={slurm.nodes[0]}")
    lost = slurm.submit("exec sleep 90", "--no-requeue", f"--nodelist={slurm.nodes[1]}")
    wait_for_state(server, limited, "Running")
    wait_for_state(server, lost, "Running")
    slurm.fail_node()
    try:
        wait_until(lambda: slurm.accounts(lost)["State"] == "NODE_FAIL", "the failure of the node", 120)
    finally:
        slurm.restore_node()
    found = same_as_slurm(server, slurm, lost)
    assert found["job"]["error"] == "NODE_FAIL: a node that it ran on failed"
    wait_until(lambda: slurm.accounts(limited)["State"] == "TIMEOUT", "the limit of time", 180)
    found = same_as_slurm(server, slurm, limited)
    assert found["job"]["error"] == "TIMEOUT: it exceeded its time limit of 1 min"
