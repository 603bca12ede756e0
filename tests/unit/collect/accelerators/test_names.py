"""Short names of devices: by the order of their PCI addresses on the node, wherever the process runs."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.collect.gpus import PLACE, Gpu, Members

from jobmeter.collect.accelerators.collector import AcceleratorCollector
from jobmeter.collect.accelerators.names import DeviceNames, node_numbers
from jobmeter.collect.accelerators.nvidia.binding import PynvmlLibrary
from jobmeter.collect.accelerators.nvidia.vendor import VENDOR
from jobmeter.collect.machine import Machine
from jobmeter.testing.collector import NOW_MS

ADDRESSES = st.lists(st.integers(0x01, 0xFE).map("0000:{:02x}:00".format), unique=True, max_size=16).map(sorted)


@given(ADDRESSES, st.data())
def test_a_device_has_its_nodes_number_in_every_container(addresses, data):
    kept = data.draw(st.lists(st.sampled_from(addresses), unique=True).map(sorted)) if addresses else []
    found = node_numbers(list(enumerate(kept)), addresses)
    assert found == {index: addresses.index(pci) for index, pci in enumerate(kept)}


@given(ADDRESSES, st.lists(st.tuples(st.sampled_from(["", "0000:ff:00", "0000:05:00"])), max_size=20))
def test_no_two_devices_have_one_number(addresses, places):
    devices = [(index, pci) for index, (pci,) in enumerate(places)]
    found = node_numbers(devices, addresses)
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
    names = DeviceNames((VENDOR,), machine).of(VENDOR)
    collector = AcceleratorCollector(PLACE, names, PynvmlLibrary(proc_root=machine.proc), Members(), patience=30)
    driver.readers.append(collector.release)
    found = {one.series.device for one in collector.collect(NOW_MS) if one.series.metric == "gpu.power"}
    assert found == {"gpu1", "gpu3"}


def test_devices_of_two_vendors_have_no_name_in_common(machine):
    other = type(VENDOR)(**{field: getattr(VENDOR, field) for field in VENDOR.__slots__} | {"name": "amd"})
    Path(machine.dev).mkdir()
    Path(machine.dev, "nvidia0").touch()
    names = DeviceNames((VENDOR, other), machine)
    for one in (names.of(VENDOR), names.of(other)):
        one.place([Gpu(index) for index in range(4)])
    assert [names.of(VENDOR)(2), names.of(other)(2)] == ["gpu2", "amd2"]
