"""Tests of GPUs with the real binding over a fake library: units, missing values, owners of devices."""

import re
import shutil
import subprocess
from pathlib import Path

import pynvml
import pytest
from tests.support.nvml import Call, LibraryCall
from tests.support.waiting import wait_until
from tests.unit.collect.gpus import Bench, member

from jobmeter.collect.accelerators.nvidia import device
from jobmeter.collect.accelerators.nvidia.readings import ALL_LINKS
from jobmeter.testing.collector import NOW_MS, CollectorContract


@pytest.fixture
def bench(driver):
    return Bench(driver)


class TestNvidia(CollectorContract):
    @pytest.fixture
    def collector(self, bench):
        bench.by_pid[7] = member("j", process_rank=0)
        bench.devices[1].run((7, 5 * 2**30))
        bench.devices[1].work(p7=60)
        return bench.collector


def test_values_are_in_the_units_of_the_catalogue(bench):
    bench.look()
    values = {metric: value for (metric, device, *_), value in bench.look().items() if device == "gpu0"}
    assert values["gpu.utilization"] == pytest.approx(0.83)
    assert values["gpu.memory.copy.utilization"] == pytest.approx(0.41)
    assert values["gpu.memory.usage"] == 60 * 2**30
    assert values["gpu.memory.limit"] == 139 * 2**30
    assert values["gpu.power"] == pytest.approx(431.25)
    assert values["gpu.energy"] == pytest.approx(5000.123 + 2 * 500)
    assert values["gpu.temperature"] == 61
    assert values["gpu.clock.sm"] == 1.98e9
    assert values["gpu.clock.memory"] == 3.201e9
    assert values["gpu.performance.state"] == 0
    assert values["gpu.throttle.power"] == pytest.approx(2.0)
    assert values["gpu.temperature.memory"] == 74
    assert values["gpu.nvlink.transmit"] == 1024 * 1024
    assert values["gpu.sm.active"] == pytest.approx(0.715)
    assert values["gpu.tensor.active"] == pytest.approx(0.44)
    assert values["gpu.dram.active"] == pytest.approx(0.385)
    assert values["gpu.fp64.active"] == 0
    assert values["gpu.state"] == 0


@pytest.mark.parametrize("code", [2, 3, 13, 25])
def test_what_the_device_does_not_give_is_absent_and_never_zero(bench, code):
    missing = (Call.UTILIZATION, Call.ENERGY, Call.GPM_SAMPLE, Call.FAN, Call.ECC)
    bench.devices[0].fail(code, *missing, Call.PROCESS_LIST, Call.PROCESS_LIST_V2)
    bench.look()
    names = {metric for metric, device, *_ in bench.look(bench.now_ms + 60_000) if device == "gpu0"}
    assert not {"gpu.utilization", "gpu.energy", "gpu.sm.active", "gpu.fan", "gpu.ecc.corrected"} & names
    assert {"gpu.power", "gpu.memory.usage", "gpu.temperature", "gpu.power.limit"} <= names


def test_the_pcie_link_has_what_it_runs_at_and_what_it_could(bench):
    bench.devices[0].set(link=(3, 8))
    look = bench.look()
    link = [look[f"gpu.pcie.{name}", "gpu0", "", ""] for name in ("generation", "width")]
    limits = [look[f"gpu.pcie.{name}.limit", "gpu0", "", ""] for name in ("generation", "width")]
    assert (link, limits) == ([3, 8], [5, 16])
    bench.devices[0].fail(3, Call.MAX_LINK)
    names = {metric for metric, device, *_ in bench.look(bench.now_ms + 60_000) if device == "gpu0"}
    assert "gpu.pcie.replay" in names
    assert not {"gpu.pcie.generation", "gpu.pcie.width", "gpu.pcie.generation.limit"} & names


def test_slow_values_come_once_a_minute(bench):
    assert ("gpu.ecc.corrected", "gpu0", "", "") in bench.look(NOW_MS)
    assert ("gpu.ecc.corrected", "gpu0", "", "") not in bench.look(NOW_MS + 10_000)
    assert ("gpu.ecc.corrected", "gpu0", "", "") in bench.look(NOW_MS + 60_000)


