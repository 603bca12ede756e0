"""Tests of releasing the driver on request: no handle stays open, and measuring resumes later."""

from functools import partial
from pathlib import Path
from threading import Thread

import pytest
from tests.support.nvml import Call, LibraryCall
from tests.support.waiting import wait_until
from tests.unit.collect.gpus import TICK_MS, Bench, member

from jobmeter.collect.accelerators.checks import check_accelerators
from jobmeter.collect.accelerators.collector import RELEASE_MS
from jobmeter.collect.call_thread import CallThread
from jobmeter.model.event import DRIVER_RELEASED, Level
from jobmeter.model.task import CheckStatus
from jobmeter.testing.collector import NOW_MS

ALL = [*range(8)]


@pytest.fixture
def bench(driver):
    return Bench(driver)


def is_mapped(bench):
    return str(bench.driver.folder) in Path("/proc/self/maps").read_text()


def reports(bench):
    return [(one.reason, one.level) for one in bench.collector.states.take_records(0).events]


def test_a_released_driver_is_closed_for_a_minute_and_then_measured(bench):
    bench.by_pid[7] = member("j")
    bench.devices[0].run((7, 10))
    bench.look()
    assert is_mapped(bench)
    assert bench.collector.release()
    assert not is_mapped(bench)
    assert bench.driver.samples == 0
    inits = bench.driver.calls(LibraryCall.INIT)
    assert inits == bench.driver.calls(LibraryCall.SHUTDOWN)
    for _ in range(RELEASE_MS // TICK_MS):
        assert bench.look() == {}
        assert bench.collector.released
    assert reports(bench) == [(DRIVER_RELEASED, Level.INFO)]
    assert bench.driver.calls(LibraryCall.INIT) == inits
    assert bench.devices_of("gpu.power") == ALL
    assert bench.devices_of("gpu.sm.active") == ALL
    assert not bench.collector.released
    assert reports(bench) == []
    assert [one[4] for one in bench.allocations()] == [None], "the job still has its device"
    assert bench.driver.misuse == 0


def test_a_request_within_the_time_begins_it_again(bench):
    bench.look()
    for now_ms in (NOW_MS, NOW_MS + RELEASE_MS - 1):
        bench.collector.release()
        assert bench.look(now_ms) == {}
    assert bench.look(NOW_MS + 2 * RELEASE_MS - 2) == {}
    bench.now_ms += 1
    assert bench.devices_of("gpu.power") == ALL


def test_a_driver_that_was_never_opened_can_be_released(make_driver):
    bench = Bench(make_driver(2))
    assert bench.collector.release()
    bench.driver.install()
    assert bench.look() == {}
    bench.now_ms += RELEASE_MS
    assert bench.devices_of("gpu.power") == [0, 1]


def test_other_devices_after_the_release_are_found(bench):
    bench.look()
    bench.collector.release()
    bench.driver.set_count(7)
    bench.driver.devices[6].set(uuid="GPU-another")
    assert bench.look() == {}
    bench.now_ms += RELEASE_MS
    assert bench.devices_of("gpu.power") == [*range(7)]
    assert bench.collector.devices[6].uuid == "GPU-another"


def test_a_call_that_hangs_is_reported_and_the_driver_closed_once_it_returns(driver):
    bench = Bench(driver, patience=0.05)
    wait_until(lambda: bench.look() and bench.devices_of("gpu.power") == ALL, "all devices answer")
    before = driver.devices[3].calls(Call.POWER)
    driver.devices[3].block(1, Call.POWER)
    wait_until(lambda: bench.look() and driver.devices[3].calls(Call.POWER) > before, "a call hangs")
    assert not bench.collector.release()
    assert bench.look() == {}
    assert reports(bench) == [(DRIVER_RELEASED, Level.WARNING)]
    assert is_mapped(bench)
    driver.devices[3].block(0, Call.POWER)
    wait_until(lambda: not bench.collector.devices[3].busy, "the call returns")
    wait_until(lambda: not bench.look() and not is_mapped(bench), "the driver is closed")
    assert driver.misuse == 0


def test_a_release_waits_for_the_collection_in_progress(driver):
    bench = Bench(driver, patience=9.0)
    bench.look()
    driver.devices[3].block(1, Call.POWER)
    looks = []
    collection = Thread(target=lambda: looks.append(bench.look()))
    collection.start()
    wait_until(lambda: bench.collector.devices[3].busy, "a call hangs")
    release = Thread(target=bench.collector.release)
    release.start()
    driver.devices[3].block(0, Call.POWER)
    collection.join()
    release.join()
    assert ("gpu.power", "gpu3", "", "") in looks[0]
    assert not is_mapped(bench)
    assert driver.misuse == 0


def test_a_check_on_request_says_that_the_driver_is_released(bench):
    bench.look()
    bench.collector.release()
    (found,) = check_accelerators(bench.collector, [bench.collector])
    assert (found.status, "released on request" in found.text) == (CheckStatus.UNAVAILABLE, True)


def test_a_thread_that_was_closed_runs_the_next_call():
    calls = CallThread[int]("test")
    for value in range(3):
        assert calls.begin(partial(int, value))
        assert calls.wait(60)
        assert calls.get_result() == value
        calls.close()
