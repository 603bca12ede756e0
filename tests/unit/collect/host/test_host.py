"""Tests of the node's collectors, each against a recorded tree with figures worked out by hand."""

import os
import threading

import pytest
from tests.unit.collect.trees import HOST, plant

from jobmeter.collect.base import NodeIdentity
from jobmeter.collect.host.cpu import CpuCollector
from jobmeter.collect.host.disk import DiskCollector
from jobmeter.collect.host.filesystem import FilesystemCollector, parse_mount_points
from jobmeter.collect.host.load import LoadCollector
from jobmeter.collect.host.memory import MemoryCollector
from jobmeter.collect.host.network import LinkCollector, NetworkCollector
from jobmeter.collect.host.network_storage import NetworkStorageCollector
from jobmeter.collect.host.numa import NumaCollector
from jobmeter.collect.host.pressure import PressureCollector
from jobmeter.collect.host.sensors import SensorCollector
from jobmeter.testing.collector import NOW_MS, CollectorContract

PLACE = NodeIdentity("n1", "c1")


@pytest.fixture
def root(tmp_path):
    return plant(tmp_path, HOST)


def found(collector):
    return {(s.series.metric, *(value for _, value in s.series.labels)): s.value for s in collector.collect(NOW_MS)}


def statvfs(path):
    return os.statvfs_result((4096, 4096, 1000, 500, 400, 10, 5, 5, 0, 255))


class TestCpu(CollectorContract):
    @pytest.fixture
    def collector(self, root):
        return CpuCollector(PLACE, f"{root}/proc", 100)

    def test_the_figures(self, collector):
        values = found(collector)
        assert values["node.cpu.time", "user"] == 2947.16
        assert values["node.cpu.time", "steal"] == 448.75
        assert values["node.cpu.count",] == 2
        assert values["node.processes.running",] == 14
        assert values["node.processes.blocked",] == 1

    def test_iowait_that_steps_back_stays(self, collector, root):
        before = found(collector)["node.cpu.time", "iowait"]
        plant(root, {"proc/stat": HOST["proc/stat"].replace(" 3585 ", " 3580 ")})
        assert found(collector)["node.cpu.time", "iowait"] == before


class TestMemory(CollectorContract):
    @pytest.fixture
    def collector(self, root):
        return MemoryCollector(PLACE, f"{root}/proc")

    def test_the_figures(self, collector):
        values = found(collector)
        assert values["node.memory.total",] == 24684096 * 1024
        assert values["node.memory.available",] == 22450440 * 1024
        assert values["node.memory.oom.kills",] == 3
        assert values["node.swap.total",] == 0
        page = os.sysconf("SC_PAGE_SIZE")
        assert (values["node.swap.in",], values["node.swap.out",]) == (7 * page, 11 * page)
        assert values["node.memory.buffers",] == 52108 * 1024
        # This kernel reports no size of a huge page and no stall counts.
        assert not {("node.memory.huge.free",), ("node.memory.stalls",)} & values.keys()

    def test_stalls_of_each_zone_are_added(self, collector, root):
        plant(root, {"proc/vmstat": "allocstall_dma 1\nallocstall_normal 5\nallocstall_movable 11\n"})
        assert found(collector)["node.memory.stalls",] == 17


class TestLoad(CollectorContract):
    @pytest.fixture
    def collector(self, root):
        return LoadCollector(PLACE, f"{root}/proc")

    def test_the_figures(self, collector):
        assert found(collector) == {("node.load1",): 12.79, ("node.load5",): 9.70, ("node.load15",): 5.82}


class TestPressure(CollectorContract):
    @pytest.fixture
    def collector(self, root):
        return PressureCollector(PLACE, f"{root}/proc")

    def test_what_the_kernel_does_not_give_is_absent(self, collector):
        assert found(collector) == {
            ("node.pressure.cpu",): 999.541473,
            ("node.pressure.io",): 68.70445,
            ("node.pressure.io.full",): 22.987596,
        }


