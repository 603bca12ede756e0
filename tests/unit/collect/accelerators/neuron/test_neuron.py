"""Tests of AWS Neuron devices with the real collector, the driver's files and a fake ``neuron-monitor``.

The files have the names and formats of the driver's source and of its user guide, see ``neuron/device.py``. Reading a
FIFO hangs.
"""

import json
import os
import stat
import subprocess
import threading
from pathlib import Path

import pytest
from tests.support.waiting import wait_until
from tests.unit.collect.gpus import DeviceNode, member
from tests.unit.collect.trees import plant

from jobmeter.collect.accelerators.checks import check_accelerators
from jobmeter.collect.accelerators.collector import RELEASE_MS
from jobmeter.collect.accelerators.neuron import monitor
from jobmeter.collect.accelerators.neuron.driver import NeuronDriver
from jobmeter.collect.accelerators.neuron.monitor import VALID_SECONDS, MonitorReader
from jobmeter.collect.accelerators.neuron.vendor import VENDOR
from jobmeter.collect.accelerators.registry import find_resource_vendor, is_device_resource
from jobmeter.collect.doctor.base import SourceStatus
from jobmeter.collect.doctor.devices import check_found
from jobmeter.collect.kubelet.allocated import find_indices
from jobmeter.model.catalog import find
from jobmeter.model.device import DeviceState
from jobmeter.model.record import check_event
from jobmeter.model.task import CheckStatus
from jobmeter.testing.collector import CollectorContract

CLASS = "sys/devices/virtual/neuron_device"
MINUTE = 60_000
GIB = 2**30
STATUSES = (
    *("success", "hw_error", "hw_hbm_ue_error", "hw_nc_ue_error", "hw_dma_abort_error", "hw_collectives_error"),
    "hw_repairable_hbm_ue_error",
)


def neuron(number, product="Trainium1", cores=2, used=3 * GIB):
    """Return the files of a device with ``used`` bytes in use on each core."""
    own = {
        "info/architecture/arch_type": "NDv2\n",
        "info/architecture/device_name": f"{product}\n",
        "info/architecture/instance_type": "Trn1\n",
        "info/serial_number": f"{number + 0xA0:016x}\n",
        "dev": f"240:{number}\n",
        "stats/hardware/mem_ecc_uncorrected": "0\n",
        "stats/hardware/mem_ecc_repairable_uncorrected": "1\n",
        "stats/hardware/sram_ecc_uncorrected": "0\n",
        "stats/power/utilization": "POWER_STATUS_VALID,1795000020,10.25,61.50,42.50\n",
    }
    for core in range(cores):
        stats = f"neuron_core{core}/stats"
        own |= {f"{stats}/memory_usage/device_mem/{name}": f"{used}\n" for name in ("total", "present", "peak")}
        own |= {f"{stats}/status/{name}/total": "0\n" for name in STATUSES}
    return {f"{CLASS}/neuron{number}/{name}": text for name, text in own.items()}


def document(*runtimes, cores=2, memory=32 * GIB, ecc=None):
    """Return neuron-monitor's report about applications: (process, busy percent by core, bytes by core)."""
    return {
        "neuron_runtime_data": [
            {
                "pid": pid,
                "address": "",
                "neuron_runtime_tag": str(pid),
                "error": "",
                "report": {
                    "neuroncore_counters": {
                        "period": 5.0,
                        "neuroncores_in_use": {
                            str(core): {"neuroncore_utilization": busy, "flops": 1} for core, busy in used.items()
                        },
                        "error": "",
                    },
                    "memory_used": {
                        "neuron_runtime_used_bytes": {
                            "host": 610705408,
                            "neuron_device": sum(held.values()),
                            "usage_breakdown": {
                                "host": {"application_memory": 609656832},
                                "neuroncore_memory_usage": {
                                    str(core): {"constants": size // 2, "tensors": size - size // 2}
                                    for core, size in held.items()
                                },
                            },
                        },
                        "loaded_models": [],
                        "error": "",
                    },
                },
            }
            for pid, used, held in runtimes
        ],
        "system_data": {
            "neuron_hw_counters": {
                "neuron_devices": [
                    {"neuron_device_index": number, "mem_ecc_corrected": count, "sram_ecc_corrected": 1}
                    for number, count in (ecc or {}).items()
                ],
                "error": "",
            }
        },
        "neuron_hardware_info": {
            "neuron_device_type": "trainium1",
            "neuron_device_count": 2,
            "neuron_device_memory_size": memory,
            "neuroncore_per_device_count": cores,
            "error": "",
        },
    }


class NeuronNode(DeviceNode):
    """Node with Trainium chips and a fake ``neuron-monitor``."""

    def __init__(self, root, devices=2, patience=30.0, **more):
        super().__init__(root)
        for number in range(devices):
            plant(root, neuron(number, **more))
        plant(root, {"sys/module/neuron/version": "2.20.28.0\n"})
        self.program, self.reports = root / "neuron-monitor", root / "reports"
        self.monitor = MonitorReader(self.clock, self.program)
        driver = NeuronDriver(self.clock, self.machine, patience, self.monitor)
        self.measure_with(VENDOR, driver, patience)

    def folder(self, number):
        return self.root / CLASS / f"neuron{number}"

    def install(self, *lines, end="exec sleep 600"):
        """Make the program write these lines and then run the command ``end``."""
        self.reports.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))
        self.program.write_text(f'#!/bin/sh\ncp "$2" {self.root}/conf\ncat {self.reports}\n{end}\n')
        self.program.chmod(self.program.stat().st_mode | stat.S_IXUSR)

    def reported(self):
        """Collect after the program has written its report."""
        self.monitor.update(None)
        wait_until(lambda: self.monitor.report, "the program reports")
        return self.look()

    def events(self):
        found = self.collector.states.take_records(0).events
        for event in found:
            check_event(event)
        return [(one.reason, one.subject, one.job, one.message) for one in found]


