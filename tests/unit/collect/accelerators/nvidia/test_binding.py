"""Tests of faults of a GPU or of the driver's library: each device state, with the real binding over a fake library."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.nvml import VERSION, Call, LibraryCall
from tests.unit.collect.gpus import ALL, HEALTHY, OPENING, Bench, member, plant_kernel_list

from jobmeter.model.device import DeviceState
from jobmeter.model.time import MINUTE

NEWER = "580.10.02"
STATE_OF = {
    4: DeviceState.NO_PERMISSION,
    17: DeviceState.NO_PERMISSION,
    15: DeviceState.LOST,
    16: DeviceState.RESET_REQUIRED,
    28: DeviceState.LOST,
    10: DeviceState.HANGS,
    11: DeviceState.LOST,
    19: DeviceState.LOST,
    999: DeviceState.LOST,
}
"""The state of a device that cannot be opened, by the code that nvml.h has for it."""


@pytest.fixture
def bench(driver):
    return Bench(driver)


def assert_healthy(bench, look, numbers=HEALTHY):
    """Assert that exactly these devices have every kind of value, including GPM and process values."""
    for metric in ("gpu.utilization", "gpu.power", "gpu.memory.usage", "gpu.throttle.power"):
        assert sorted(key[1] for key in look if key[0] == metric) == [f"gpu{number}" for number in numbers], metric
    assert bench.driver.misuse == 0


def assert_profiled(look, numbers=HEALTHY):
    assert sorted(key[1] for key in look if key[0] == "gpu.sm.active") == [f"gpu{number}" for number in numbers]


@pytest.mark.parametrize("code", sorted(STATE_OF))
def test_a_device_that_cannot_be_opened_takes_no_other_along(bench, code):
    bench.devices[3].fail(code, Call.HANDLE)
    bench.look()
    look = bench.look()
    assert_healthy(bench, look)
    assert_profiled(look)
    assert bench.states()[3] is STATE_OF[code]
    assert look["gpu.state", "gpu3", "", ""] == STATE_OF[code].code
    assert {look["gpu.state", f"gpu{number}", "", ""] for number in HEALTHY} == {0}
    bench.devices[3].answer()
    bench.measured_within(ALL)
    assert bench.states() == [DeviceState.MEASURED] * 8


@pytest.mark.parametrize("code", [15, 16, 28])
def test_a_device_that_is_lost_later_breaks_nothing_of_the_others(bench, code):
    """A single lost device causes no shutdown: every collection still has GPM values and shares of processes."""
    bench.by_pid |= {100 + number: member("j", f"worker-{number}") for number in range(8)}
    for number, one in enumerate(bench.devices):
        one.run((100 + number, 2**30))
    bench.look()
    bench.devices[3].fail(code)
    for _ in range(30):
        for number, one in enumerate(bench.devices):
            one.work(**{f"p{100 + number}": 50})
        look = bench.look()
        assert_healthy(bench, look)
        assert_profiled(look)
        shares = {key[3]: value for key, value in look.items() if key[0] == "gpu.process.utilization"}
        assert shares == {f"worker-{number}": 0.5 for number in HEALTHY}
        assert look["gpu.state", "gpu3", "j", "worker-3"] == STATE_OF[code].code, "it is still the job's"
    assert bench.driver.calls(LibraryCall.INIT) == 1
    assert bench.driver.calls(LibraryCall.SHUTDOWN) == 0
    assert bench.devices[3].calls(Call.HANDLE) < 15, "it is looked for ever more rarely"
    assert bench.driver.samples == 7, "the lost one's GPM sample was given back"
    bench.devices[3].answer()
    bench.measured_within(ALL)
    assert_profiled(bench.look(), ALL)


def test_a_device_that_is_lost_in_the_middle_of_a_look_keeps_what_it_gave(bench):
    bench.devices[3].fail(15, Call.TEMPERATURE)
    look = bench.look()
    assert ("gpu.power", "gpu3", "", "") in look
    assert ("gpu.temperature", "gpu3", "", "") not in look
    assert bench.states()[3] is DeviceState.LOST


@pytest.mark.parametrize(
    ("code", "state"), [(4, DeviceState.NO_PERMISSION), (10, DeviceState.HANGS), (999, DeviceState.LOST)]
)
def test_a_device_of_which_every_call_fails_is_not_silent(bench, code, state):
    bench.look()
    bench.devices[3].fail(code)
    assert_healthy(bench, bench.look())
    assert bench.states()[3] is STATE_OF[code]
    bench.devices[3].answer()
    bench.measured_within(ALL)


@pytest.mark.parametrize("code", [15, 16, 4])
def test_the_only_device_is_looked_for_anew_but_not_at_every_look(make_driver, code):
    """Without another measured device the collector opens the library again: a reset device may need that."""
    driver = make_driver(1)
    driver.install()
    bench = Bench(driver)
    bench.look()
    driver.devices[0].fail(code)
    driver.devices[0].fail(code, Call.HANDLE)
    for _ in range(60):
        assert bench.devices_of("gpu.power") == []
    assert 3 <= driver.calls(LibraryCall.INIT) <= 20, "ten minutes"
    assert driver.calls(LibraryCall.INIT) == driver.calls(LibraryCall.SHUTDOWN) + 1
    driver.devices[0].answer()
    bench.measured_within([0])
    assert driver.misuse == 0


def test_a_library_that_comes_later_is_found(make_driver):
    """The folder is missing at first too: the dynamic linker would remember that for the life of the process."""
    driver = make_driver(8)
    bench = Bench(driver)
    for _ in range(20):
        assert bench.look() == {}
    assert bench.problem is DeviceState.LIBRARY_MISSING
    driver.install()
    bench.measured_within(ALL)
    assert_profiled(bench.look(), ALL)
    assert bench.problem is None


def test_a_library_that_is_being_installed_is_looked_at_again(make_driver):
    driver = make_driver(8)
    driver.install()
    library = driver.folder / "libnvidia-ml.so.1"
    whole = library.read_bytes()
    library.write_bytes(whole[: len(whole) // 3])
    bench = Bench(driver)
    assert bench.look() == {}
    library.unlink()
    library.write_bytes(whole)
    bench.measured_within(ALL)


@pytest.mark.parametrize("code", [0, 1, 4, 9, 10, 15, 23, 999])
def test_a_library_that_cannot_be_opened_may_be_later(bench, code):
    if code:
        bench.driver.fail(code)
    else:
        bench.driver.load_driver("")
    for _ in range(10):
        assert bench.look() == {}
    assert bench.nvml.problem
    assert bench.nvml.problem.code == (code or 9)
    bench.driver.fail(0)
    bench.driver.load_driver(VERSION)
    bench.measured_within(ALL)


def test_a_count_that_fails_leaves_nothing_open(bench):
    bench.driver.fail(999, LibraryCall.COUNT)
    for _ in range(5):
        assert bench.look() == {}
    assert bench.driver.calls(LibraryCall.INIT) == bench.driver.calls(LibraryCall.SHUTDOWN)
    bench.driver.fail(0, LibraryCall.COUNT)
    bench.measured_within(ALL)


@pytest.mark.parametrize("open_before", [True, False])
@pytest.mark.parametrize("kernel_first", [True, False])
def test_a_driver_that_is_replaced_is_measured_again_without_a_restart(bench, open_before, kernel_first):
    """The old library stays in memory under its name, so the collector must load the new file explicitly."""
    if open_before:
        bench.look()
    steps = [lambda: bench.driver.load_driver(NEWER), lambda: bench.driver.install(NEWER)]
    steps[0 if kernel_first else 1]()
    for one in bench.devices:
        one.fail(18)
    for _ in range(4):
        bench.look()
    if kernel_first or open_before:
        assert bench.problem is DeviceState.LIBRARY_MISMATCH
    for _ in range(7):
        assert bench.devices_of("gpu.power") == []
    if open_before:
        assert set(bench.states()) == {DeviceState.LIBRARY_MISMATCH}
    steps[1 if kernel_first else 0]()
    for one in bench.devices:
        one.answer()
    bench.measured_within(ALL)
    assert_profiled(bench.look(), ALL)
    assert bench.driver.misuse == 0


def test_a_driver_that_is_replaced_while_nothing_is_measured(bench):
    """Only the library reports the mismatch, because no device was ever opened."""
    bench.driver.load_driver(NEWER)
    for _ in range(5):
        assert bench.look() == {}
    assert bench.problem is DeviceState.LIBRARY_MISMATCH
    bench.driver.install(NEWER)
    bench.measured_within(ALL)


def test_a_driver_that_is_unloaded_is_the_state_of_all_devices(bench):
    bench.look()
    bench.driver.load_driver("")
    for one in bench.devices:
        one.fail(9)
    _, _, look = [bench.look() for _ in range(3)]
    assert bench.states() == [DeviceState.DRIVER_NOT_LOADED] * 8
    assert {value for (metric, *_), value in look.items() if metric == "gpu.state"} == {4}
    assert {(reason, subject) for reason, _, subject in bench.events()} == {
        ("GpuLost", f"device gpu{number}") for number in ALL
    }
    bench.driver.load_driver(VERSION)
    for one in bench.devices:
        one.answer()
    bench.measured_within(ALL)
    assert {reason for reason, *_ in bench.events()} == {"GpuBack"}


@pytest.mark.parametrize(
    ("fault", "state"),
    [
        (lambda driver: driver.load_driver(NEWER), DeviceState.LIBRARY_MISMATCH),
        (lambda driver: (driver.folder / "libnvidia-ml.so.1").unlink(), DeviceState.LIBRARY_MISSING),
        (lambda driver: driver.fail(4), DeviceState.NO_PERMISSION),
        (lambda driver: driver.fail(16), DeviceState.RESET_REQUIRED),
        (lambda driver: driver.fail(9), DeviceState.DRIVER_NOT_LOADED),
    ],
)
def test_gpus_that_only_the_kernel_shows_are_the_jobs_all_the_same(driver, tmp_path, fault, state):
    plant_kernel_list(tmp_path / "proc")
    fault(driver)
    bench = Bench(driver, proc=tmp_path / "proc")
    bench.by_pid[7] = member("j", devices=(("SLURM_JOB_GPUS", "3"),))
    look = bench.look()
    assert {key[0] for key in look} == {"gpu.state"}
    assert set(look.values()) == {float(state.code)}
    assert ("gpu.state", "gpu3", "j", "worker-0") in look
    assert bench.collector.devices[3].uuid == driver.devices[3].uuid
    assert bench.collector.devices[3].name == "NVIDIA H100 80GB HBM3"
    assert bench.collector.devices[3].minor == 3
    assert bench.collector.devices[3].pci == "0000:1b:00"
    driver.fail(0)
    driver.load_driver(VERSION)
    driver.install()
    assert ("gpu.power", "gpu3", "j", "worker-0") in bench.measured_within(ALL)


def test_a_gpu_has_the_address_by_which_the_kernel_names_it(bench):
    bench.devices[2].set(pci="00000000:9B:00.0")
    bench.devices[5].fail(3, Call.PCI)
    bench.look()
    found = [one.pci for one in bench.collector.devices]
    assert found[:3] == ["0000:1b:00", "0000:1c:00", "0000:9b:00"]
    assert found[5] == "", "an old driver does not say"
    assert bench.devices_of("gpu.power") == ALL


def test_a_uuid_that_the_kernel_does_not_know_yet_is_none(driver, tmp_path):
    plant_kernel_list(tmp_path / "proc", uuid="GPU-????????-????-????-????-????????????")
    driver.fail(4)
    bench = Bench(driver, proc=tmp_path / "proc")
    bench.look()
    assert {one.uuid for one in bench.collector.devices} == {""}


def test_a_session_that_another_part_of_the_process_ended_is_opened_again(bench):
    bench.look()
    for one in bench.devices:
        one.fail(1)
    bench.look()
    for one in bench.devices:
        one.answer()
    assert_healthy(bench, bench.look(), ALL)
    assert_profiled(bench.look(), ALL)


@pytest.mark.parametrize("code", [1, 9, 18])
def test_a_library_that_opens_and_never_answers_is_not_opened_at_every_look(bench, code):
    for one in bench.devices:
        one.fail(code, *(call for call in Call if call not in {Call.EVERY, *OPENING}))
    for _ in range(60):
        assert bench.devices_of("gpu.power") == []
    assert bench.driver.calls(LibraryCall.INIT) <= 20, "ten minutes"
    for one in bench.devices:
        one.answer()
    bench.measured_within(ALL)


def test_a_gpu_that_is_not_there_any_more(bench):
    """The reloaded driver has one GPU fewer: no job keeps the last number."""
    bench.by_pid[7] = member("j", devices=(("SLURM_JOB_GPUS", "7"),))
    bench.look()
    bench.allocations()
    for one in bench.devices:
        one.fail(9)
    bench.look()
    bench.driver.set_count(7)
    for one in bench.devices:
        one.answer()
    bench.measured_within(ALL[:7])
    assert ("GpuLost", "j", "device gpu7") in bench.events()
    assert [(one[0], one[2], one[4] is not None) for one in bench.allocations()] == [("j", "gpu7", True)]


CODES = st.sampled_from([2, 3, 4, 6, 7, 10, 11, 13, 15, 16, 17, 19, 20, 21, 27, 28, 999])
FAULTS = st.dictionaries(st.tuples(st.integers(0, 7), st.sampled_from(list(Call))), CODES, max_size=6)
EXPECTED = {
    "gpu.utilization": 0.83, "gpu.memory.usage": 60 * 2**30, "gpu.power": 431.25, "gpu.temperature": 61,
    "gpu.clock.sm": 1.98e9, "gpu.throttle.power": 2.0, "gpu.sm.active": 0.715, "gpu.encoder.utilization": 0,
    "gpu.ecc.corrected": 2, "gpu.fan": 0.3, "gpu.power.limit": 700,
}  # fmt: skip


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(FAULTS, min_size=1, max_size=4))
def test_whatever_calls_return_a_value_is_right_or_absent(bench, turns):
    """Codes per device and call change between collections: no value is wrong, and none is missing without a fault."""
    touched: set[int] = set()
    for faults in turns:
        for one in bench.devices:
            one.answer()
        for (number, call), code in faults.items():
            bench.devices[number].fail(code, call)
        touched |= {number for number, _ in faults}
        look = bench.look(bench.now_ms + MINUTE)
        reserved = 2**29
        for (metric, device, *_), value in look.items():
            if metric in EXPECTED:
                old = metric == "gpu.memory.usage" and (int(device[3:]), Call.MEMORY_V2) in faults
                assert value == pytest.approx(EXPECTED[metric] + (reserved if old else 0)), (metric, device)
        for number in set(range(8)) - touched:
            assert {metric for metric, device, *_ in look if device == f"gpu{number}"} >= set(EXPECTED) - {
                "gpu.sm.active"
            }
    assert bench.driver.misuse == 0
    for one in bench.devices:
        one.answer()
    bench.measured_within(ALL, minutes=2)
    look = bench.look(bench.now_ms + MINUTE)
    assert {metric for metric, device, *_ in look if device == "gpu0"} >= set(EXPECTED)
    assert bench.driver.samples == 8
