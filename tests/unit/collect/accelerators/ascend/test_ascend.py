"""Tests of Ascend NPUs with the real collector and the real binding, over a library that the test compiles."""

import os
import stat
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.dcmi import FakeDcmi
from tests.support.waiting import SECONDS, wait_until
from tests.unit.collect.gpus import DeviceNode, Gpu, member

from jobmeter.collect.accelerators.ascend.driver import AscendDriver
from jobmeter.collect.accelerators.ascend.network import NetworkReader, parse
from jobmeter.collect.accelerators.ascend.vendor import VENDOR, parse_visible_devices
from jobmeter.collect.accelerators.checks import check_accelerators
from jobmeter.collect.accelerators.registry import find_resource_vendor, is_device_resource
from jobmeter.collect.discover.devices import DeviceSet
from jobmeter.collect.kubelet.allocated import find_indices
from jobmeter.model.catalog import find
from jobmeter.model.device import DeviceState
from jobmeter.model.event import REASONS, EventType
from jobmeter.model.record import check_event
from jobmeter.model.task import CheckStatus
from jobmeter.testing.collector import CollectorContract

LINK = "link status: UP\n"
SPEED = "Speed: 200000 Mb/s\n"
CHANGES = (
    "[device 0]current time        : Mon Nov 4\n[device 0]link up count       : 3\n[device 0]link down count     : 2\n"
)
COUNTS = """packet statistics:
mac_rx_total_oct_num:1000
mac_tx_total_oct_num:2000
roce_rx_err_pkt_num:1
roce_new_pkt_rty_num:4
"""


class AscendNode(DeviceNode):
    """Node with Ascend NPUs over the fake library."""

    def __init__(self, root, chips=2, tool=None, patience=30.0, **more):
        super().__init__(root)
        self.driver = FakeDcmi(root, chips, **more)
        self.loads = self.driver.load
        self.network = NetworkReader(self.clock, tool or root / "no-tool")
        self.dcmi = AscendDriver(self.clock, self.machine, 30.0, lambda: self.loads(), self.network)  # noqa: PLW0108 - tests set it
        self.measure_with(VENDOR, self.dcmi, patience)

    def events(self):
        found = self.collector.states.take_records(0).events
        return [(one.reason, one.job, one.subject) for one in map(check_event, found)]


@pytest.fixture(autouse=True)
def folder(monkeypatch):
    monkeypatch.setenv("FAKE_DCMI", "")


@pytest.fixture(params=[False, True], ids=["dcmi", "dcmiv2"])
def node(request, tmp_path):
    made = AscendNode(tmp_path, second=request.param)
    yield made
    for path in made.driver.answers.glob("*/*.hangs"):
        path.unlink()
    wait_until(made.dcmi.close, "the calls return")


class TestAscend(CollectorContract):
    @pytest.fixture
    def collector(self, node):
        return node.collector


def test_every_value_of_a_chip(node):
    found = {metric: value for (metric, device, _), value in node.look().items() if device == "npu1"}
    assert found == pytest.approx(
        {
            "npu.utilization": 0.85,
            "npu.sm.active": 0.81,
            "npu.vector.active": 0.22,
            "npu.cpu.utilization": 0.04,
            "npu.dram.active": 0.37,
            "npu.memory.usage": 40 * 2**30,
            "npu.memory.limit": 64 * 2**30,
            "npu.temperature": 47,
            "npu.temperature.memory": 51,
            "npu.power": 310.5,
            "npu.voltage": 0.84,
            "npu.clock.core": 1.65e9,
            "npu.clock.core.limit": 1.8e9,
            "npu.clock.memory": 1.6e9,
            "npu.health": 0,
            "npu.faults": 0,
            "npu.ecc.corrected": 7,
            "npu.ecc.uncorrected": 1,
            "npu.pages.isolated": 3,
            "npu.network.health": 0,
            "npu.processes": 0,
            "npu.processes.foreign": 0,
            "npu.state": 0,
        }
    )
    assert all(find(metric) for metric in node.collector.metrics)
    (_, chip) = node.collector.devices
    assert (chip.uuid, chip.pci, chip.name) == (
        "NPU-0000000200000002000000030000000400000005",
        "0000:02:00",
        "Ascend 910B3",
    )
    assert chip.details == {"vendor": "ascend", "cores": 20}
    assert node.driver.overlaps == 0


def test_values_are_read_at_most_once_in_ten_seconds(node):
    node.look()
    early = node.look(1_000)
    assert {metric for metric, *_ in early} == {"npu.processes", "npu.processes.foreign", "npu.state"}
    assert ("npu.power", "npu0", "") in node.look(9_000)