class TestDisk(CollectorContract):
    @pytest.fixture
    def collector(self, root):
        return DiskCollector(PLACE, f"{root}/proc", f"{root}/sys")

    def test_only_whole_disks_count(self, collector):
        assert found(collector) == {
            ("node.disk.read", "vda"): 19758642 * 512,
            ("node.disk.write", "vda"): 26224800 * 512,
            ("node.disk.time", "vda"): 111.020,
            ("node.disk.operations", "read", "vda"): 304801,
            ("node.disk.operations", "write", "vda"): 307053,
            ("node.disk.operation.time", "read", "vda"): pytest.approx(303.932),
            ("node.disk.operation.time", "write", "vda"): pytest.approx(315.759),
            ("node.disk.queue", "vda"): 0,
        }


class TestNetwork(CollectorContract):
    @pytest.fixture
    def collector(self, root):
        return NetworkCollector(PLACE, f"{root}/proc", f"{root}/sys")

    def test_only_hardware_counts(self, collector):
        values = found(collector)
        assert values["node.network.receive", "eth0"] == 1162244620
        assert values["node.network.transmit", "eth0"] == 2978760
        assert values["node.network.errors", "receive", "eth0"] == 1
        assert values["node.network.dropped", "transmit", "eth0"] == 4
        assert values["node.network.packets", "receive", "eth0"] == 55483
        assert values["node.network.packets", "transmit", "eth0"] == 28305
        assert (values.pop(("node.tcp.sent",)), values.pop(("node.tcp.retransmitted",))) == (529301, 37)
        assert {key[-1] for key in values} == {"eth0"}

    @pytest.mark.parametrize("text", ["", "Tcp: OutSegs RetransSegs\n", "Tcp: OutSegs\nTcp: 5\nTcp: 7\n", "Udp: 1\n"])
    def test_a_kernel_that_counts_no_segments_gives_none(self, root, text):
        plant(root, {"proc/net/snmp": text})
        assert not any(key[0].startswith("node.tcp") for key in found(NetworkCollector(PLACE, f"{root}/proc")))

    def test_in_a_container_everything_but_the_loopback_counts(self, root):
        collector = NetworkCollector(PLACE, f"{root}/proc", f"{root}/no-sys")
        assert {key[-1] for key in found(collector) if "network" in key[0]} == {"eth0", "br0"}

    def test_the_first_process_is_in_the_machines_own_namespace(self, root):
        plant(root, {"proc/1/net/dev": HOST["proc/net/dev"].replace("1162244620", "5")})
        assert found(NetworkCollector(PLACE, f"{root}/proc", f"{root}/sys"))["node.network.receive", "eth0"] == 5


SPEEDS_AND_BYTES = {"node.network.speed", "node.rdma.speed", "node.rdma.receive", "node.rdma.transmit"}