@pytest.fixture
def make(tmp_path):
    nodes = []

    def made(**more):
        nodes.append(NeuronNode(tmp_path, **more))
        return nodes[-1]

    yield made
    for one in nodes:
        one.collector.release()


@pytest.fixture
def node(make):
    return make()


class TestNeuron(CollectorContract):
    @pytest.fixture
    def collector(self, node):
        return node.collector


def of(look, device="npu0"):
    return {metric: value for (metric, name, _), value in look.items() if name == device}


def test_every_value_of_a_device(node):
    node.install(document((7, {0: 80.0, 1: 40.0}, {0: GIB, 1: GIB}), ecc={0: 4, 1: 0}))
    found = of(node.reported())
    assert found == pytest.approx(
        {
            "npu.utilization": 0.6,
            "npu.memory.usage": 6 * GIB,
            "npu.memory.limit": 32 * GIB,
            "npu.executions.failed": 0,
            "npu.power.utilization": 0.425,
            "npu.ecc.corrected": 5,
            "npu.ecc.uncorrected": 1,
            "npu.processes": 1,
            "npu.processes.foreign": 1,
            "npu.state": 0,
        }
    )
    assert all(find(metric) for metric in found)
    assert json.loads((node.root / "conf").read_text())["neuron_runtimes"][0]["tag_filter"] == ".*"


def test_without_the_program_the_files_give_the_rest(node):
    absent = {"npu.utilization", "npu.ecc.corrected", "npu.processes"}
    found = of(node.look())
    assert found["npu.memory.limit"] == 32 * GIB
    assert found["npu.memory.usage"] == 6 * GIB
    assert not absent & found.keys()


def test_devices_are_named_by_their_numbers_and_described(make):
    node = make(devices=11)
    node.look()
    devices = node.collector.devices
    assert [(one.index, one.minor, node.collector.device_name(one.index)) for one in devices][9:] == [
        (9, 9, "npu9"),
        (10, 10, "npu10"),
    ]
    assert devices[10].uuid == "neuron-00000000000000aa"
    facts = {"vendor": "neuron", "serial": "00000000000000aa", "driver": "2.20.28.0", "memory": 32 * GIB, "cores": 2}
    assert (devices[10].name, devices[10].details) == ("AWS Trainium1", facts)


@pytest.mark.parametrize(
    ("product", "cores", "limit", "logical"),
    [("Inferentia", 4, 8, 4), ("Inferentia2", 2, 32, 2), ("Trainium2", 8, 96, 4), ("Trainium9", 8, None, 8)],
)
def test_memory_and_logical_cores_of_a_product_without_the_program(make, product, cores, limit, logical):
    node = make(devices=1, product=product, cores=cores)
    assert of(node.look()).get("npu.memory.limit") == (limit and limit * GIB)
    assert node.collector.devices[0].details["cores"] == logical


def test_a_report_overrides_memory_and_logical_cores_of_the_product(make):
    node = make(devices=1, product="Trainium3", cores=8)
    node.install(document(cores=8, memory=144 * GIB))
    assert of(node.reported())["npu.memory.limit"] == 144 * GIB
    assert node.collector.devices[0].details["cores"] == 8