def test_field_values_have_the_type_that_the_library_says(bench):
    bench.devices[0].set_fields({(74, 0): 2**30 * 10**9, (82, 0): 71.5})
    look = bench.look()
    assert look["gpu.throttle.power", "gpu0", "", ""] == pytest.approx(2.0**30)
    assert look["gpu.temperature.memory", "gpu0", "", ""] == 71.5
    assert ("gpu.nvlink.transmit", "gpu0", "", "") not in look


@pytest.mark.parametrize(
    ("fields", "software", "hardware"),
    [
        ({75: 3_000_000_000}, 3.0, None),
        ({75: 3_000_000_000, 269: 1_000_000_000, 270: 0}, 1.0, 0.0),
        ({75: 3_000_000_000, 270: 2_000_000_000}, None, 2.0),
        ({74: 1}, None, None),
    ],
)
def test_old_drivers_have_one_time_of_thermal_limits(bench, fields, software, hardware):
    bench.devices[0].set_fields({(number, 0): value for number, value in fields.items()})
    values = {metric: value for (metric, device, *_), value in bench.look().items() if device == "gpu0"}
    assert values.get("gpu.throttle.thermal.software") == software
    assert values.get("gpu.throttle.thermal.hardware") == hardware


def test_memory_before_the_second_version_of_the_call(bench):
    bench.devices[0].fail(13, Call.MEMORY_V2)
    assert bench.look()["gpu.memory.usage", "gpu0", "", ""] == 60 * 2**30 + 2**29, "with what the driver reserves"


def test_a_passing_error_does_not_count_reserved_memory_as_used(bench):
    bench.devices[0].fail(10, Call.MEMORY_V2)
    assert ("gpu.memory.usage", "gpu0", "", "") not in bench.look()
    bench.devices[0].answer()
    assert bench.look()["gpu.memory.usage", "gpu0", "", ""] == 60 * 2**30


def test_a_performance_state_that_is_none_is_absent(bench):
    bench.devices[0].set(p_state=32, encoder=12)
    look = bench.look()
    assert ("gpu.performance.state", "gpu0", "", "") not in look
    assert look["gpu.encoder.utilization", "gpu0", "", ""] == pytest.approx(0.12)


def test_samples_of_gpm_are_given_back(bench):
    for _ in range(5):
        bench.look()
    assert bench.driver.samples == len(bench.devices), "each device has its last one"
    assert bench.driver.misuse == 0


def test_an_idle_device_is_nobodys(bench):
    assert bench.owners() == {("", "")}


def test_a_device_of_one_job_is_measured_for_it(bench):
    bench.by_pid[7] = member("j", "worker-3", process_rank=12)
    bench.devices[0].run((7, 2**30))
    bench.look(NOW_MS)
    bench.devices[0].work(p7=55)
    look = bench.look()
    assert bench.owners() == {("j", "worker-3")}
    assert look["gpu.process.memory.usage", "gpu0", "j", "worker-3"] == 2**30
    assert look["gpu.process.utilization", "gpu0", "j", "worker-3"] == pytest.approx(0.55)
    assert look["gpu.state", "gpu0", "j", "worker-3"] == 0
    assert bench.allocations() == [("j", "worker-3", "gpu0", NOW_MS, None, 12, "process")]


def test_a_device_of_two_replicas_of_one_job_is_the_jobs(bench):
    bench.by_pid |= {7: member("j", "worker-0"), 8: member("j", "worker-1")}
    bench.devices[0].run((7, 10), (8, 20))
    assert bench.owners() == {("j", "")}
    look = bench.look()
    assert look["gpu.process.memory.usage", "gpu0", "j", "worker-0"] == 10
    assert look["gpu.process.memory.usage", "gpu0", "j", "worker-1"] == 20