class TestLinks(CollectorContract):
    @pytest.fixture
    def collector(self, root):
        return LinkCollector(PLACE, sys_root=f"{root}/sys")

    def test_links_that_are_up_have_a_speed(self, collector):
        assert found(collector) == {
            ("node.network.speed", "eth0"): 25e9 / 8,
            ("node.rdma.speed", "mlx5_0:1"): 400e9 / 8,
            ("node.rdma.receive", "mlx5_0:1"): 4000,
            ("node.rdma.transmit", "mlx5_0:1"): 1000,
            ("node.rdma.receive", "mlx5_1:1"): 0,
            ("node.rdma.transmit", "mlx5_1:1"): 0,
        }

    def test_congestion_errors_and_changes_of_links(self, root):
        port, other = (f"sys/class/infiniband/{name}/ports/1" for name in ("mlx5_0", "ionic_0"))
        plant(
            root,
            {
                f"{port}/counters/port_xmit_wait": "7\n",
                f"{port}/counters/link_downed": "2\n",
                f"{port}/counters/symbol_error": "3\n",
                f"{port}/hw_counters/np_cnp_sent": "11\n",
                f"{port}/hw_counters/out_of_sequence": "13\n",
                f"{port}/hw_counters/lifespan": "10\n",
                f"{other}/hw_counters/tx_rdma_retx_pkts": "17\n",
                f"{other}/hw_counters/rx_rdma_ecn_pkts": "N/A\n",
                "sys/class/net/eth0/carrier_changes": "5\n",
                "sys/class/net/br0/carrier_changes": "9\n",
            },
        )
        values = found(LinkCollector(PLACE, sys_root=f"{root}/sys"))
        assert {key: value for key, value in values.items() if key[0] not in SPEEDS_AND_BYTES} == {
            ("node.rdma.wait", "mlx5_0:1"): 7,
            ("node.rdma.link.down", "mlx5_0:1"): 2,
            ("node.rdma.errors", "mlx5_0:1", "symbol_error"): 3,
            ("node.rdma.congestion", "mlx5_0:1", "np_cnp_sent"): 11,
            ("node.rdma.retransmits", "mlx5_0:1", "out_of_sequence"): 13,
            ("node.rdma.retransmits", "ionic_0:1", "tx_rdma_retx_pkts"): 17,
            ("node.network.carrier", "eth0"): 5,
        }

    @pytest.mark.parametrize(
        ("received", "sent"), [("rx_rdma_ucast_bytes", "tx_rdma_ucast_bytes"), ("rx_bytes", "tx_bytes")]
    )
    def test_a_driver_without_counters_of_words_gives_bytes(self, tmp_path, received, sent):
        port = "sys/class/infiniband/roce0/ports/1"
        plant(
            tmp_path,
            {f"{port}/state": "4: ACTIVE\n", f"{port}/hw_counters/{received}": "4096\n"},
            {f"{port}/hw_counters/{sent}": "7\n"},
        )
        assert found(LinkCollector(PLACE, sys_root=f"{tmp_path}/sys")) == {
            ("node.rdma.receive", "roce0:1"): 4096,
            ("node.rdma.transmit", "roce0:1"): 7,
        }
        plant(tmp_path, {f"{port}/counters/port_rcv_data": "3\n"})
        assert found(LinkCollector(PLACE, sys_root=f"{tmp_path}/sys"))["node.rdma.receive", "roce0:1"] == 12

    @pytest.mark.parametrize("speed", ["-1\n", "", "unknown\n"])
    def test_an_interface_that_does_not_say_its_speed_has_none(self, root, speed):
        plant(root, {"sys/class/net/eth0/speed": speed})
        assert ("node.network.speed", "eth0") not in found(LinkCollector(PLACE, sys_root=f"{root}/sys"))

    def test_a_machine_without_links_has_none(self, tmp_path):
        assert found(LinkCollector(PLACE, sys_root=f"{tmp_path}/sys")) == {}


class TestFilesystem(CollectorContract):
    @pytest.fixture
    def collector(self, root):
        return FilesystemCollector(PLACE, f"{root}/proc", statvfs)

    def test_the_figures(self, collector):
        values = found(collector)
        assert values["node.filesystem.size", "/"] == 4096 * 1000
        assert values["node.filesystem.available", "/"] == 4096 * 400
        assert {key[1] for key in values} == {"/", "/mnt/data sets", "/dev/shm"}

    def test_a_mount_that_hangs_holds_up_no_other_and_is_not_read_again(self, root):
        release = threading.Event()
        asked = []

        def hanging(path):
            asked.append(path)
            if path == "/mnt/data sets":
                release.wait(30)
            return statvfs(path)

        collector = FilesystemCollector(PLACE, f"{root}/proc", hanging, patience=0.6)
        try:
            for _ in range(3):
                values = found(collector)
                assert {key[1] for key in values if key[0] == "node.filesystem.size"} == {"/", "/dev/shm"}
                assert {key[1]: value for key, value in values.items() if key[0] == "node.filesystem.hangs"} == {
                    "/": 0,
                    "/dev/shm": 0,
                    "/mnt/data sets": 1,
                }
            assert asked.count("/mnt/data sets") == 1
            assert asked.count("/") == 3
        finally:
            release.set()

    def test_a_mount_that_went_away_is_absent(self, root):
        def failing(path):
            raise OSError("stale file handle")

        values = found(FilesystemCollector(PLACE, f"{root}/proc", failing))
        assert {key[0] for key in values} == {"node.filesystem.hangs"}

    def test_files_and_filesystems_that_can_only_be_read(self, collector, root):
        values = found(collector)
        assert (values["node.filesystem.files", "/"], values["node.filesystem.files.free", "/"]) == (10, 5)
        assert values["node.filesystem.read.only", "/"] == 0
        without = FilesystemCollector(
            PLACE, f"{root}/proc", lambda _path: os.statvfs_result((4096, 4096, 9, 9, 9, 0, 0, 0, os.ST_RDONLY, 255))
        )
        values = found(without)
        assert values["node.filesystem.read.only", "/"] == 1
        assert ("node.filesystem.files", "/") not in values  # a filesystem that does not count its files


