"""Tests of MIG instances: each is a device with its own memory, processes and activity; other values are the GPU's."""

import pytest
from tests.support.nvml import Call
from tests.support.waiting import wait_until
from tests.unit.collect.gpus import PLACE, Bench, member

from jobmeter.collect.accelerators.nvidia.vendor import VENDOR
from jobmeter.collect.discover.prolog import PrologAllocations
from jobmeter.collect.discover.report import NodeReporter
from jobmeter.collect.doctor.devices import check_found
from jobmeter.collect.kubelet.allocated import find_indices
from jobmeter.collect.machine import Machine
from jobmeter.model.device import DeviceState
from jobmeter.query.inventory import list_device_types

OWN = {"gpu.memory.usage", "gpu.memory.limit", "gpu.sm.active", "gpu.tensor.active", "gpu.processes", "gpu.state"}


@pytest.fixture
def bench(make_driver):
    driver = make_driver(3)
    driver.install()
    driver.devices[1].split((3, 0, 3), (5, 0, 2), (5, 1, 2))
    return Bench(driver)


class GroupsThatPermit:
    """Control groups that permit every process to open one GPU, including its instances."""

    def __init__(self, index):
        self.index = index

    def list_permitted(self, _member, devices, _now_ms):
        return [one.index for one in devices if self.index == (one.part.parent if one.part else one.index)]


def metrics_of(look, device):
    return {metric for metric, name, *_ in look if name == device}


def test_an_instance_has_its_own_values_and_no_others(bench):
    bench.look()
    look = bench.look()
    names = {"gpu0", "gpu1", "gpu2", "gpu1:3", "gpu1:5", "gpu1:5:1"}
    assert {device for _, device, *_ in look} == names
    profile = {metric for metric in metrics_of(look, "gpu0") if metric.endswith((".active", ".occupancy"))}
    for name in sorted(names - {"gpu0", "gpu1", "gpu2"}):
        assert metrics_of(look, name) <= OWN | profile | {"gpu.processes.foreign"}
        assert OWN - metrics_of(look, name) == ({"gpu.memory.limit"} if name == "gpu1:5:1" else set())
    assert look["gpu.memory.limit", "gpu1:3", "", ""] == 3 * 2**34
    assert look["gpu.memory.usage", "gpu1:3", "", ""] == 3 * 2**30
    assert look["gpu.sm.active", "gpu1:3", "", ""] == pytest.approx(0.715 * 3 / 7)
    assert bench.driver.misuse == 0


def test_the_gpu_of_instances_has_what_is_measured_for_the_whole_alone(bench):
    bench.look()
    look = bench.look()
    found = metrics_of(look, "gpu1")
    assert {"gpu.power", "gpu.energy", "gpu.temperature", "gpu.clock.sm", "gpu.state"} <= found
    assert ("gpu.ecc.uncorrected", "gpu1", "", "") in bench.look(bench.now_ms + 60_000)
    assert not found & {"gpu.utilization", "gpu.memory.usage", "gpu.sm.active", "gpu.processes"}
    assert look["gpu.utilization", "gpu0", "", ""] == pytest.approx(0.83)


def test_the_record_has_parent_slices_and_memory(bench):
    bench.look()
    found = {bench.collector.device_name(one.index): one for one in bench.collector.devices}
    assert found["gpu1:3"].uuid.startswith("MIG-")
    assert found["gpu1:3"].details == {
        "vendor": "nvidia",
        "driver": found["gpu1"].details["driver"],
        "parent": found["gpu1"].uuid,
        "slices": 3,
        "memory": 3 * 2**34,
    }
    assert found["gpu1:3"].pci == "", "a line of the kernel means the whole GPU"


def test_processes_of_an_instance_own_it(bench):
    bench.by_pid |= {7: member("j"), 8: member("k"), 9: member("k", "worker-1")}
    bench.devices[1].run((7, 10), (8, 20), (9, 30))
    bench.devices[1].run_in(0, 1, 2)
    bench.look()
    look = bench.look()
    owners = {(device, job, replica) for metric, device, job, replica in look if metric == "gpu.sm.active" and job}
    assert owners == {("gpu1:3", "j", "worker-0"), ("gpu1:5", "k", "worker-0"), ("gpu1:5:1", "k", "worker-1")}
    assert {key[1]: value for key, value in look.items() if key[0] == "gpu.process.memory.usage"} == {
        "gpu1:3": 10,
        "gpu1:5": 20,
        "gpu1:5:1": 30,
    }
    assert {key[2] for key in look if key[:2] == ("gpu.power", "gpu1")} == {""}


def test_compute_instances_of_one_gpu_instance_share_its_memory(bench):
    bench.by_pid |= {8: member("j"), 9: member("k")}
    bench.devices[1].run((8, 20), (9, 30))
    bench.devices[1].run_in(1, 2)
    found = bench.look()
    used = {key[1:3]: value for key, value in found.items() if key[0] == "gpu.memory.usage" and key[1] != "gpu0"}
    assert {name: used.get(name) for name in (("gpu1:5", "j"), ("gpu1:5:1", "k"))} == {
        ("gpu1:5", "j"): 20,
        ("gpu1:5:1", "k"): 30,
    }
    limits = {device: value for (metric, device, *_), value in found.items() if metric == "gpu.memory.limit"}
    assert {name: limits.get(name) for name in ("gpu1:5", "gpu1:5:1")} == {"gpu1:5": 2 * 2**34, "gpu1:5:1": None}
    slices = {bench.collector.device_name(one.index): one.details.get("slices") for one in bench.collector.devices}
    assert (slices["gpu1:5"], slices["gpu1:5:1"]) == (1, 1)