@pytest.mark.parametrize("stranger", [None, member("other"), member("run", measured=True)])
def test_a_device_that_is_shared_is_nobodys_and_each_job_has_its_processes(bench, stranger):
    bench.by_pid[7] = member("j")
    if stranger:
        bench.by_pid[8] = stranger
    bench.devices[0].run((7, 10), (8, 20))
    assert bench.owners() == {("", "")}
    look = bench.look()
    assert look["gpu.process.memory.usage", "gpu0", "j", "worker-0"] == 10
    assert (("gpu.process.memory.usage", "gpu0", "other", "worker-0") in look) == (
        stranger is not None and not stranger.measured
    )


def test_processes_are_counted_with_those_of_no_job(bench):
    """A device without a process counts 0; a device that does not list its processes has no count."""
    bench.by_pid |= {7: member("j", devices=(("SLURM_JOB_GPUS", "0,1"),)), 9: member("run", measured=True)}
    bench.devices[0].run((7, 10))
    bench.devices[2].run((7, 10), (8, 20))
    bench.devices[3].run((8, 20), (9, 30))
    bench.devices[4].fail(3, Call.PROCESS_LIST, Call.PROCESS_LIST_V2)
    look = bench.look()
    counts = {key[1:]: value for key, value in look.items() if key[0] == "gpu.processes"}
    assert {key: counts[key] for key in (("gpu0", "j", "worker-0"), ("gpu1", "j", "worker-0"))} == {
        ("gpu0", "j", "worker-0"): 1,
        ("gpu1", "j", "worker-0"): 0,
    }
    assert counts["gpu2", "", ""] == counts["gpu3", "", ""] == 2
    assert "gpu4" not in {device for device, *_ in counts}
    foreign = {key[1]: value for key, value in look.items() if key[0] == "gpu.processes.foreign"}
    assert foreign == {"gpu0": 0, "gpu1": 0, "gpu2": 1, "gpu3": 1, "gpu5": 0, "gpu6": 0, "gpu7": 0}


def test_visible_devices_are_allocated_to_an_idle_job(bench):
    bench.by_pid[7] = member("j", devices=(("SLURM_JOB_GPUS", "1"),))
    bench.look(NOW_MS)
    assert bench.owners("gpu1") == {("j", "worker-0")}
    assert bench.owners("gpu0") == {("", "")}
    assert bench.allocations() == [("j", "worker-0", "gpu1", NOW_MS, None, None, "environment")]
    bench.by_pid[9] = member("other")
    bench.devices[1].run((9, 1))
    assert bench.owners("gpu1") == {("other", "worker-0")}


@pytest.mark.parametrize("code", [3, 10])
def test_allocations_are_intervals_reported_when_they_change(bench, code):
    bench.by_pid[7] = member("j", process_rank=1)
    bench.devices[0].run((7, 1))
    bench.look(1000)
    bench.look(2000)
    assert bench.allocations() == [("j", "worker-0", "gpu0", 1000, None, 1, "process")]
    bench.devices[0].fail(code, Call.PROCESS_LIST)  # the driver does not answer: no allocation ends
    bench.look(3000)
    assert bench.allocations() == []
    bench.devices[0].answer()
    bench.devices[0].run()
    bench.look(4000)
    assert bench.allocations() == [("j", "worker-0", "gpu0", 1000, 4000, 1, "process")]
    bench.devices[0].run((7, 1))
    bench.look(5000)
    bench.collector.allocations.close(6000)
    assert bench.allocations() == [
        ("j", "worker-0", "gpu0", 5000, None, 1, "process"),
        ("j", "worker-0", "gpu0", 5000, 6000, 1, "process"),
    ]


def test_a_run_leaves_to_the_agent_what_is_not_its_own(driver):
    bench = Bench(driver, alone=True)
    bench.by_pid[7] = member("j")
    bench.devices[1].run((7, 1))
    assert {(key[1], key[2]) for key in bench.look()} == {("gpu1", "j")}
    bench.devices[1].run((7, 1), (8, 1))
    bench.look()
    assert {key[0] for key in bench.look()} == {"gpu.process.memory.usage", "gpu.process.utilization", "gpu.state"}


