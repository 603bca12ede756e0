"""Tests of events about the states of GPUs, and of the jobs that the events name."""

import pytest
from tests.support.nvml import Call
from tests.support.waiting import SECONDS, wait_until
from tests.unit.collect.gpus import ALL, TICK_MS, Bench, member

from jobmeter.testing.collector import NOW_MS

NEWER = "580.10.02"


@pytest.fixture
def bench(driver):
    return Bench(driver)


def test_events_name_the_device_its_change_and_its_jobs(bench):
    bench.by_pid[7] = member("j")
    bench.devices[3].run((7, 1))
    bench.look()
    assert bench.events() == []
    bench.devices[3].fail(15)
    bench.devices[5].fail(16)
    bench.look()
    bench.look()
    assert bench.events() == [("GpuLost", "j", "device gpu3"), ("GpuLost", "", "device gpu5")]
    bench.devices[3].answer()
    bench.measured_within([0, 1, 2, 3, 4, 6, 7])
    assert bench.events() == [("GpuBack", "j", "device gpu3")]


def test_the_text_of_an_event_has_the_reason_and_what_to_do(bench):
    bench.look()
    bench.devices[3].fail(15)
    bench.look()
    (event,) = bench.collector.states.take_records(0).events
    assert event.message.startswith("gpu3, NVIDIA H200, cannot be read (GPU is lost). ")
    assert event.level == "error"
    bench.devices[3].answer()
    bench.measured_within(ALL)
    (event,) = bench.collector.states.take_records(0).events
    assert event.message.startswith("gpu3 is measured again, after ")
    assert event.level == "info"


def test_a_device_that_blocks_and_one_that_may_not_be_opened_are_events(driver):
    bench = Bench(driver, patience=SECONDS)
    driver.devices[2].fail(4, Call.HANDLE)
    assert bench.devices_of("gpu.power") == [0, 1, 3, 4, 5, 6, 7]
    assert bench.events() == [("GpuNotPermitted", "", "device gpu2")]
    driver.devices[3].block(1, Call.POWER)
    bench.wait_at_most(0.05)
    wait_until(
        lambda: bench.look() and [one.index for one in bench.collector.devices if one.busy] == [3],
        "device 3 alone blocks",
    )
    assert bench.events() == [], "it may be slow"
    bench.clock.seconds += 11
    bench.look()
    assert bench.events() == [("DeviceHangs", "", "device gpu3")]


def test_a_mismatch_is_one_event_of_the_node(bench):
    bench.look()
    bench.driver.load_driver(NEWER)
    for one in bench.devices:
        one.fail(9)
    for _ in range(8):
        bench.look()
    assert bench.events() == [("DriverMismatch", "", "")]
    bench.driver.install(NEWER)
    for one in bench.devices:
        one.answer()
    bench.measured_within(ALL)
    assert {reason for reason, *_ in bench.events()} == {"GpuBack"}


def test_a_run_makes_no_event_of_the_node(driver):
    bench = Bench(driver, alone=True)
    bench.by_pid[7] = member("j")
    driver.devices[3].run((7, 1))
    bench.look()
    driver.devices[3].fail(15)
    driver.devices[5].fail(15)
    bench.look()
    assert bench.events() == [("GpuLost", "j", "device gpu3")]


def test_a_lost_device_is_the_jobs_until_its_processes_end(bench):
    bench.by_pid[7] = member("j")
    bench.devices[3].run((7, 1))
    bench.look(NOW_MS)
    bench.devices[3].fail(15)
    assert ("gpu.state", "gpu3", "j", "worker-0") in bench.look(NOW_MS + TICK_MS)
    assert [one[4] for one in bench.allocations()] == [None]
    del bench.by_pid[7]
    assert ("gpu.state", "gpu3", "", "") in bench.look(NOW_MS + 2 * TICK_MS)
    assert [one[4] for one in bench.allocations()] == [NOW_MS + 2 * TICK_MS]


def test_a_run_that_may_open_some_devices_has_those(driver):
    """Slurm's ConstrainDevices: the count is 8, and CUDA numbers the permitted devices from 0."""
    for number in (0, 1, 2, 4, 6, 7):
        driver.devices[number].fail(4, Call.HANDLE)
    bench = Bench(driver, alone=True)
    bench.by_pid[7] = member("j", devices=(("CUDA_VISIBLE_DEVICES", "1,0"),), local_rank=0, process_rank=12)
    look = bench.look()
    assert {key[1] for key in look if key[0] == "gpu.power"} == {"gpu3", "gpu5"}
    assert {key[2] for key in look} == {"j"}
    assert sorted((one[2], one[5]) for one in bench.allocations()) == [("gpu3", None), ("gpu5", 12)]
