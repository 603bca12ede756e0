"""Tests of short device names: they follow the order of PCI addresses on the node, even within a container."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.collect.gpus import PLACE, Gpu, ManualClock, Members, member

from jobmeter.collect.accelerators.collector import AcceleratorCollector
from jobmeter.collect.accelerators.names import DeviceNames, assign_places, number_devices
from jobmeter.collect.accelerators.nvidia.binding import PynvmlLibrary
from jobmeter.collect.accelerators.nvidia.vendor import VENDOR
from jobmeter.collect.accelerators.visible import Partition, make_scheduler_variables, parse_numbers
from jobmeter.collect.discover.devices import DeviceSet
from jobmeter.collect.machine import Machine
from jobmeter.testing.collector import NOW_MS

ADDRESSES = st.lists(st.integers(0x01, 0xFE).map("0000:{:02x}:00".format), unique=True, max_size=16).map(sorted)


@given(ADDRESSES, st.data())
def test_a_device_has_its_nodes_number_in_every_container(addresses, data):
    kept = data.draw(st.lists(st.sampled_from(addresses), unique=True).map(sorted)) if addresses else []
    found = number_devices(list(enumerate(kept)), addresses)
    assert found == {index: addresses.index(pci) for index, pci in enumerate(kept)}


@given(ADDRESSES, st.lists(st.tuples(st.sampled_from(["", "0000:ff:00", "0000:05:00"])), max_size=20))
def test_no_two_devices_have_one_number(addresses, places):
    devices = [(index, pci) for index, (pci,) in enumerate(places)]
    found = number_devices(devices, addresses)
    assert len(set(found.values())) == len(devices)
    if not addresses:
        assert found == {index: index for index, _ in devices}


@pytest.fixture
def machine(tmp_path):
    for bus in (0x1A, 0x1B, 0x1C, 0x9B):
        (tmp_path / f"sys/bus/pci/drivers/nvidia/0000:{bus:02x}:00.0").mkdir(parents=True)
    (tmp_path / "sys/bus/pci/drivers/nvidia/module").mkdir()
    return Machine(proc=str(tmp_path / "proc"), sys=str(tmp_path / "sys"), dev=str(tmp_path / "dev"))


def test_a_process_in_a_container_names_its_device_as_the_node_does(machine, make_driver):
    driver = make_driver(2)  # their addresses are 1b and 1c
    driver.install()
    driver.devices[1].set(pci="00000000:9B:00.0")
    names = DeviceNames((VENDOR,), machine).get_vendor_names(VENDOR)
    collector = AcceleratorCollector(PLACE, names, PynvmlLibrary(proc_root=machine.proc), Members(), patience=30)
    driver.readers.append(collector.release)
    found = {one.series.device for one in collector.collect(NOW_MS) if one.series.metric == "gpu.power"}
    assert found == {"gpu1", "gpu3"}


@pytest.mark.parametrize("unplugged", [False, True])
def test_a_gpu_that_disappears_takes_no_name_from_the_others(machine, make_driver, unplugged):
    """The driver renumbers the other GPUs, and an unplugged GPU leaves the list of addresses too."""
    driver = make_driver(4)
    driver.install()
    buses = ("1A", "1B", "1C", "9B")
    for one, bus in zip(driver.devices, buses, strict=True):
        one.set(pci=f"00000000:{bus}:00.0")
        one.run((100 + one.index, 1))
    members = Members()
    members.by_pid |= {100 + at: member(f"job-{at}") for at in range(4)}
    clock = ManualClock()
    names = DeviceNames((VENDOR,), machine).get_vendor_names(VENDOR)
    library = PynvmlLibrary(proc_root=machine.proc, clock=clock, patience=30)
    collector = AcceleratorCollector(PLACE, names, library, members, patience=30)
    driver.readers.append(collector.release)

    def look(now_ms):
        clock.seconds = now_ms / 1000
        found = collector.collect(now_ms)
        return {(one.series.device, one.series.job) for one in found if one.series.metric == "gpu.power"}

    everything = {(f"gpu{at}", f"job-{at}") for at in range(4)}
    assert look(NOW_MS) == everything
    collector.allocations.take_records(0)
    for one in driver.devices:
        one.fail(9)  # the driver is unloaded
    look(NOW_MS + 10_000)
    if unplugged:
        Path(machine.sys, "bus/pci/drivers/nvidia/0000:1b:00.0").rmdir()
    driver.set_count(3)
    for one, origin in zip(driver.devices[:3], (0, 2, 3), strict=True):
        one.answer()
        one.set(pci=f"00000000:{buses[origin]}:00.0", uuid=f"GPU-{origin:08x}-1d1c-d9ed-fe37-18b8466a78ad")
        one.run((100 + origin, 1))
    left = everything - {("gpu1", "job-1")}
    assert any(look(NOW_MS + 10_000 * at) == left for at in range(2, 20))
    events = [(one.reason, one.job, one.subject) for one in collector.states.take_records(0).events]
    assert events == [("GpuLost", "job-1", "device gpu1")]
    ended = {
        (job.job_id, one.device)
        for job in collector.allocations.take_records(0).jobs
        for one in job.allocations
        if one.end
    }
    assert ended == {("job-1", "gpu1")}


@given(ADDRESSES, st.data())
def test_numbers_stay_over_restarts(addresses, data):
    """Cards disappear in turn from the driver and from /sys, and the agent restarts each time."""
    uuids = {address: f"GPU-{address}" for address in addresses}
    places = assign_places({}, uuids, addresses)
    left = data.draw(st.lists(st.sampled_from(addresses), unique=True, min_size=1).map(sorted)) if addresses else []
    while left:
        places = assign_places(places, {address: uuids[address] for address in left}, left)
        found = number_devices(list(enumerate(left)), sorted(places))
        assert [found[index] for index in range(len(left))] == [addresses.index(address) for address in left]
        left = left[1:]


def test_numbers_begin_again_where_the_buses_have_other_numbers():
    before = assign_places({}, {"0000:1a:00": "GPU-a", "0000:1b:00": "GPU-b"}, [])
    moved = assign_places(before, {"0000:2a:00": "GPU-a", "0000:1b:00": "GPU-b"}, [])
    assert moved == {"0000:2a:00": "GPU-a", "0000:1b:00": "GPU-b"}
    assert assign_places(before, {"0000:3a:00": ""}, ["0000:3a:00"]) == {"0000:3a:00": ""}
    replaced = assign_places(before, {"0000:1a:00": "GPU-c", "0000:1b:00": ""}, [])
    assert replaced == {"0000:1a:00": "GPU-c", "0000:1b:00": "GPU-b"}


@pytest.mark.parametrize("damage", [None, b"not json"])
def test_names_outlive_the_agent(machine, tmp_path, damage):
    def named(buses):
        names = DeviceNames((VENDOR,), machine, tmp_path).get_vendor_names(VENDOR)
        names.assign_places([Gpu(at, f"GPU-{bus}", pci=f"0000:{bus}:00") for at, bus in enumerate(buses)])
        return [names(at) for at in range(len(buses))]

    assert named(["1a", "1b", "1c", "9b"]) == ["gpu0", "gpu1", "gpu2", "gpu3"]
    Path(machine.sys, "bus/pci/drivers/nvidia/0000:1b:00.0").rmdir()
    if damage:
        (tmp_path / "device-places.json").write_bytes(damage)
    assert named(["1a", "1c", "9b"]) == (["gpu0", "gpu1", "gpu2"] if damage else ["gpu0", "gpu2", "gpu3"])


@pytest.mark.parametrize("variable", ["SLURM_STEP_GPUS", "NVIDIA_VISIBLE_DEVICES"])
def test_numbers_of_the_node_mean_its_devices_in_a_container_with_a_few(variable):
    """The container has the node's devices 2 and 5; its driver numbers them 0 and 1."""
    variables = (*make_scheduler_variables(VENDOR.uuid_prefix), *VENDOR.variables)
    parts = [Gpu(20_300, "MIG-3", part=Partition(1, "GPU-b", 3, 0, 0))]
    devices = DeviceSet([Gpu(0, "GPU-a"), Gpu(1, "GPU-b")], variables, number={0: 2, 1: 5}.__getitem__)
    assert devices.list_visible(member("j", devices=((variable, "5,2,0"),))) == [1, 0]
    divided = DeviceSet([*devices.devices, *parts], variables, number=lambda index: {0: 2, 1: 5}.get(index, index))
    assert divided.list_visible(member("j", devices=(("NVIDIA_VISIBLE_DEVICES", "5:0"),))) == [20_300]


