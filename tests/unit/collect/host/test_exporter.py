"""Tests of the node's collectors beside node_exporter, over the same random tree and on this machine."""

import os
import random
import re
import subprocess
import urllib.request

import pytest
from tests.support.clusters import free_port
from tests.support.needs import needing
from tests.support.waiting import wait_until
from tests.unit.collect.trees import HOST, plant

from jobmeter.collect.base import NodeIdentity
from jobmeter.collect.host.disk import DiskCollector
from jobmeter.collect.host.memory import MemoryCollector
from jobmeter.collect.host.network_storage import NetworkStorageCollector
from jobmeter.collect.host.numa import NumaCollector
from jobmeter.collect.host.sensors import SensorCollector

PLACE = NodeIdentity("n1")
LINE = re.compile(r"(\w+)(?:\{(.*)\})? (\S+)")
LABEL = re.compile(r'(\w+)="([^"]*)"')
MEMORY = (
    *("Buffers", "AnonPages", "Mapped", "Shmem", "PageTables", "KernelStack"),
    *("Writeback", "Committed_AS", "Unevictable", "Hugetlb", "Cached"),
)
CHIP = "sys/devices/platform/coretemp.0/hwmon/hwmon0"
OPERATIONS = ("NULL", "GETATTR", "READ", "WRITE", "COMMIT")

pytestmark = needing("prometheus-node-exporter")


def tree(seed: int) -> dict[str, str]:
    drawn = random.Random(seed)

    def number(most: int = 10**9) -> int:
        return drawn.randrange(1, most)

    sizes = {"MemTotal": number(), "Hugepagesize": 2048, **{name: number() for name in MEMORY}}
    meminfo = "".join(f"{name}:  {value} kB\n" for name, value in sizes.items())
    disk = " ".join(str(number()) for _ in range(17))
    per_operation = {name: [number(10**6) for _ in range(8)] for name in OPERATIONS}
    for counts in per_operation.values():
        counts[1] = counts[0] + drawn.randrange(100)
    operations = "".join(f"\t{name:>12}: {' '.join(map(str, counts))}\n" for name, counts in per_operation.items())
    return {
        "proc/stat": HOST["proc/stat"],
        "proc/meminfo": f"{meminfo}HugePages_Total: 9\nHugePages_Free: {number(1000)}\n",
        "proc/vmstat": "".join(
            f"{name} {number()}\n" for name in ("pgfault", "pgmajfault", "oom_kill", "pswpin", "pswpout")
        ),
        "proc/diskstats": f" 254 0 vda {disk}\n",
        "sys/block/vda/device/model": "",
        "proc/1/mountinfo": "31 23 0:44 / /data rw shared:1 - nfs4 10.0.0.1:/export rw,vers=4.2,addr=10.0.0.1\n",
        "proc/1/mountstats": (
            "device /dev/vda mounted on / with fstype ext4\n"
            f"device 10.0.0.1:/export mounted on /data with fstype nfs4 statvers=1.1\n\tage:\t{number(10**6)}\n"
            "\topts:\trw,vers=4.2,proto=tcp,mountaddr=10.0.0.1\n"
            f"\tevents:\t{' '.join(str(number(1000)) for _ in range(27))}\n"
            f"\tbytes:\t{' '.join(str(number()) for _ in range(8))}\n\tRPC iostats version: 1.1  p/v: 100003/4 (nfs)\n"
            f"\txprt:\ttcp 0 0 1 0 0 9 9 0 9 0 2 0 0\n\tper-op statistics\n{operations}\n"
        ),
        f"{CHIP}/name": "coretemp\n",
        f"{CHIP}/temp1_input": f"{number(10**5)}\n",
        f"{CHIP}/temp1_label": "Package id 0\n",
        f"{CHIP}/fan2_input": f"{number(10**4)}\n",
        f"{CHIP}/power1_average": f"{number()}\n",
        "sys/devices/system/edac/mc/mc0/ce_count": f"{number()}\n",
        "sys/devices/system/edac/mc/mc0/ce_noinfo_count": "0\n",
        "sys/devices/system/edac/mc/mc0/ue_count": f"{number()}\n",
        "sys/devices/system/edac/mc/mc0/ue_noinfo_count": "0\n",
        "sys/devices/system/cpu/cpu0/thermal_throttle/package_throttle_count": f"{number()}\n",
        "sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count": "0\n",
        "sys/devices/system/cpu/cpu0/topology/physical_package_id": "0\n",
        "sys/devices/system/cpu/cpu0/topology/core_id": "0\n",
        **{
            f"sys/devices/system/node/node{numa}/{file}": text
            for numa in (0, 1)
            for file, text in {
                "meminfo": f"Node {numa} MemTotal:  {number()} kB\nNode {numa} MemFree:  {number()} kB\n",
                "numastat": "".join(
                    f"{name} {number()}\n"
                    for name in ("numa_hit", "numa_miss", "numa_foreign", "interleave_hit", "local_node", "other_node")
                ),
            }.items()
        },
    }


@pytest.fixture(scope="module", params=(1, 2, 3))
def root(request, tmp_path_factory):
    folder = plant(tmp_path_factory.mktemp("tree"), tree(request.param))
    (folder / "sys/class/hwmon").mkdir(parents=True)
    (folder / "sys/class/hwmon/hwmon0").symlink_to(folder / CHIP)
    (folder / "proc/self").symlink_to("1")
    return folder