def test_each_rank_has_one_of_several_visible_devices(bench):
    for rank in range(4):
        bench.by_pid[rank] = member(
            "j", devices=(("CUDA_VISIBLE_DEVICES", "3,2,1,0"),), local_rank=rank, process_rank=rank + 8
        )
    bench.look()
    assert sorted((a[2], a[5]) for a in bench.allocations()) == [
        ("gpu0", 11),
        ("gpu1", 10),
        ("gpu2", 9),
        ("gpu3", 8),
    ]


def shares(bench, *busy):
    """Return the share of process 7 on the first device, for each collection."""
    found = []
    for share in busy:
        bench.devices[0].work(**({"p7": share} if share else {}))
        found.append(bench.look().get(("gpu.process.utilization", "gpu0", "j", "worker-0")))
    return found


@pytest.mark.parametrize("code", [6, 0])
@pytest.mark.parametrize("before", [0, 30])
def test_an_idle_process_has_a_share_of_nothing_not_none(bench, code, before):
    """A single tick at 80 % among four makes 20 %. Use before the first collection belongs to no known time."""
    bench.driver.idle_code(code)
    bench.by_pid[7] = member("j")
    bench.devices[0].run((7, 1))
    assert shares(bench, before) == [None]
    assert shares(bench, 80, 0, 0, 0) == [pytest.approx(0.8), 0.0, 0.0, 0.0]
    assert shares(bench, 0, 40) == [0.0, pytest.approx(0.4)]


def test_two_processes_of_a_replica_add_up(bench):
    bench.by_pid |= {7: member("j"), 8: member("j")}
    bench.devices[0].run((7, 1), (8, 1))
    bench.look()
    bench.devices[0].work(p7=30)
    assert bench.look()["gpu.process.utilization", "gpu0", "j", "worker-0"] == pytest.approx(0.3)
    bench.devices[0].work(p7=70, p8=60)
    assert bench.look()["gpu.process.utilization", "gpu0", "j", "worker-0"] == 1.0


def test_the_share_of_a_process_is_absent_where_the_driver_does_not_say(bench):
    bench.by_pid[7] = member("j")
    bench.devices[0].run((7, 1))
    bench.devices[0].fail(3, Call.PROCESS_UTILIZATION)
    assert shares(bench, 80, 80) == [None, None]


@pytest.fixture
def mps_server(tmp_path):
    """Yield the number of a process with the name of the MPS server."""
    program = tmp_path / "nvidia-cuda-mps-server"
    shutil.copy(str(shutil.which("sleep")), program)
    with subprocess.Popen([program, "600"]) as server:
        wait_until(lambda: Path(f"/proc/{server.pid}/comm").read_text().startswith("nvidia-cuda"), "the program")
        yield server.pid
        server.kill()


def test_clients_of_mps_are_measured_each_and_their_server_is_left_out(bench, mps_server):
    bench.by_pid |= {7: member("j"), 8: member("k")}
    bench.devices[0].run((mps_server, 30), mps=((7, 10), (8, 2**64 - 1)))
    bench.look()
    bench.devices[0].work(**{f"p{mps_server}": 90})
    look = bench.look()
    assert look["gpu.process.memory.usage", "gpu0", "j", "worker-0"] == 10
    assert ("gpu.process.memory.usage", "gpu0", "k", "worker-0") not in look
    assert [key for key in look if key[0] == "gpu.process.utilization"] == [], "it is counted as the server's"


@pytest.mark.parametrize("missing", [(Call.MPS_LIST, Call.MPS_LIST_V2), (Call.MPS_LIST,), ()])
def test_the_processes_of_an_old_driver(bench, missing):
    """Drivers before 510 lack the third version of the calls; drivers before 495 lack the list of MPS clients."""
    bench.devices[0].fail(13, Call.PROCESS_LIST, *missing)
    bench.by_pid |= {7: member("j"), 8: member("k")}
    bench.devices[0].run((7, 10), mps=((8, 20),))
    used = {key[2]: value for key, value in bench.look().items() if key[0] == "gpu.process.memory.usage"}
    assert used == ({"j": 10} if len(missing) == 2 else {"j": 10, "k": 20})