def test_devices_of_two_vendors_have_no_name_in_common(machine):
    other = type(VENDOR)(**{field: getattr(VENDOR, field) for field in VENDOR.__slots__} | {"name": "amd"})
    Path(machine.dev).mkdir()
    Path(machine.dev, "nvidia0").touch()
    names = DeviceNames((VENDOR, other), machine)
    for one in (names.get_vendor_names(VENDOR), names.get_vendor_names(other)):
        one.assign_places([Gpu(index) for index in range(4)])
    assert [names.get_vendor_names(VENDOR)(2), names.get_vendor_names(other)(2)] == ["gpu2", "amd2"]


RANGES = st.lists(st.tuples(st.integers(0, 9_999), st.integers(0, 9_999), st.booleans()), max_size=6)


@given(RANGES, st.sets(st.integers(0, 9_999), max_size=8))
def test_a_list_of_ranges_names_the_given_numbers_in_its_order(ranges, given_numbers):
    text = " ,".join(f"{first}-{last}" if wide else f"{first}" for first, last, wide in ranges)
    expected = [
        number
        for first, last, wide in ranges
        for number in sorted(given_numbers & set(range(first, (last if wide else first) + 1)))
    ]
    assert parse_numbers(text, given_numbers) == list(dict.fromkeys(expected))
