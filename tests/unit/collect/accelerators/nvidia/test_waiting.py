"""Tests of NVML calls that block or answer late, while the other devices are measured."""

from threading import Thread

import pytest
from tests.support.nvml import Call, LibraryCall
from tests.support.waiting import SECONDS, wait_until
from tests.unit.collect.gpus import ALL, HEALTHY, OPENING, Bench, member, plant_kernel_list

from jobmeter.collect.accelerators.nvidia.readings import Reading
from jobmeter.model.device import DeviceState
from jobmeter.model.time import MINUTE

BLOCKING = sorted(set(Call) - {Call.MEMORY, Call.PROCESS_LIST_V2, Call.MPS_LIST_V2, Call.EVENT_TYPES, Call.REGISTER})
"""Calls that may block a collection, without the calls of old drivers and of the event thread."""


@pytest.fixture
def bench(driver):
    return Bench(driver)


def is_profiled(bench, numbers):
    """Return True if a collection has GPM, power and throttle values of exactly these devices."""
    look = bench.look(bench.now_ms + MINUTE)
    metrics = ("gpu.power", "gpu.sm.active", "gpu.ecc.corrected", "gpu.process.utilization")
    return all(sorted(key[1] for key in look if key[0] == one) == [f"gpu{n}" for n in numbers] for one in metrics)


@pytest.mark.parametrize("call", BLOCKING, ids=lambda call: call.name)
def test_a_call_that_blocks_holds_up_no_other_device(driver, call):
    bench = Bench(driver, patience=0.3)
    bench.by_pid[7] = member("j")
    for one in driver.devices:
        one.run((7, 1))
        one.account(on=True)
    bench.look()
    bench.members.end(50, member("j"))  # the collector looks up how the process uses each device
    if call in {*OPENING, Call.GPM_SUPPORT}:
        driver.devices[3].fail(15)
        bench.look()
        driver.devices[3].fail(0)
    driver.devices[3].block(1, call)
    for _ in range(2):
        wait_until(lambda: is_profiled(bench, HEALTHY), "the others go on")
    bench.clock.seconds += 30
    wait_until(lambda: is_profiled(bench, HEALTHY), "the others go on")
    assert bench.states()[3] is DeviceState.HANGS
    assert driver.calls(LibraryCall.SHUTDOWN) == 0
    driver.unblock()
    wait_until(lambda: is_profiled(bench, ALL), "the call returns")
    wait_until(lambda: bench.look() and bench.states() == [DeviceState.MEASURED] * 8, "it is measured")
    assert driver.misuse == 0


def test_a_device_that_always_answers_late_is_reported_as_hanging(driver):
    """Each call returns after the deadline, and the state of the device must show that."""
    bench = Bench(driver, patience=SECONDS)
    bench.look()
    found = []
    for _ in range(3):
        driver.devices[3].block(1, Call.POWER)
        bench.wait_at_most(0.05)
        bench.look()
        found.append(bench.states()[3])
        driver.devices[3].block(0, Call.POWER)
        wait_until(lambda: not bench.collector.devices[3].busy, "the call returns")
        bench.clock.seconds += 6
    assert found == [DeviceState.MEASURED, DeviceState.MEASURED, DeviceState.HANGS]
    bench.wait_at_most(SECONDS)
    bench.look()
    assert bench.states()[3] is DeviceState.MEASURED


def test_devices_that_all_block_cost_one_wait(driver):
    bench = Bench(driver, patience=0.3)
    bench.look()
    for one in driver.devices:
        one.block(1)
    assert bench.look() == {}
    assert bench.devices_of("gpu.power") == []
    driver.unblock()
    wait_until(lambda: bench.devices_of("gpu.power") == ALL, "the calls return")


def test_an_opening_that_blocks_is_waited_for_once_and_shown(driver, tmp_path):
    plant_kernel_list(tmp_path / "proc")
    bench = Bench(driver, proc=tmp_path / "proc", patience=0.2)
    driver.block(1)
    for _ in range(3):
        assert bench.look() == {}
    bench.clock.seconds += 31
    look = bench.look()
    assert set(look.values()) == {float(DeviceState.HANGS.code)}
    assert len(look) == 8
    driver.block(0)
    wait_until(lambda: bench.devices_of("gpu.power") == ALL, "it is open")
    assert driver.calls(LibraryCall.INIT) == 1


def test_the_library_is_not_closed_under_a_call_of_another_thread(bench):
    """A node's checks read devices beside the collector: unloading the library would end the process."""
    bench.look()
    found: list[object] = []
    one = bench.collector.devices[0]
    bench.devices[0].block(1, Call.REPLAYS)
    check = Thread(target=lambda: found.append(one.read(Reading.PCIE_REPLAYS)), daemon=True)
    check.start()
    wait_until(lambda: bench.devices[0].calls(Call.REPLAYS) == 2, "the check is in its call")
    for device in bench.devices:
        device.fail(1, Call.UTILIZATION)
    for _ in range(5):
        assert bench.devices_of("gpu.power") == []
    assert bench.driver.calls(LibraryCall.SHUTDOWN) == 0
    bench.driver.unblock()
    check.join(SECONDS)
    assert found == [[3]]
    for device in bench.devices:
        device.answer()
    bench.measured_within(ALL)
