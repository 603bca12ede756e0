"""Tests of AMD GPUs with the real collector, over one recorded folder of /sys and generated nodes."""

import json
import struct
from pathlib import Path

import pytest
from tests.unit.collect.gpus import DeviceNode, member
from tests.unit.collect.trees import plant

from jobmeter.collect import files
from jobmeter.collect.accelerators.amd.vendor import VENDOR
from jobmeter.collect.accelerators.checks import check_accelerators
from jobmeter.collect.accelerators.collector import RELEASE_MS
from jobmeter.collect.kubelet.allocated import find_indices
from jobmeter.model.catalog import find
from jobmeter.model.device import DeviceState
from jobmeter.model.task import CheckStatus
from jobmeter.testing.collector import CollectorContract

RECORDED = Path(__file__).parents[2] / "recorded"
MINUTE = 60_000


def card(number, bus, *, unique="", kfd=()):
    """Return files of a busy MI300X. ``kfd`` numbers its compute partitions; only one partition has a PCI folder."""
    folder = f"sys/devices/pci0000:{bus:02x}/0000:{bus:02x}:00.0"
    link = f"sys/class/drm/card{number}/device"
    own = {
        "vendor": "0x1002",
        "device": "0x74a1",
        "uevent": f"DRIVER=amdgpu\nPCI_SLOT_NAME=0000:{bus:02x}:00.0\n",
        "unique_id": unique or f"{bus:016x}",
        "serial_number": f"S{bus}",
        "product_name": "AMD Instinct MI300X",
        "current_compute_partition": "SPX",
        "current_memory_partition": "NPS1",
        "gpu_busy_percent": "87",
        "mem_busy_percent": "31",
        "mem_info_vram_total": str(192 * 2**30),
        "mem_info_vram_used": str(60 * 2**30),
        "pcie_replay_count": "2",
        "current_link_speed": "32.0 GT/s PCIe",
        "current_link_width": "16",
        "max_link_speed": "32.0 GT/s PCIe",
        "max_link_width": "16",
        "ras/umc_err_count": "ue: 0\nce: 4\nde: 1\n",
        "ras/gfx_err_count": "ue: 1\nce: 2\n",
        "ras/sdma_err_count": "Query currently inaccessible\n",
        "hwmon/hwmon3/temp2_label": "junction",
        "hwmon/hwmon3/temp2_input": "55000",
        "hwmon/hwmon3/temp2_crit": "100000",
        "hwmon/hwmon3/temp3_label": "mem",
        "hwmon/hwmon3/temp3_input": "48000",
        "hwmon/hwmon3/power1_input": "431250000",
        "hwmon/hwmon3/power1_cap": "750000000",
        "hwmon/hwmon3/freq1_label": "sclk",
        "hwmon/hwmon3/freq1_input": "2100000000",
        "hwmon/hwmon3/freq2_label": "mclk",
        "hwmon/hwmon3/freq2_input": "1300000000",
        f"drm/renderD{128 + number}/dev": f"226:{128 + number}",
    }
    tree = {f"{link}/{name}": text for name, text in own.items()}
    for partition, identity in enumerate(kfd):
        node = f"sys/class/kfd/kfd/topology/nodes/{number * 8 + partition + 1}"
        place = partition << 28 | bus << 8
        minor = 128 + number + 8 * partition
        tree[f"{node}/properties"] = (
            f"simd_count 1216\nsimd_per_cu 4\ndomain 0\nlocation_id {place}\ndrm_render_minor {minor}\n"
            f"num_xcc {8 // len(kfd)}\nunique_id {bus ^ partition}\n"
        )
        tree[f"{node}/gpu_id"] = str(identity)
        for bank, kind in enumerate((0, 1)):
            size = 192 * 2**30 // len(kfd) if kind else 4096
            tree[f"{node}/mem_banks/{bank}/properties"] = f"heap_type {kind}\nsize_in_bytes {size}\n"
        if partition:
            tree[f"sys/devices/platform/amdgpu_xcp_{8 * number + partition - 1}/drm/renderD{minor}/dev"] = (
                f"226:{minor}"
            )
    return tree, folder


def process(pid, **memory):
    return {f"sys/class/kfd/kfd/proc/{pid}/vram_{name[1:]}": str(number) for name, number in memory.items()}


def table(energy=2**17, read=0, limited=0, readings=0):
    """Return a table of version 1.7 with energy, one XGMI link, and a power limit that applied in some readings."""
    data = bytearray(b"\xff" * 2208)
    data[:4] = struct.pack("<HBB", 2208, 1, 7)
    struct.pack_into("<Q", data, 24, energy)
    struct.pack_into("<Q", data, 136, read)
    struct.pack_into("<6I", data, 40, readings, 0, limited, 0, 0, 0)
    return bytes(data)