CHIPS = {
    "sys/class/hwmon/hwmon0/name": "nvme\n",
    "sys/class/hwmon/hwmon0/temp1_input": "43850\n",
    "sys/class/hwmon/hwmon0/temp1_label": "Composite\n",
    "sys/class/hwmon/hwmon0/temp2_input": "-5000\n",
    "sys/class/hwmon/hwmon10/name": "nvme\n",
    "sys/class/hwmon/hwmon10/temp1_input": "40000\n",
    "sys/class/hwmon/hwmon10/temp2_input": "99000\n",
    "sys/class/hwmon/hwmon10/temp2_fault": "1\n",
    "sys/class/hwmon/hwmon2/fan1_input": "1200\n",
    "sys/class/hwmon/hwmon2/fan2_input": "\n",
    "sys/class/hwmon/hwmon2/power1_input": "95000000\n",
    "sys/class/hwmon/hwmon2/power1_average": "90000000\n",
}


class TestSensors(CollectorContract):
    @pytest.fixture
    def collector(self, tmp_path):
        return SensorCollector(PLACE, sys_root=f"{plant(tmp_path, CHIPS)}/sys")

    def test_the_figures(self, collector):
        assert found(collector) == {
            ("node.temperature", "nvme-0", "temp1 Composite"): pytest.approx(43.85),
            ("node.temperature", "nvme-0", "temp2"): -5,
            ("node.temperature", "nvme-10", "temp1"): 40,  # the second sensor has a fault
            ("node.fan.speed", "hwmon2", "fan1"): 1200,
            ("node.sensor.power", "hwmon2", "power1"): 95,
        }

    @pytest.mark.parametrize("numbers", [(0, 1), (7, 3)])
    def test_chips_of_one_name_have_the_names_of_their_devices(self, tmp_path, numbers):
        """The order of the folders changes with each boot of the machine."""
        for place, number in enumerate(numbers):
            folder = f"sys/class/hwmon/hwmon{number}"
            plant(tmp_path, {f"{folder}/name": "nvme\n", f"{folder}/temp1_input": f"{place + 1}000\n"})
            (tmp_path / folder / "device").symlink_to(f"../../nvme{place}")
        assert found(SensorCollector(PLACE, sys_root=f"{tmp_path}/sys")) == {
            ("node.temperature", "nvme-nvme0", "temp1"): 1,
            ("node.temperature", "nvme-nvme1", "temp1"): 2,
        }

    def test_cpus_of_a_package_repeat_its_throttling(self, tmp_path):
        cpus = {(0, 0): 5, (1, 0): 6, (2, 1): 0}
        for (cpu, package), count in cpus.items():
            folder = f"sys/devices/system/cpu/cpu{cpu}"
            plant(
                tmp_path,
                {
                    f"{folder}/thermal_throttle/package_throttle_count": f"{count}\n",
                    f"{folder}/topology/physical_package_id": f"{package}\n",
                },
            )
        assert found(SensorCollector(PLACE, sys_root=f"{tmp_path}/sys")) == {
            ("node.cpu.throttled", "0"): 6,
            ("node.cpu.throttled", "1"): 0,
        }

    def test_the_number_of_sensors_is_bounded(self, tmp_path):
        plant(tmp_path, {f"sys/class/hwmon/hwmon0/temp{number}_input": "1000\n" for number in range(1, 700)})
        assert len(found(SensorCollector(PLACE, sys_root=f"{tmp_path}/sys"))) == 512