def test_missing_values_are_absent(node):
    for name in ("power_info", "ecc_info", "processes"):
        node.driver.unset(0, name)
    node.driver.set(0, utilization_rate="2 239  13 239", hbm_info="0 0 0 0 0")
    found = {metric for metric, device, _ in node.look() if device == "npu0"}
    absent = {"power", "ecc.corrected", "pages.isolated", "utilization", "sm.active", "memory.usage", "processes"}
    assert not found & {f"npu.{name}" for name in absent}
    assert {"npu.temperature", "npu.state"} <= found


def test_a_chip_without_hbm_has_its_other_memory(tmp_path):
    node = AscendNode(tmp_path)
    node.driver.unset(0, "hbm_info")
    node.driver.set(0, memory_info="24576 16384")
    found = node.look()
    assert (found["npu.memory.limit", "npu0", ""], found["npu.memory.usage", "npu0", ""]) == (24 * 2**30, 8 * 2**30)
    node.dcmi.close()


def test_processes_own_chips(node):
    node.members.by_pid |= {7: member("j"), 8: member("k")}
    node.driver.set(0, processes="7 1024  99 5")
    node.driver.set(1, processes="8 4096")
    found = node.look()
    assert found["npu.power", "npu1", "k"] == pytest.approx(310.5)
    assert ("npu.power", "npu0", "") in found, "a foreign process computes on it"
    assert found["npu.process.memory.usage", "npu0", "j"] == 1024
    assert found["npu.processes.foreign", "npu0", ""] == 1


def test_a_fault_is_an_event_of_the_job_that_has_the_chip(node):
    node.members.by_pid[8] = member("k")
    node.driver.set(1, processes="8 4096")
    node.look()
    assert node.events() == []
    node.driver.set(1, faults=str(0x80E01801), health="2")
    found = node.look()
    assert (found["npu.faults", "npu1", "k"], found["npu.health", "npu1", "k"]) == (1, 2)
    (event,) = node.collector.states.take_records(0).events
    assert (event.job, event.replica, event.subject, event.level) == ("k", "worker-0", "device npu1", "error")
    assert event.message.startswith("npu1 reports the fault 0x80E01801.")
    assert event.reason in REASONS[EventType.DEVICE_FAULT]
    node.look()
    assert node.events() == [], "it is active still"
    node.driver.set(1, faults="", health="0")
    node.look()
    node.driver.set(1, faults=str(0x80E01801))
    node.look()
    assert node.events() == [("DeviceFault", "k", "device npu1")]


def test_a_lost_chip_does_not_stop_the_other_and_returns(node):
    node.members.by_pid[7] = member("j")
    node.driver.set(0, processes="7 1024")
    node.look()
    node.driver.set(0, gone="1")
    found = node.look()
    assert found["npu.state", "npu0", "j"] == DeviceState.LOST.code
    assert ("npu.power", "npu1", "") in found
    assert node.events() == [("GpuLost", "j", "device npu0")]
    node.driver.unset(0, "gone")
    found = node.look(70_000)
    assert found["npu.state", "npu0", "j"] == 0
    assert node.events() == [("GpuBack", "j", "device npu0")]


def test_a_chip_that_the_library_no_longer_lists_is_lost(node):
    node.look()
    node.driver.remove(1)
    node.look()
    found = node.look(60_000)
    assert found["npu.state", "npu1", ""] == DeviceState.LOST.code
    assert found["npu.state", "npu0", ""] == 0


def test_a_call_that_hangs_holds_up_its_chip_alone(tmp_path):
    node = AscendNode(tmp_path, patience=0.2)
    wait_until(lambda: ("npu.power", "npu0", "") in node.look(), "the chip answers")
    node.driver.set(0, power_info__hangs="")
    wait_until(lambda: node.look(20_000).get(("npu.state", "npu0", "")) == DeviceState.HANGS.code, "it hangs")
    wait_until(lambda: ("npu.power", "npu1", "") in node.look(), "the other chip answers")
    assert ("npu.power", "npu0", "") not in node.look()
    assert not node.collector.release()
    node.driver.unset(0, "power_info__hangs")
    wait_until(node.dcmi.close, "the call returns")


@pytest.mark.parametrize(
    ("fault", "state", "text"),
    [
        (lambda node: setattr(node, "loads", lambda: None), DeviceState.LIBRARY_MISSING, "cannot be found"),
        (lambda node: node.driver.set(0, **{"../init__code": "-8002"}), DeviceState.NO_PERMISSION, "not permitted"),
        (lambda node: node.driver.set(0, **{"../init__code": "-8012"}), DeviceState.LOST, "not ready"),
    ],
)
def test_a_library_that_cannot_be_used(node, fault, state, text):
    fault(node)
    found = node.look()
    assert {value for (metric, *_), value in found.items() if metric == "npu.state"} == {state.code}
    assert text in node.dcmi.problem.text
    node.loads = node.driver.load
    (node.driver.answers / "init.code").unlink(missing_ok=True)
    assert node.look(60_000)["npu.state", "npu1", ""] == 0