class AmdNode(DeviceNode):
    """Node with AMD GPUs."""

    def __init__(self, root, cards=2, partitions=1):
        super().__init__(root)
        for number in range(cards):
            identities = [1000 * number + 7 + at for at in range(partitions)]
            plant(root, card(number, 0x10 * (number + 1), kfd=identities)[0])
        self.measure_with(VENDOR, VENDOR.open(self.clock, self.machine, 30.0))

    def folder(self, number):
        return self.root / f"sys/class/drm/card{number}/device"


@pytest.fixture
def node(tmp_path):
    return AmdNode(tmp_path)


class TestAmd(CollectorContract):
    @pytest.fixture
    def collector(self, node):
        return node.collector


def test_every_value_of_a_card(node):
    (node.folder(0) / "gpu_metrics").write_bytes(table(read=3))
    found = {metric: value for (metric, device, _), value in node.look().items() if device == "gpu0"}
    assert found == pytest.approx(
        {
            "gpu.utilization": 0.87,
            "gpu.memory.copy.utilization": 0.31,
            "gpu.memory.usage": 60 * 2**30,
            "gpu.memory.limit": 192 * 2**30,
            "gpu.power": 431.25,
            "gpu.power.limit": 750,
            "gpu.energy": 2.0,
            "gpu.temperature": 55,
            "gpu.temperature.hotspot": 55,
            "gpu.temperature.memory": 48,
            "gpu.clock.sm": 2.1e9,
            "gpu.clock.memory": 1.3e9,
            "gpu.xgmi.receive": 3 * 1024,
            "gpu.throttle.power": 0,
            "gpu.throttle.power.brake": 0,
            "gpu.throttle.thermal.hardware": 0,
            "gpu.ecc.corrected": 6,
            "gpu.ecc.uncorrected": 1,
            "gpu.ecc.deferred": 1,
            "gpu.pcie.replay": 2,
            "gpu.pcie.generation": 5,
            "gpu.pcie.generation.limit": 5,
            "gpu.pcie.width": 16,
            "gpu.pcie.width.limit": 16,
            "gpu.processes": 0,
            "gpu.processes.foreign": 0,
            "gpu.state": 0,
        }
    )
    assert all(find(metric) for metric in found)


def test_a_recorded_card_without_table_or_compute_driver(tmp_path):
    """A Vega 10 as recorded by prometheus/procfs; the file names the source and the licence."""
    plant(tmp_path, json.loads((RECORDED / "amdgpu-vega10.json").read_text())["files"])
    node = AmdNode(tmp_path, cards=0)
    found = {metric: value for (metric, device, _), value in node.look().items() if device == "gpu0"}
    assert found == pytest.approx(
        {
            "gpu.utilization": 0.04,
            "gpu.memory.usage": 1490378752,
            "gpu.memory.limit": 8573157376,
            "gpu.pcie.replay": 0,
            "gpu.pcie.generation": 3,
            "gpu.pcie.generation.limit": 3,
            "gpu.pcie.width": 16,
            "gpu.pcie.width.limit": 16,
            "gpu.state": 0,
        }
    )
    (device,) = node.collector.devices
    assert (device.uuid, device.pci, device.name) == ("GPU-0123456789abcdef", "0000:09:00", "AMD 0x687f")


def test_the_firmwares_table_gives_what_the_files_do_not(node):
    for name in ("gpu_busy_percent", "hwmon/hwmon3/power1_input", "hwmon/hwmon3/freq1_label"):
        (node.folder(0) / name).unlink()
    data = bytearray(table())
    struct.pack_into("<HH", data, 10, 700, 95)
    struct.pack_into("<8H", data, 296, *[1000, 2000] * 4)
    (node.folder(0) / "gpu_metrics").write_bytes(data)
    look = node.look()
    assert look["gpu.utilization", "gpu0", ""] == pytest.approx(0.95)
    assert look["gpu.power", "gpu0", ""] == 700
    assert look["gpu.clock.sm", "gpu0", ""] == pytest.approx(1.5e9)


@pytest.mark.parametrize("data", [b"", b"\x01", b"\xff" * 500, table()[:100]])
def test_a_table_that_cannot_be_read_costs_its_values_alone(node, data, caplog):
    (node.folder(0) / "gpu_metrics").write_bytes(data)
    for _ in range(3):
        look = node.look()
        assert look["gpu.power", "gpu0", ""] == pytest.approx(431.25)
        assert ("gpu.energy", "gpu0", "") not in look
    assert len([one for one in caplog.records if "gpu_metrics" in one.message]) == bool(data)