def test_an_idle_node_has_a_utilization_of_zero(node):
    node.install(document())
    look = node.reported()
    assert [of(look, name)["npu.utilization"] for name in ("npu0", "npu1")] == [0, 0]
    assert of(look)["npu.processes"] == 0


def test_processes_own_the_devices_of_their_cores(node):
    node.members.by_pid |= {100: member("j"), 200: member("k"), 201: member("k", "worker-1")}
    node.install(document((100, {0: 50.0}, {0: 4096}), (200, {2: 100.0}, {2: 8192}), (201, {}, {3: 16}), (300, {}, {})))
    look = node.reported()
    assert look["npu.memory.usage", "npu0", "j"] == 6 * GIB
    assert look["npu.process.memory.usage", "npu0", "j"] == 4096
    assert look["npu.process.utilization", "npu0", "j"] == pytest.approx(0.25)
    assert look["npu.memory.usage", "npu1", "k"] == 6 * GIB
    assert {key[2] for key in look if key[0] == "npu.processes"} == {"j", "k"}


@pytest.mark.parametrize("group", ["neuroncore_counters", "memory_used", None])
def test_report_groups_with_an_error_have_no_values(node, group):
    broken = document((100, {0: 50.0}, {0: 4096}), (200, {2: 100.0}, {2: 8192}))
    one = broken["neuron_runtime_data"][0]
    (one["report"][group] if group else one)["error"] = "failed"
    node.install(broken)
    look = node.reported()
    known = group == "memory_used"
    assert [("npu.utilization", f"npu{number}", "") in look for number in (0, 1)] == [known, known]
    assert look["npu.processes", "npu1", ""] == 1


@pytest.mark.parametrize(
    "lines",
    [
        ["", "null", "[]", "{", '{"neuron_runtime_data": 3}', '{"neuron_runtime_data": [{}]}', "x" * 5_000_000],
        ['{"neuron_hardware_info": {"neuroncore_per_device_count": "2"}}', "\\xff"],
    ],
)
def test_an_invalid_report_is_skipped(node, lines):
    node.install(*lines, document((7, {0: 80.0, 1: 40.0}, {})))
    assert of(node.reported())["npu.utilization"] == pytest.approx(0.6)


def test_an_incomplete_report_is_dropped(node):
    node.install(document(), end="kill -9 $$")
    node.reports.write_text(node.reports.read_text()[:-30])
    node.look()
    wait_until(lambda: "neuron-monitor" not in {one.name for one in threading.enumerate()}, "the output ends")
    assert "npu.utilization" not in of(node.look())
    assert node.monitor.report is None


def test_the_rest_of_a_line_beyond_the_limit_is_no_report(node):
    node.install("x" * (4 * 2**20) + json.dumps(document((7, {0: 80.0}, {}))), end="exit 0")
    node.look()
    wait_until(lambda: "neuron-monitor" not in {one.name for one in threading.enumerate()}, "the output ends")
    assert node.monitor.report is None


def test_corrected_errors_need_both_counters(node):
    half = document(ecc={0: 4})
    half["system_data"]["neuron_hw_counters"]["neuron_devices"][0].pop("sram_ecc_corrected")
    node.install(half)
    assert "npu.ecc.corrected" not in of(node.reported())


def test_null_fields_of_a_report_are_empty(node):
    empty = document((7, {}, {}))
    empty["neuron_runtime_data"][0]["report"]["neuroncore_counters"]["neuroncores_in_use"] = None
    empty["neuron_runtime_data"][0]["report"]["memory_used"]["neuron_runtime_used_bytes"] = None
    empty["system_data"]["neuron_hw_counters"]["neuron_devices"] = None
    node.install(empty)
    found = of(node.reported())
    assert found["npu.utilization"] == 0
    assert "npu.ecc.corrected" not in found


def test_an_old_report_expires_and_an_ended_program_is_restarted(node):
    node.install(document((7, {0: 80.0}, {})), end="exit 0")
    assert "npu.utilization" in of(node.reported())
    node.install(end="exec sleep 600")
    found = of(node.look(int(VALID_SECONDS + 1) * 1_000))
    assert "npu.utilization" not in found
    assert found["npu.memory.usage"] == 6 * GIB
    node.monitor.close()
    node.install(document((7, {0: 80.0}, {})))
    assert "npu.utilization" in of(node.reported())


def test_a_program_that_hangs_is_ended_and_started_again(node):
    node.install(document((7, {0: 80.0}, {})))
    node.reported()
    node.look(61_000)
    wait_until(lambda: not node.monitor.running, "the silent program ends")
    node.look()
    wait_until(lambda: node.monitor.report, "the next one reports")