def test_a_list_of_clients_that_fails_once_ends_no_allocation(bench):
    bench.by_pid[7] = member("j")
    bench.devices[0].run(mps=((7, 10),))
    bench.look(1000)
    bench.devices[0].fail(10, Call.MPS_LIST)
    bench.look(2000)
    assert [one[4] for one in bench.allocations()] == [None]


def test_the_real_module_has_everything_that_is_called():
    text = "".join(path.read_text() for path in Path(device.__file__).parent.glob("*.py"))
    words = set(re.findall(r"\b(?:nvml|module|_module)\.((?:nvml|NVML|c_nvml|_nvml)\w+)", text))
    assert len(words) > 20
    assert [word for word in words if not hasattr(pynvml, word)] == []


def test_utilization_is_the_mean_since_the_last_reading(bench):
    gpu = bench.devices[0]
    gpu.set_samples(1_000_000, [10, 20], [5])
    assert bench.look()["gpu.utilization", "gpu0", "", ""] == pytest.approx(0.83), "the first reading has no start"
    gpu.set_samples(1_100_000, [20, 100, 0, 50], [5, 9])  # the first sample is the last one of the previous reading
    found = bench.look()
    assert found["gpu.utilization", "gpu0", "", ""] == pytest.approx(0.5)
    assert found["gpu.memory.copy.utilization", "gpu0", "", ""] == pytest.approx(0.07)
    assert bench.look()["gpu.utilization", "gpu0", "", ""] == pytest.approx(0.83), "no sample is new"
    gpu.fail(3, Call.SAMPLED)
    assert bench.look()["gpu.utilization", "gpu0", "", ""] == pytest.approx(0.83)


def test_links_and_errors_are_sums_of_each_link_or_of_the_device(bench):
    first, second = bench.devices[:2]
    each = {(number, link): 10 * link + 1 for number in (202, 204, 206, 212, 215) for link in range(2)}
    first.set_fields({(91, 0): 2, (230, 0): 4, (173, 0): 5, (179, 0): 1, (180, 0): 2, (38, 0): 100, (52, 0): 7, **each})
    first.set(links_down=1)
    second.set_fields({(91, 0): 18, (138, ALL_LINKS): 1, (139, ALL_LINKS): 2, (38, 0): 3, (45, 0): 4, (59, 0): 6})
    found = bench.look()
    own = {name: {key[0]: value for key, value in found.items() if key[1] == name} for name in ("gpu0", "gpu1")}
    assert {key: own["gpu0"].get(key) for key in own["gpu0"] if "nvlink" in key or "errors" in key} == {
        "gpu.nvlink.transmit": 12,
        "gpu.nvlink.receive": 12,
        "gpu.nvlink.errors": 24,
        "gpu.nvlink.replays": 7,
        "gpu.nvlink.recoveries": 12,
        "gpu.nvlink.links": 2,
        "gpu.nvlink.links.down": 1,
        "gpu.pcie.errors.corrected": 5,
        "gpu.pcie.errors.uncorrected": 3,
    }
    assert own["gpu0"]["gpu.recovery.action"] == 4
    assert (own["gpu1"]["gpu.nvlink.transmit"], own["gpu1"]["gpu.nvlink.errors"]) == (1024, 7)
    assert own["gpu1"]["gpu.nvlink.recoveries"] == 6
    assert "gpu.nvlink.replays" not in own["gpu1"]


def test_margin_sram_and_fabric_are_read_once_a_minute(bench):
    found = bench.look()
    assert found["gpu.temperature.margin", "gpu0", "", ""] == 26
    assert [found[f"gpu.ecc.sram.{name}", "gpu0", "", ""] for name in ("corrected", "uncorrected", "exceeded")] == [
        3,
        3,
        0,
    ]
    assert found["gpu.fabric.state", "gpu0", "", ""] == 3
    assert not {"gpu.temperature.margin", "gpu.fabric.state"} & {key[0] for key in bench.look()}
    for call in (Call.MARGIN, Call.SRAM, Call.FABRIC):
        bench.devices[0].fail(3, call)
    later = {key[0] for key in bench.look(bench.now_ms + 60_000) if key[1] == "gpu0"}
    assert not {"gpu.temperature.margin", "gpu.ecc.sram.corrected", "gpu.fabric.state"} & later