def test_a_machine_without_npus(tmp_path):
    node = AscendNode(tmp_path, chips=0)
    assert node.look() == {}
    assert node.dcmi.problem is None


def test_a_check_on_request(node):
    node.look()
    assert [one.status for one in check_accelerators(node.collector, [])] == [CheckStatus.CRITICAL] * 2
    node.driver.set(0, ecc_info="1  0 0  7 0  0 0  0 0", faults="1 2")
    first, second = check_accelerators(node.collector, [])
    assert (first.status, first.text) == (CheckStatus.WARNING, "npu0 (Ascend 910B3): it reports 2 faults")
    assert second.text == "npu1 (Ascend 910B3): 1 memory errors were not corrected"
    assert first.values["faults"] == 2


@pytest.mark.parametrize(
    ("text", "found"),
    [("0-2,5", [0, 1, 2, 5]), ("Ascend910-3", [3]), ("5,Ascend310P-1", [5, 1]), ("7,x,-1,3-", []), ("2,2", [2])],
)
def test_visible_devices(text, found):
    assert parse_visible_devices(text, [Gpu(index) for index in (0, 1, 2, 3, 5)]) == found


def test_wide_ranges_cost_no_memory():
    tracemalloc.start()
    try:
        assert parse_visible_devices("0-9999," * 1_000, [Gpu(3), Gpu(1)]) == [1, 3]
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


@given(st.lists(st.integers(0, 15), unique=True), st.lists(st.integers(0, 20)))
def test_the_runtimes_numbers_count_within_the_containers(physical, logical):
    """The list ends at its first invalid entry, as in the runtime."""
    values = {
        "ASCEND_VISIBLE_DEVICES": ",".join(map(str, physical)),
        "ASCEND_RT_VISIBLE_DEVICES": ",".join(map(str, logical)),
    }
    expected = []
    for one in logical:
        if one >= len(physical):
            break
        expected.append(physical[one])
    devices = DeviceSet([Gpu(index) for index in range(16)], VENDOR.variables)
    assert devices.list_visible(member("j", devices=tuple(values.items()))) == list(dict.fromkeys(expected))


def test_names_of_its_device_plug_in():
    devices = [Gpu(index, uuid="") for index in range(4)]
    assert find_indices(VENDOR, ["Ascend910-3", "Ascend910-0", "Ascend910-9", "x", "GPU-1"], devices) == [3, 0]
    assert is_device_resource("huawei.com/Ascend910")
    assert find_resource_vendor("huawei.com/Ascend310P") is VENDOR


def test_its_major_number_is_that_of_its_files(node, monkeypatch):
    real = os.stat

    def stated(path, *arguments, **more):
        found = real(path, *arguments, **more)
        if "davinci" not in str(path):
            return found
        return os.stat_result([stat.S_IFCHR, *found[1:]], {"st_rdev": os.makedev(236, int(str(path)[-1]))})

    assert VENDOR.find_character_numbers(node.machine) == {}
    monkeypatch.setattr(os, "stat", stated)
    assert set(VENDOR.find_character_numbers(node.machine)) == {236}


def test_ports_are_read_once_a_minute_beside_the_chips(tmp_path):
    tool = tmp_path / "hccn_tool"
    texts = {"-link": LINK, "-speed": SPEED, "-link_stat": CHANGES, "-stat": COUNTS}
    cases = "\n".join(f"{name}) cat <<'END'\n{text}END\n;;" for name, text in texts.items())
    tool.write_text(f'#!/bin/sh\necho "$2" >> {tmp_path}/calls\n[ "$2" = 1 ] && exit 1\ncase "$3" in\n{cases}\nesac\n')
    tool.chmod(0o755)
    node = AscendNode(tmp_path, tool=tool)
    node.look()
    node.network.wait(SECONDS)
    found = node.look(60_000)
    own = {
        metric: value for (metric, device, _), value in found.items() if device == "npu0" and "network.h" not in metric
    }
    assert {name: value for name, value in own.items() if name.startswith(("npu.link", "npu.network"))} == {
        "npu.link.up": 1,
        "npu.link.speed": 25e9,
        "npu.link.changes": 5,
        "npu.network.receive": 1000,
        "npu.network.transmit": 2000,
        "npu.network.errors": 1,
        "npu.network.retries": 4,
    }
    assert ("npu.link.up", "npu1", "") not in found, "the tool fails for it"
    node.network.wait(SECONDS)
    assert (tmp_path / "calls").read_text().count("0\n") == 8, "two readings of four outputs"
    node.dcmi.close()


@given(st.text(max_size=200), st.text(max_size=200))
def test_outputs_of_other_versions_are_absent(link, counts):
    found = parse(link, "", "", counts)
    assert found.keys() <= {"npu.link.up", "npu.network.receive", "npu.network.transmit"} | {
        f"npu.network.{name}" for name in ("errors", "retries", "congestion", "pauses")
    }