def test_time_slowed_is_the_share_of_readings_times_the_time(node):
    path = node.folder(0) / "gpu_metrics"
    expected = 0.0
    readings = limited = 0
    for step, (slowed, taken) in enumerate([(0, 0), (50, 100), (0, 100), (200, 100), (10, 40)]):
        limited, readings = limited + slowed, readings + taken
        path.write_bytes(table(limited=limited, readings=readings))
        expected += min(slowed / taken, 1) * 10 if step else 0
        assert node.look()["gpu.throttle.power", "gpu0", ""] == pytest.approx(expected)
    # The driver is loaded again: its counts restart at zero, the seconds do not fall.
    path.write_bytes(table(limited=1, readings=5))
    assert node.look()["gpu.throttle.power", "gpu0", ""] == pytest.approx(expected)


def test_processes_of_the_compute_driver_own_their_cards(node, tmp_path):
    node.members.by_pid |= {100: member("j"), 200: member("k")}
    plant(tmp_path, process(100, v7=4096, v1007=0))
    plant(tmp_path, process(200, v1007=8192))
    plant(tmp_path, process(300, v1007=1))
    look = node.look()
    assert look["gpu.power", "gpu0", "j"] == pytest.approx(431.25)
    assert look["gpu.process.memory.usage", "gpu0", "j"] == 4096
    assert look["gpu.process.memory.usage", "gpu1", "k"] == 8192
    assert look["gpu.power", "gpu1", ""] == pytest.approx(431.25), "a process of no job computes on it"
    assert look["gpu.processes.foreign", "gpu1", ""] == 1
    assert not [key for key in look if key[0] == "gpu.process.utilization"]


@pytest.fixture
def divided(tmp_path):
    """Return a node with a GPU in eight partitions and a whole GPU.

    The compute driver lists their folders in mixed order.
    """
    plant(tmp_path, card(0, 0x10, kfd=range(7, 15))[0])
    plant(tmp_path, card(1, 0x20, kfd=[1007])[0])
    return AmdNode(tmp_path, cards=0)


def busy_table(form, shares):
    """Return a firmware table with the utilization of each die, by partition."""
    size, content, first, each = form
    data = bytearray(b"\xff" * size)
    data[:4] = struct.pack("<HBB", size, 1, content)
    for at, dies in enumerate(shares):
        struct.pack_into(f"<{len(dies)}I", data, first + each * at, *dies)
    return bytes(data)


@pytest.mark.parametrize("form", [(1664, 6, 312, 168), (2208, 7, 344, 232), (3872, 8, 344, 440)])
def test_a_partition_has_its_processes_memory_and_utilization(divided, tmp_path, form):
    divided.members.by_pid |= {100: member("j"), 200: member("k")}
    plant(tmp_path, process(100, v9=4096, v10=1024))
    plant(tmp_path, process(200, v1007=8192))
    (divided.folder(0) / "gpu_metrics").write_bytes(busy_table(form, [[10], [20], [30, 50], [40]]))
    look = divided.look()
    assert {key[1]: value for key, value in look.items() if key[0] == "gpu.memory.usage"} == {
        **{f"gpu0:{place}": 0 for place in (0, 1, 4, 5, 6, 7)},
        "gpu0:2": 4096,
        "gpu0:3": 1024,
        "gpu1": 60 * 2**30,
    }
    assert {look["gpu.memory.limit", f"gpu0:{place}", owner] for place, owner in enumerate(["", "", "j"])} == {
        24 * 2**30
    }
    assert look["gpu.utilization", "gpu0:2", "j"] == pytest.approx(0.4)
    assert look["gpu.utilization", "gpu0:1", ""] == pytest.approx(0.2)
    assert ("gpu.utilization", "gpu0:4", "") not in look
    assert look["gpu.process.memory.usage", "gpu0:3", "j"] == 1024
    assert look["gpu.power", "gpu0", ""] == pytest.approx(431.25)
    assert {device for metric, device, _ in look if metric == "gpu.power"} == {"gpu0", "gpu1"}
    assert look["gpu.power", "gpu1", "k"] == pytest.approx(431.25)


def test_a_partition_is_described_by_its_gpu(divided):
    divided.look()
    devices = {divided.collector.device_name(one.index): one for one in divided.collector.devices}
    assert list(devices) == ["gpu0", *(f"gpu0:{place}" for place in range(8)), "gpu1"]
    first, last = devices["gpu0:0"], devices["gpu0:7"]
    assert (first.uuid, last.uuid) == ("GPU-0000000000000010:0", "GPU-0000000000000017")
    assert last.minor == 184
    assert last.details == {
        "vendor": "amd", "partition": "SPX/NPS1", "parent": "GPU-0000000000000010", "slices": 1, "memory": 24 * 2**30
    }  # fmt: skip