def test_a_program_that_is_stuck_keeps_the_driver_open(node, monkeypatch):
    node.install(document())
    node.reported()
    with monkeypatch.context() as held_up:
        held_up.setattr(subprocess.Popen, "kill", lambda _process: None)
        held_up.setattr(monitor, "_ENDS_SECONDS", 0.01)
        assert not node.collector.release()
        assert node.monitor.running
    assert node.collector.release()
    assert not node.monitor.running


def test_only_values_of_a_program_that_cannot_be_started_are_absent(node, caplog):
    node.program.write_text("no program")
    assert of(node.look())["npu.memory.usage"] == 6 * GIB
    assert "cannot be started" in caplog.text


def test_a_device_that_disappears_is_lost_and_one_that_returns_is_measured(node):
    node.look()
    node.folder(1).rename(node.root / "away")
    look = node.look()
    assert look["npu.state", "npu1", ""] == DeviceState.LOST.code
    assert ("npu.memory.usage", "npu1", "") not in look
    assert ("npu.memory.usage", "npu0", "") in look
    ((reason, subject, _, text),) = node.events()
    assert (reason, subject) == ("GpuLost", "device npu1")
    assert "See `neuron-ls`" in text
    (node.root / "away").rename(node.folder(1))
    for _ in range(7):
        look = node.look()
    assert ("npu.memory.usage", "npu1", "") in look
    assert [reason for reason, *_ in node.events()] == ["GpuBack"]


def test_a_driver_that_is_unloaded_is_the_state_of_all_devices(node):
    node.look()
    (node.root / CLASS).rename(node.root / "away")
    look = node.look()
    assert {look["npu.state", f"npu{number}", ""] for number in (0, 1)} == {DeviceState.DRIVER_NOT_LOADED.code}
    check = check_found(node.machine, VENDOR, node.collector.devices, None)
    assert check.status is SourceStatus.PROBLEM
    assert "aws-neuronx-dkms" in check.advice


def test_files_that_may_not_be_read_are_a_state(node, monkeypatch):
    before = Path.open

    def refuse(path, *arguments, **more):
        if "neuron1" in path.parts:
            raise PermissionError(13, "Permission denied")
        return before(path, *arguments, **more)

    monkeypatch.setattr(Path, "open", refuse)
    look = node.look()
    assert look["npu.state", "npu1", ""] == DeviceState.NO_PERMISSION.code
    assert of(look)["npu.state"] == 0
    assert "may not be read" in node.collector.devices[1].reason


@pytest.mark.parametrize("text", ["", "\n", "x\n", "-1\n", "1 2\n", None])
def test_only_the_value_of_a_file_without_a_number_is_absent(node, text):
    for name in ("neuron_core1/stats/memory_usage/device_mem/total", "stats/power/utilization"):
        path = node.folder(0) / name
        path.unlink()
        if text is not None:
            path.write_text(text)
    found = of(node.look())
    assert not {"npu.memory.usage", "npu.power.utilization"} & found.keys()
    assert found["npu.state"] == 0
    assert found["npu.ecc.uncorrected"] == 1


@pytest.mark.parametrize(
    "text",
    [
        "POWER_STATUS_NO_DATA,1795000020,0.00,0.00,0.00\n",
        "POWER_STATUS_INVALID,0,0.00,0.00,0.00\n",
        "POWER_STATUS_VALID,1795000020,10.25,61",
    ],
)
def test_power_without_a_valid_reading_is_absent(node, text):
    (node.folder(0) / "stats/power/utilization").write_text(text)
    assert "npu.power.utilization" not in of(node.look())


def test_a_device_of_a_driver_with_other_files_is_measured_without_values(node):
    for name in ("stats", "info", "neuron_core0", "neuron_core1"):
        (node.folder(0) / name).rename(node.root / name)
    look = node.look()
    assert of(look) == {"npu.state": 0}
    assert node.collector.devices[0].name == "AWS Neuron device"


def test_a_decreasing_error_counter_is_absent(node):
    path = node.folder(0) / "stats/hardware/mem_ecc_uncorrected"
    found = []
    for text in ("3", "0", "5"):
        path.write_text(text)
        found.append(of(node.look(MINUTE)).get("npu.ecc.uncorrected"))
    assert found == [4, None, 6]