@pytest.fixture(scope="module")
def exported(root):
    """Return the exporter's values, by name and label values."""
    port = free_port()
    names = ("meminfo", "meminfo_numa", "vmstat", "diskstats", "mountstats", "hwmon", "edac", "cpu")
    command = ["prometheus-node-exporter", f"--web.listen-address=127.0.0.1:{port}", "--collector.disable-defaults"]
    command += [f"--path.procfs={root}/proc", f"--path.sysfs={root}/sys", *(f"--collector.{name}" for name in names)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            text = wait_until(lambda: _get(port), "the exporter")
        finally:
            process.terminate()
    lines = [match for line in text.splitlines() if (match := LINE.fullmatch(line))]
    return {(name, *(value for _, value in LABEL.findall(labels or ""))): float(value) for name, labels, value in
            (match.groups() for match in lines)}  # fmt: skip


def _get(port):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as reply:
            return reply.read().decode()
    except OSError:
        return None


def found(collector):
    return {(s.series.metric, *(value for _, value in s.series.labels)): s.value for s in collector.collect(1)}


def test_memory(root, exported):
    own = found(MemoryCollector(PLACE, f"{root}/proc"))
    names = "buffers anonymous mapped shared page.tables kernel.stacks writeback committed unevictable huge cached"
    for ours, theirs in zip(names.split(), MEMORY, strict=True):
        assert own[f"node.memory.{ours}",] == exported[f"node_memory_{theirs}_bytes",]
    huge = exported["node_memory_HugePages_Free",] * exported["node_memory_Hugepagesize_bytes",]
    assert own["node.memory.huge.free",] == huge
    assert own["node.memory.faults",] == exported["node_vmstat_pgfault",]
    assert own["node.swap.in",] == exported["node_vmstat_pswpin",] * os.sysconf("SC_PAGE_SIZE")


def test_disks(root, exported):
    own = found(DiskCollector(PLACE, f"{root}/proc", f"{root}/sys"))
    for direction, verb, time in (("read", "reads", "read"), ("write", "writes", "write")):
        assert own["node.disk.operations", direction, "vda"] == exported[f"node_disk_{verb}_completed_total", "vda"]
        assert own["node.disk.operation.time", direction, "vda"] == pytest.approx(
            exported[f"node_disk_{time}_time_seconds_total", "vda"]
        )
    assert own["node.disk.queue", "vda"] == exported["node_disk_io_now", "vda"]


def test_numa_and_errors_of_memory(root, exported):
    own = found(NumaCollector(PLACE, sys_root=f"{root}/sys"))
    for numa in ("0", "1"):
        assert own["node.numa.memory.free", numa] == exported["node_memory_numa_MemFree", numa]
        for ours, theirs in (("hit", "numa_hit"), ("miss", "numa_miss"), ("remote", "other_node")):
            assert own[f"node.numa.{ours}", numa] == exported[f"node_memory_numa_{theirs}_total", numa]
    assert own["node.memory.errors", "mc0", "corrected"] == exported["node_edac_correctable_errors_total", "0"]
    assert own["node.memory.errors", "mc0", "uncorrected"] == exported["node_edac_uncorrectable_errors_total", "0"]


def test_sensors(root, exported):
    own = found(SensorCollector(PLACE, sys_root=f"{root}/sys"))
    theirs = {(name, labels[-1]): value for (name, *labels), value in exported.items() if labels}
    assert own["node.temperature", "coretemp", "temp1 Package id 0"] == pytest.approx(
        theirs["node_hwmon_temp_celsius", "temp1"]
    )
    assert own["node.fan.speed", "coretemp", "fan2"] == theirs["node_hwmon_fan_rpm", "fan2"]
    assert own["node.sensor.power", "coretemp", "power1"] == pytest.approx(
        theirs["node_hwmon_power_average_watt", "power1"]
    )
    assert own["node.cpu.throttled", "0"] == exported["node_cpu_package_throttles_total", "0"]


def test_nfs(root, exported):
    own = found(NetworkStorageCollector(PLACE, f"{root}/proc", f"{root}/sys"))

    def theirs(name, *operations):
        return sum(
            value
            for (metric, *labels), value in exported.items()
            if metric == f"node_mountstats_nfs_{name}" and (not operations or set(operations) & set(labels))
        )

    assert own["node.nfs.read", "/data"] == theirs("total_read_bytes_total")
    assert own["node.nfs.write", "/data"] == theirs("total_write_bytes_total")
    for ours, names in (("read", ("READ",)), ("write", ("WRITE",)), ("other", ("NULL", "GETATTR", "COMMIT"))):
        assert own["node.nfs.operations", "/data", ours] == theirs("operations_requests_total", *names)
        assert own["node.nfs.time", "/data", ours] == pytest.approx(
            theirs("operations_request_time_seconds_total", *names)
        )
    assert own["node.nfs.timeouts", "/data"] == theirs("operations_major_timeouts_total")
    again = theirs("operations_transmissions_total") - theirs("operations_requests_total")
    assert own["node.nfs.retransmits", "/data"] == again
