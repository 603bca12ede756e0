"""Tests of driver accounting: processes that start and end between two collections."""

import time

import pytest
from tests.support.nvml import ACCOUNTED, Call
from tests.unit.collect.gpus import Bench, member
from tests.unit.collect.trees import plant_process

from jobmeter.collect.discover.classify import NodeClassifier
from jobmeter.collect.discover.table import ProcessTable

UTILIZATION = "gpu.process.utilization"


@pytest.fixture
def bench(driver):
    found = Bench(driver)
    for device in driver.devices:
        device.account(on=True)
    found.look()
    return found


def shares(look):
    return {(device, job): value for (metric, device, job, _), value in look.items() if metric == UTILIZATION}


def ran(bench, pid=50, seconds=4.0, busy=80, index=0):
    """Record in the driver that a process has used a device since the last collection."""
    bench.devices[index].begin(pid)
    bench.devices[index].end(pid, seconds, busy)


def test_a_process_between_two_collections_counts_with_its_busy_time(bench):
    ran(bench, seconds=4.0, busy=80)
    bench.members.end(50, member("short"))
    look = bench.look()
    assert shares(look) == {("gpu0", "short"): pytest.approx(0.8 * 4 / 10)}
    assert look["gpu.power", "gpu0", "short", "worker-0"] > 0, "the device was the job's"
    assert look["gpu.processes", "gpu0", "short", "worker-0"] == 0
    assert shares(bench.look()) == {}, "it counts once, although its parent does not collect its status"
    bench.members.gone = []
    assert shares(bench.look()) == {}
    assert [(job, device, end - start) for job, _, device, start, end, *_ in bench.allocations() if end] == [
        ("short", "gpu0", 10_000)
    ]


def test_the_shares_of_ended_and_of_living_processes_are_added(bench):
    bench.by_pid[7] = member("j")
    bench.devices[0].run((7, 2**30))
    bench.look()
    bench.devices[0].work(p7=30)
    ran(bench, seconds=5.0, busy=40)
    bench.members.end(50, member("j"))
    assert shares(bench.look()) == {("gpu0", "j"): pytest.approx(0.5)}


def test_shares_of_a_job_whose_living_processes_are_unknown_stay_absent(bench):
    bench.by_pid[7] = member("j")
    bench.devices[0].run((7, 2**30))  # the first reading has no start time
    ran(bench)
    bench.members.end(50, member("j"))
    assert shares(bench.look()) == {}


def test_nothing_is_read_while_accounting_is_off(driver):
    bench = Bench(driver)
    bench.look()
    ran(bench)
    bench.members.end(50, member("short"))
    assert shares(bench.look()) == {}
    assert driver.devices[0].calls(Call.ACCOUNTING_MODE) == 1
    assert driver.devices[0].calls(Call.ACCOUNTING) == 0


def test_no_call_is_made_while_no_process_of_a_job_ends(bench):
    ran(bench)
    bench.look()
    assert bench.devices[0].calls(Call.ACCOUNTING_MODE) == 0


@pytest.mark.parametrize(("code", "call"), [(3, Call.ACCOUNTING_MODE), (4, Call.ACCOUNTING), (6, Call.ACCOUNTING)])
def test_a_device_that_refuses_is_measured_without(bench, code, call):
    bench.devices[0].fail(code, call)
    ran(bench)
    bench.members.end(50, member("short"))
    look = bench.look()
    assert shares(look) == {}
    assert ("gpu.power", "gpu0", "", "") in look


def test_an_earlier_process_with_the_same_number_does_not_count(bench):
    bench.devices[0].begin(50, began=time.time() - 3_600)
    bench.devices[0].end(50, 5.0, 100)
    bench.members.end(50, member("short"))  # it did not use the device
    assert shares(bench.look()) == {}


def test_of_two_processes_with_one_number_the_newer_counts(bench):
    bench.devices[0].begin(50, began=time.time() - 3_600)
    bench.devices[0].end(50, 5.0, 100)
    ran(bench, seconds=1.0, busy=50)
    bench.members.end(50, member("short"))
    assert shares(bench.look()) == {("gpu0", "short"): pytest.approx(0.05)}


def test_a_process_of_an_earlier_collection_does_not_count_twice(bench):
    bench.by_pid[7] = member("j")
    bench.devices[0].run((7, 2**30))
    bench.devices[0].begin(7)
    bench.look()
    bench.devices[0].end(7, 8.0, 100)
    bench.devices[0].run()
    bench.members.end(7, bench.by_pid.pop(7))
    assert shares(bench.look()) == {}


def test_a_driver_that_closes_a_process_late_is_read_in_the_next_collection(bench):
    bench.devices[0].begin(50)
    bench.members.end(50, member("short"))
    assert shares(bench.look()) == {}
    bench.members.gone = []
    bench.devices[0].end(50, 2.0, 100)
    assert shares(bench.look()) == {("gpu0", "short"): pytest.approx(0.2)}
    assert shares(bench.look()) == {}


def test_newer_processes_push_the_oldest_out_of_the_ring(bench):
    ran(bench)
    for pid in range(100, 100 + ACCOUNTED):
        ran(bench, pid, index=0)
    bench.members.end(50, member("short"))
    assert shares(bench.look()) == {}


def test_devices_with_instances_have_no_accounting(bench):
    bench.devices[0].split((1, 0, 3))
    bench.look()
    ran(bench)
    bench.members.end(50, member("short"))
    assert shares(bench.look()) == {}


def test_an_unknown_utilization_gives_the_owner_alone(bench):
    ran(bench, busy=2**32 - 1)
    bench.members.end(50, member("short"))
    look = bench.look()
    assert shares(look) == {}
    assert ("gpu.power", "gpu0", "short", "worker-0") in look


def test_a_job_that_measures_itself_is_left_to_it(bench):
    ran(bench)
    bench.members.end(50, member("short", measured=True))
    assert shares(bench.look()) == {}


def test_the_table_returns_ended_processes(tmp_path):
    plant_process(tmp_path, 7, SLURM_JOB_ID="4000", SLURM_PROCID="0")
    proc = tmp_path / "proc"
    stat = proc / "7/stat"
    table = ProcessTable(NodeClassifier("n1", str(proc)), str(proc))
    table.refresh()
    assert table.list_ended() == []
    before, after = stat.read_text().rsplit(")", 1)
    stat.write_text(f"{before}) Z{after[2:]}")
    table.refresh()
    assert [(one.stat.key.pid, one.member.owner.job) for one in table.list_ended()] == [(7, "4000")]