class TestNuma(CollectorContract):
    @pytest.fixture
    def collector(self, tmp_path):
        system = "sys/devices/system"
        texts = {
            f"{system}/node/node0/meminfo": "Node 0 MemTotal:       4096 kB\nNode 0 MemFree:  1024 kB\n",
            f"{system}/node/node0/numastat": "numa_hit 5\nnuma_miss 3\nlocal_node 4\nother_node 1\n",
            f"{system}/node/possible": "0\n",
            f"{system}/edac/mc/mc0/ce_count": "7\n",
            f"{system}/edac/mc/power/control": "auto\n",
        }
        return NumaCollector(PLACE, sys_root=f"{plant(tmp_path, texts)}/sys")

    def test_the_figures(self, collector):
        assert found(collector) == {
            ("node.numa.memory.total", "0"): 4096 * 1024,
            ("node.numa.memory.free", "0"): 1024 * 1024,
            ("node.numa.hit", "0"): 5,
            ("node.numa.miss", "0"): 3,
            ("node.numa.remote", "0"): 1,
            ("node.memory.errors", "mc0", "corrected"): 7,
        }


LUSTRE = """\
snapshot_time             1438693064.430544 secs.usecs
read_bytes                203 samples [bytes] 4096 1048576 780261
open                      7 samples [reqs]
write_bytes               2 samples [bytes]
"""


class TestNetworkStorage(CollectorContract):
    @pytest.fixture
    def collector(self, tmp_path):
        texts = {
            "proc/1/mountstats": "device s:/x mounted on /mnt/a\\040b with fstype nfs statvers=1.1\n"
            "\tbytes:\t1 2 3 4 5 6 7 8\n\tper-op statistics\n\t  READ: 9 10 1 0 0 0 0 500\n",
            "sys/kernel/debug/lustre/llite/scratch-ffff/stats": LUSTRE,
            "proc/fs/lustre/llite/scratch-ffff/stats": LUSTRE.replace("203", "9"),
            "proc/fs/lustre/mdt/fs-MDT0000/md_stats": "close 11 samples [usecs] 1 2 3 4\n",
        }
        plant(tmp_path, texts)
        return NetworkStorageCollector(PLACE, f"{tmp_path}/proc", f"{tmp_path}/sys")

    def test_the_figures(self, collector):
        nfs = {
            key[0].removeprefix("node.nfs."): value for key, value in found(collector).items() if key[1] == "/mnt/a b"
        }
        assert nfs.items() >= {"read": 5, "write": 6, "retransmits": 1, "timeouts": 1}.items()
        assert {key: value for key, value in found(collector).items() if "lustre" in key[0]} == {
            ("node.lustre.read", "scratch-ffff"): 780261,
            ("node.lustre.operations", "scratch-ffff", "read"): 203,
            ("node.lustre.operations", "scratch-ffff", "write"): 2,
            ("node.lustre.operations", "scratch-ffff", "open"): 7,
            ("node.lustre.operations", "fs-MDT0000", "close"): 11,
        }


@pytest.mark.parametrize("make", [SensorCollector, NumaCollector])
def test_a_machine_without_the_hardware_has_no_values(make, tmp_path):
    assert make(PLACE, sys_root=f"{tmp_path}/sys").collect(NOW_MS) == []


def test_mount_points_hold_data_each_once():
    assert parse_mount_points(HOST["proc/self/mountinfo"].encode()) == ["/dev/shm", "/", "/mnt/data sets"]
    assert parse_mount_points(b"") == []
    assert parse_mount_points(b"1 2 0:9 / / rw - overlay o rw\n2 1 0:7 / /x rw - fuse.s3fs s rw\n") == ["/", "/x"]


@pytest.mark.parametrize("make", [CpuCollector, MemoryCollector, LoadCollector, DiskCollector, NetworkCollector])
def test_without_its_file_a_collector_fails_rather_than_giving_zeros(make, tmp_path):
    with pytest.raises(OSError, match="cannot be read"):
        make(PLACE, f"{tmp_path}/proc").collect(NOW_MS)


@pytest.mark.parametrize(
    "make",
    [
        CpuCollector,
        MemoryCollector,
        LoadCollector,
        PressureCollector,
        DiskCollector,
        NetworkCollector,
        FilesystemCollector,
        SensorCollector,
        NumaCollector,
        NetworkStorageCollector,
    ],
)
class TestThisMachine:
    def test_every_argument_is_documented(self, make):
        collector = make(PLACE)
        samples = collector.collect(NOW_MS)
        assert {sample.series.metric for sample in samples} <= set(collector.metrics)
        assert all(sample.series.node == "n1" for sample in samples)