def test_a_fault_is_counted_and_an_event_of_the_job(node):
    node.members.others.append(member("j", devices=(("NEURON_RT_VISIBLE_CORES", "0-1"),)))
    path = node.folder(0) / "neuron_core1/stats/status/hw_hbm_ue_error/total"
    path.write_text("2")
    node.look()
    assert node.events() == [], "faults from before the agent's start are no news"
    path.write_text("5")
    look = node.look()
    assert look["npu.executions.failed", "npu0", "j"] == 5
    ((reason, subject, job, text),) = node.events()
    assert (reason, subject, job) == ("DeviceFault", "device npu0", "j")
    assert text == "npu0 ended 3 executions with hw_hbm_ue_error. See the kernel's log for neuron."


def test_a_hanging_file_delays_only_its_device(make):
    node = make(patience=0.2)
    node.look()
    path = node.folder(1) / "stats/hardware/sram_ecc_uncorrected"
    path.unlink()
    os.mkfifo(path)
    wait_until(lambda: ("npu.memory.usage", "npu0", "") in node.look(MINUTE), "the other device answers")
    wait_until(lambda: node.look(MINUTE).get(("npu.state", "npu1", "")) == DeviceState.HANGS.code, "it hangs")
    assert ("npu.ecc.uncorrected", "npu1", "") not in node.look(MINUTE)
    waiting = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    os.write(waiting, b"0\n")
    path.unlink()
    os.close(waiting)
    wait_until(lambda: not node.collector.devices[1].busy, "the reading returns")


def test_a_released_driver_ends_the_program(node):
    node.install(document())
    node.reported()
    assert node.monitor.running
    assert node.collector.release()
    assert not node.monitor.running
    assert node.look() == {}
    assert ("npu.memory.usage", "npu0", "") in node.look(RELEASE_MS)


def test_a_node_without_devices_starts_no_program(make):
    node = make(devices=0)
    node.install(document())
    assert node.look() == {}
    assert not node.monitor.running
    assert not VENDOR.is_present(node.machine)
    assert check_found(node.machine, VENDOR, [], None).text == "the machine has no AWS Neuron device"
    plant(node.root, {"dev/neuron0": "", "dev/neuron_thing": ""})
    assert VENDOR.is_present(node.machine)


def test_checks_on_request(node):
    node.look()
    (node.folder(0) / "stats/hardware/mem_ecc_repairable_uncorrected").write_text("0")
    (node.folder(0) / "neuron_core0/stats/status/hw_error/total").write_text("7")
    first, second = check_accelerators(node.collector, [node.collector])
    assert (first.status, first.text) == (
        CheckStatus.WARNING,
        "npu0 (AWS Trainium1): 7 executions ended with an error of the hardware",
    )
    assert (second.status, second.text.partition(": ")[2]) == (
        CheckStatus.CRITICAL,
        "1 memory errors were not corrected",
    )
    assert second.values == {"ecc_uncorrected": 1.0, "executions_failed": 0.0}


@pytest.mark.parametrize(
    ("variables", "found"),
    [
        ({"NEURON_RT_VISIBLE_CORES": "0"}, [0]),
        ({"NEURON_RT_VISIBLE_CORES": "5,2"}, [2, 1]),
        ({"NEURON_RT_VISIBLE_CORES": "0-3"}, [0, 1]),
        ({"NEURON_RT_VISIBLE_CORES": " 1 - 3"}, []),
        ({"NEURON_RT_VISIBLE_CORES": "6-9999"}, [3]),
        ({"NEURON_RT_VISIBLE_CORES": "3-1"}, []),
        ({"NEURON_RT_VISIBLE_CORES": ""}, []),
        ({"AWS_NEURON_VISIBLE_DEVICES": "ALL"}, [0, 1, 2, 3]),
        ({"AWS_NEURON_VISIBLE_DEVICES": "3,1,9"}, [3, 1]),
        ({"AWS_NEURON_VISIBLE_DEVICES": "none"}, []),
        ({"NEURON_RT_VISIBLE_CORES": "2", "AWS_NEURON_VISIBLE_DEVICES": "ALL"}, [1]),
    ],
)
def test_the_devices_in_an_environment(make, variables, found):
    assert make(devices=4).visible(**variables) == found


@pytest.mark.parametrize(
    ("resource", "ids", "found"),
    [
        ("aws.amazon.com/neuron", ["1", "0", "7"], [1, 0]),
        ("aws.amazon.com/neurondevice", ["1"], [1]),
        ("aws.amazon.com/neuroncore", ["2", "3", "0", "9"], [1, 0]),
        ("aws.amazon.com/neuron", ["ALL", "0-1", "", "x"], []),
    ],
)
def test_the_ids_of_the_device_plug_in(node, resource, ids, found):
    node.look()
    assert find_indices(VENDOR, ids, node.collector.devices, resource) == found
    assert is_device_resource(resource)
    assert find_resource_vendor(resource) is VENDOR