def test_the_kubelet_and_environments_name_partitions(divided):
    divided.look()
    devices = divided.collector.devices
    name = divided.collector.device_name
    ids = ["0000:10:00.0", "amdgpu_xcp_6", "0000:20:00.0", "amdgpu_xcp_99"]
    assert [name(at) for at in find_indices(VENDOR, ids, devices)] == ["gpu0:0", "gpu0:7", "gpu1"]
    for variables, found in (
        ({"ROCR_VISIBLE_DEVICES": "0,7,8"}, ["gpu0:0", "gpu0:7", "gpu1"]),
        ({"ROCR_VISIBLE_DEVICES": "8,2", "HIP_VISIBLE_DEVICES": "1"}, ["gpu0:2"]),
        ({"ROCR_VISIBLE_DEVICES": "GPU-0000000000000017"}, ["gpu0:7"]),
    ):
        assert [name(at) for at in divided.visible(**variables)] == found


def test_partitions_come_and_go_with_the_mode(divided, tmp_path):
    nodes = tmp_path / "sys/class/kfd/kfd/topology/nodes"
    divided.look()
    for place in range(2, 9):
        (nodes / str(place)).rename(tmp_path / f"gone-{place}")
    look = divided.look()
    assert {key[1] for key in look if key[0] == "gpu.memory.usage"} == {"gpu0", "gpu1"}
    assert divided.collector.states.take_records(0).events == []
    for place in range(2, 9):
        (tmp_path / f"gone-{place}").rename(nodes / str(place))
    assert len({key[1] for key in divided.look() if key[0] == "gpu.memory.usage"}) == 9


def test_a_collection_reads_the_topology_once(divided, monkeypatch):
    divided.look()
    read = []

    def read_pairs(path):
        read.append(path)
        return files.parse_pairs(Path(path).read_bytes())

    monkeypatch.setattr(files, "read_pairs", read_pairs)
    divided.look()
    nodes = divided.root / "sys/class/kfd/kfd/topology/nodes"
    assert sorted(path for path in read if "mem_banks" not in path) == sorted(
        str(node / "properties") for node in nodes.iterdir()
    )


def test_partitions_of_a_gpu_that_disappears_are_lost(divided):
    divided.look()
    divided.folder(0).rename(divided.root / "away")
    look = divided.look()
    states = {key[1]: value for key, value in look.items() if key[0] == "gpu.state"}
    assert states == {"gpu1": 0, **dict.fromkeys(("gpu0", *(f"gpu0:{p}" for p in range(8))), DeviceState.LOST.code)}


def test_devices_are_named_by_address_and_described(tmp_path):
    plant(tmp_path, card(0, 0x90)[0])
    plant(tmp_path, card(1, 0x20)[0])
    plant(tmp_path, {"sys/class/drm/card1-DP-1/enabled": "disabled", "sys/class/drm/card2/device/vendor": "0x8086"})
    plant(tmp_path, {"sys/module/amdgpu/version": "6.12.12"})
    node = AmdNode(tmp_path, cards=0)
    node.look()
    found = [(device.pci, device.minor, device.uuid) for device in node.collector.devices]
    assert found == [
        ("0000:20:00", 129, "GPU-0000000000000020"),
        ("0000:90:00", 128, "GPU-0000000000000090"),
    ]
    facts = {"vendor": "amd", "serial": "S32", "driver": "6.12.12", "memory": 192 * 2**30, "partition": "SPX/NPS1"}
    assert node.collector.devices[0].details == facts


def test_a_card_that_disappears_is_lost_and_one_that_returns_is_measured(node):
    node.look()
    node.folder(0).rename(node.root / "away")
    look = node.look()
    assert look["gpu.state", "gpu0", ""] == DeviceState.LOST.code
    assert ("gpu.power", "gpu0", "") not in look
    assert ("gpu.power", "gpu1", "") in look
    assert [(one.reason, one.subject) for one in node.collector.states.take_records(0).events] == [
        ("GpuLost", "device gpu0")
    ]
    (node.root / "away").rename(node.folder(0))
    for _ in range(7):
        look = node.look()
    assert ("gpu.power", "gpu0", "") in look