def values_of(look, device="gpu0"):
    """Return the values of a device by metric."""
    return {metric: value for (metric, name, *_), value in look.items() if name == device}


def test_retired_pages_spare_rows_and_power_smoothing_are_measured(bench):
    first, second = bench.devices[:2]
    first.set(spare=(600, 30, 8, 1, 1))
    first.set_fields({(29, 0): 0, (30, 0): 3, (31, 0): 1, (251, 0): 1, (258, 0): 97})
    second.set_fields({})
    found = bench.look()
    new = ("gpu.remapped.spare.", "gpu.retired.", "gpu.power.smoothing")
    assert {metric: value for metric, value in values_of(found).items() if metric.startswith(new)} == {
        "gpu.remapped.spare.all": 600,
        "gpu.remapped.spare.most": 30,
        "gpu.remapped.spare.part": 8,
        "gpu.remapped.spare.few": 1,
        "gpu.remapped.spare.none": 1,
        "gpu.retired.pages.correctable": 0,
        "gpu.retired.pages.uncorrectable": 3,
        "gpu.retired.pages.pending": 1,
        "gpu.power.smoothing": 1,
        "gpu.power.smoothing.lifetime": pytest.approx(0.97),
    }
    assert not [name for name in values_of(found, "gpu1") if name.startswith(new[1:])]


@pytest.mark.parametrize(("code", "calls"), [(3, 1), (13, 1), (10, 2)])
def test_spare_rows_that_a_device_never_gives_cost_one_call(bench, code, calls):
    gpu = bench.devices[0]
    gpu.fail(code, Call.SPARE_ROWS)
    for now_ms in (NOW_MS, NOW_MS + 60_000):
        assert "gpu.remapped.spare.none" not in values_of(bench.look(now_ms))
    assert gpu.calls(Call.SPARE_ROWS) == calls
    gpu.answer()
    assert ("gpu.remapped.spare.none" in values_of(bench.look(NOW_MS + 120_000))) == (code == 10)


def test_gpm_measures_decoders_and_links(bench):
    gpu = bench.devices[0]
    bench.look()
    assert not [name for name in values_of(bench.look()) if name.endswith(".rate")], "the device has none"
    rates = {20: 5.0, 21: 6.0, 60: 7.0, 61: 8.0, 100: 9.0, 101: 0.0}
    gpu.set_profile({1: 90.0, 30: 100.0, 31: 50.0, 37: 0.0, 40: 20.0, **rates})
    found = values_of(bench.look())
    assert found["gpu.decoder.active"] == pytest.approx(0.5)
    assert found["gpu.jpeg.active"] == pytest.approx(0.2)
    assert {name: value / 2**20 for name, value in found.items() if name.endswith(".rate")} == {
        "gpu.pcie.transmit.rate": 5,
        "gpu.pcie.receive.rate": 6,
        "gpu.nvlink.receive.rate": 7,
        "gpu.nvlink.transmit.rate": 8,
        "gpu.c2c.transmit.rate": 9,
        "gpu.c2c.receive.rate": 0,
    }


def test_an_old_driver_that_refuses_new_gpm_metrics_gives_the_others(bench):
    for one in bench.devices:
        one.set(gpm_end=98)
    bench.look()
    calls = []
    for _ in range(2):
        before = bench.driver.calls(LibraryCall.GPM_METRICS)
        assert values_of(bench.look())["gpu.sm.active"] == pytest.approx(0.715)
        calls.append(bench.driver.calls(LibraryCall.GPM_METRICS) - before)
    assert calls == [2 * len(bench.devices), len(bench.devices)]
    assert bench.driver.samples == len(bench.devices)