def test_an_idle_instance_belongs_to_the_job_whose_environment_names_it(bench):
    bench.look()
    uuid = next(one.uuid for one in bench.collector.devices if one.index > 10_000)
    bench.members.others = [member("j", devices=(("CUDA_VISIBLE_DEVICES", uuid),))]
    bench.look()
    assert [(one[0], one[2], one[6]) for one in bench.allocations()] == [("j", "gpu1:3", "environment")]


@pytest.mark.parametrize("variables", [(), (("SLURM_STEP_GPUS", "1"),)], ids=["group", "environment"])
def test_a_job_on_an_instance_has_the_instance_alone(bench, variables):
    """The job's group permits the whole GPU, because groups list whole devices."""
    bench = Bench(bench.driver, groups=GroupsThatPermit(1))
    bench.by_pid[7] = member("j", devices=variables)
    bench.members.others = [bench.by_pid[7]]
    bench.devices[1].run((7, 10))
    bench.devices[1].run_in(0)
    bench.look()
    look = bench.look()
    assert {(one[0], one[2]) for one in bench.allocations()} == {("j", "gpu1:3")}
    assert {job for metric, device, job, _ in look if (metric, device) == ("gpu.power", "gpu1")} == {""}


def test_the_kubelets_ids_of_instances(bench):
    bench.look()
    devices = bench.collector.devices
    found = {bench.collector.device_name(one.index): one for one in devices}
    ids = [found["gpu1:3"].uuid, f"MIG-{found['gpu1'].uuid}/5/1", f"MIG-{found['gpu1'].uuid}/9/0", found["gpu0"].uuid]
    names = [bench.collector.device_name(index) for index in find_indices(VENDOR, ids, devices)]
    assert names == ["gpu1:3", "gpu1:5:1", "gpu1", "gpu0"]


def test_a_prologs_file_names_an_instance(bench, tmp_path):
    bench.look()
    folder = tmp_path / "mapping"
    folder.mkdir()
    for name in ("1.3", "2.9", "0"):
        (folder / name).write_text("21")
    bench.members.others = [member("21")]
    found = PrologAllocations(folder, bench.members.list_members).find_owners(bench.collector.devices, 0)
    assert {bench.collector.device_name(index) for index in found} == {"gpu1:3", "gpu2", "gpu0"}


def test_instances_that_come_and_go_are_found_without_a_restart(bench):
    bench.look()
    bench.by_pid[9] = member("k")
    bench.devices[1].run((9, 30))
    bench.devices[1].run_in(2)
    bench.look()
    bench.devices[1].run()
    bench.devices[1].split((3, 0, 3), (1, 0, 1))
    bench.look()
    look = bench.look()
    assert {device for _, device, *_ in look} == {"gpu0", "gpu1", "gpu2", "gpu1:3", "gpu1:1"}
    assert bench.driver.misuse == 0
    assert bench.driver.samples == 4, "a sample of each GPU without instances and one of each instance"
    assert [(one[2], one[4] is None) for one in bench.allocations()] == [("gpu1:5:1", True), ("gpu1:5:1", False)]
    assert bench.events() == [], "instances are removed on purpose"


def test_instances_stay_while_one_of_them_cannot_be_listed(bench):
    bench.by_pid[9] = member("k")
    bench.devices[1].run((9, 30))
    bench.devices[1].run_in(2)
    bench.look()
    bench.allocations()
    bench.devices[1].fail(999, Call.UUID)
    look = bench.look()
    assert {device for _, device, *_ in look} == {"gpu0", "gpu1", "gpu2", "gpu1:3", "gpu1:5", "gpu1:5:1"}
    assert bench.allocations() == []
    assert bench.driver.misuse == 0


def test_a_lost_gpu_takes_its_instances_along_and_nobody_else(bench):
    bench.look()
    bench.devices[1].fail(15)
    for _ in range(2):
        bench.look()
    look = bench.look()
    assert {device for metric, device, *_ in look if metric == "gpu.sm.active"} == {"gpu0", "gpu2"}
    states = {device: value for (metric, device, *_), value in look.items() if metric == "gpu.state"}
    assert {states[name] for name in ("gpu1", "gpu1:3", "gpu1:5")} == {DeviceState.LOST.code}
    bench.devices[1].answer()
    for _ in range(7):
        bench.look()
    look = bench.look()
    assert {device for metric, device, *_ in look if metric == "gpu.sm.active"} >= {"gpu1:3", "gpu1:5", "gpu1:5:1"}
    assert bench.driver.misuse == 0


def test_a_listing_that_hangs_holds_up_its_gpu_alone(bench):
    bench = Bench(bench.driver, patience=0.05)
    wait_until(lambda: ("gpu.sm.active", "gpu1:3", "", "") in bench.look(), "all answer")
    bench.devices[1].block(1, Call.MIG)
    wait_until(lambda: ("gpu.power", "gpu2", "", "") in bench.look(), "the others go on")
    bench.devices[1].block(0, Call.MIG)
    wait_until(lambda: ("gpu.sm.active", "gpu1:3", "", "") in bench.look(), "it answers again")


def test_partitions_count_in_place_of_their_device(bench):
    bench.look()
    devices = {bench.collector.device_name(one.index): one for one in bench.collector.devices}
    (node,) = NodeReporter(PLACE, lambda: devices).take_records(0).nodes
    assert len(node.info["devices"]) == 6
    instances = [f"NVIDIA H200 MIG {slices}g" for slices in (3, 2, 2)]
    assert sorted(list_device_types(node.info)) == sorted([*["NVIDIA H200"] * 2, *instances])
    check = check_found(Machine(dev="/nowhere"), VENDOR, bench.collector.devices, None)
    assert check.text.startswith("3 GPUs and 3 partitions of them (")