def test_cards_that_return_under_other_numbers_are_the_devices_of_their_addresses(tmp_path):
    node = AmdNode(tmp_path, cards=0)
    links = []
    for number, bus in enumerate((0x10, 0x20)):
        tree, target = card(number, bus)
        link = node.folder(number).parent
        plant(
            tmp_path, {name.replace(f"sys/class/drm/card{number}/device", target): text for name, text in tree.items()}
        )
        (tmp_path / target / "gpu_busy_percent").write_text(str(bus))
        link.mkdir(parents=True)
        (link / "device").symlink_to(tmp_path / target)
        links.append((link / "device", tmp_path / target))
    node.look()
    for (link, _), (_, target) in zip(links, reversed(links), strict=True):
        link.unlink()
        link.symlink_to(target)
    look = node.look()
    assert [look["gpu.utilization", name, ""] for name in ("gpu0", "gpu1")] == pytest.approx([0.16, 0.32])


def test_a_block_that_gives_no_counts_now_leaves_the_sum_as_it_was(node):
    path = node.folder(0) / "ras/umc_err_count"
    counts = path.read_text()
    found = []
    for text in (counts, "Query currently inaccessible\n", counts.replace("ce: 4", "ce: 9")):
        path.write_text(text)
        found.append(node.look(MINUTE)["gpu.ecc.corrected", "gpu0", ""])
    assert found == [6, 6, 11]
    for one in node.folder(0).glob("ras/*_err_count"):
        one.write_text("Query currently inaccessible\n")
    assert ("gpu.ecc.corrected", "gpu0", "") not in node.look(MINUTE)


@pytest.mark.parametrize("lanes", ["0", "63", "255"])
def test_a_link_of_unknown_width_has_none(node, lanes):
    for name in ("current_link_width", "max_link_width"):
        (node.folder(0) / name).write_text(lanes)
    look = node.look()
    assert ("gpu.pcie.replay", "gpu0", "") in look
    assert not {("gpu.pcie.width", "gpu0", ""), ("gpu.pcie.width.limit", "gpu0", "")} & look.keys()


def test_a_released_driver_reads_nothing(node):
    node.look()
    assert node.collector.release()
    assert node.look() == {}
    assert ("gpu.power", "gpu0", "") in node.look(RELEASE_MS)


def test_a_node_without_cards(tmp_path):
    node = AmdNode(tmp_path, cards=0)
    assert node.look() == {}
    assert not VENDOR.is_present(node.machine)
    plant(tmp_path, {"sys/bus/pci/drivers/amdgpu/0000:09:00.0/vendor": "0x1002"})
    assert VENDOR.is_present(node.machine)


def test_checks_on_request(node):
    node.look()
    (node.folder(1) / "ras/gfx_err_count").write_text("ue: 0\nce: 0\n")
    (node.folder(1) / "hwmon/hwmon3/temp2_input").write_text("101000")
    first, second = check_accelerators(node.collector, [node.collector])
    assert (first.status, first.text.partition(": ")[2]) == (CheckStatus.CRITICAL, "1 memory errors were not corrected")
    assert (second.status, second.text.partition(": ")[2]) == (
        CheckStatus.WARNING,
        "its temperature (junction) is 101 °C",
    )


@pytest.mark.parametrize(
    ("variables", "found"),
    [
        ({"ROCR_VISIBLE_DEVICES": "1,3"}, [1, 3]),
        ({"ROCR_VISIBLE_DEVICES": "GPU-0000000000000030,0"}, [2, 0]),
        ({"ROCR_VISIBLE_DEVICES": "1,9,0"}, [1]),
        ({"ROCR_VISIBLE_DEVICES": "2,3", "HIP_VISIBLE_DEVICES": "1"}, [3]),
        ({"ROCR_VISIBLE_DEVICES": "3,2", "HIP_VISIBLE_DEVICES": "0,1"}, [3, 2]),
        ({"HIP_VISIBLE_DEVICES": "2", "CUDA_VISIBLE_DEVICES": "0"}, [2]),
        ({"CUDA_VISIBLE_DEVICES": "0", "ROCR_VISIBLE_DEVICES": "1"}, [1]),
        ({"GPU_DEVICE_ORDINAL": "1"}, [1]),
        ({"HIP_VISIBLE_DEVICES": ""}, []),
        ({"HIP_VISIBLE_DEVICES": "-1"}, []),
    ],
)
def test_the_devices_in_an_environment(tmp_path, variables, found):
    assert AmdNode(tmp_path, cards=4).visible(**variables) == found


def test_the_ids_of_the_device_plug_in_are_addresses(node):
    node.look()
    ids = ["0000:20:00.0", "amd.com/gpu=0000:10:00.0", "0000:99:00.0"]
    assert find_indices(VENDOR, ids, node.collector.devices) == [1, 0]
