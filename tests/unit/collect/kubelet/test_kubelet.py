"""Tests of devices assigned by the kubelet: its messages, its socket, and the owners of devices."""

import pytest
from tests.unit.collect.fake_kubelet import Kubelet, Response, response
from tests.unit.collect.gpus import Gpu, Members, nvidia_collector

from jobmeter.collect.accelerators.nvidia.binding import PynvmlLibrary
from jobmeter.collect.accelerators.nvidia.vendor import VENDOR
from jobmeter.collect.base import Owner
from jobmeter.collect.discover.member import Member, MembershipSource
from jobmeter.collect.kubelet.allocated import KubeletAllocations, find_indices
from jobmeter.collect.kubelet.client import PodDevices, PodResources, read_devices
from jobmeter.errors import UnavailableError
from jobmeter.model.pod import make_pod_job
from jobmeter.model.record import check_record

UID = "0a1b2c3d-0001-0002-0003-00000000abcd"
NOW = 1_767_225_600_000


def test_the_devices_of_an_answer():
    body = response("GPU-1", "GPU-2").SerializeToString()
    assert read_devices(body) == [PodDevices("ml", "train-0", ("GPU-1", "GPU-2"), "nvidia.com/gpu")]
    assert read_devices(b"") == []


def test_devices_of_resource_claims():
    claim = {
        "cdi_devices": [{"name": "k8s.gpu.nvidia.com/device=GPU-3"}],
        "driver_name": "gpu.nvidia.com",
        "device_name": "gpu-3",
    }
    container = {"name": "main", "dynamic_resources": [{"claim_name": "c", "claim_resources": [claim]}]}
    body = Response(pod_resources=[{"name": "p", "namespace": "d", "containers": [container]}]).SerializeToString()
    assert read_devices(body) == [PodDevices("d", "p", ("gpu-3", "k8s.gpu.nvidia.com/device=GPU-3"), "gpu.nvidia.com")]


@pytest.mark.parametrize(
    ("ids", "found"),
    [
        (["GPU-1"], [1]),
        (["GPU-1", "GPU-0"], [1, 0]),
        (["GPU-1::0", "GPU-1::3"], [1]),
        (["GPU-0/2"], [0]),
        (["MIG-GPU-1/3/0"], [1]),
        (["k8s.gpu.nvidia.com/device=GPU-1"], [1]),
        (["MIG-0001", "Ascend910-2", "", "GPU-9"], []),
    ],
)
def test_ids_of_plug_ins(ids, found):
    assert find_indices(VENDOR, ids, [Gpu(0, "GPU-0"), Gpu(1, "GPU-1")]) == found


@pytest.fixture
def kubelet(tmp_path):
    made = Kubelet(tmp_path)
    yield made
    made.server.stop(0).wait()


def test_the_socket_is_queried(kubelet):
    kubelet.answer = response("GPU-1").SerializeToString()
    client = PodResources(kubelet.path)
    assert client.present
    assert client.list_devices() == [PodDevices("ml", "train-0", ("GPU-1",), "nvidia.com/gpu")]
    kubelet.answer = None
    with pytest.raises(UnavailableError, match="too many requests"):
        client.list_devices()
    kubelet.answer = b"\x0a\x7f"
    with pytest.raises(UnavailableError, match="damaged"):
        client.list_devices()
    client.close()


def test_where_there_is_no_kubelet(tmp_path):
    client = PodResources(tmp_path / "kubelet.sock")
    assert not client.present
    (tmp_path / "kubelet.sock").touch()
    assert not client.present, "a file is no socket"
    assert KubeletAllocations(VENDOR, client, list, str(tmp_path)).find_owners([Gpu(0, "GPU-0")], NOW) == {}


def member(uid, run=0):
    return Member(owner=Owner(make_pod_job(uid), "worker-0", run), source=MembershipSource.KUBERNETES, pod_id=uid)


@pytest.fixture
def bench(kubelet, tmp_path, make_driver):
    driver = make_driver(2)
    driver.install()

    class Bench:
        def __init__(self):
            self.table = Members()
            self.members, self.by_pid = self.table.others, self.table.by_pid
            self.devices = driver.devices
            for number, device in enumerate(self.devices):
                device.set(uuid=f"GPU-{number}")
            self.nvml = PynvmlLibrary(proc_root=str(tmp_path))
            driver.readers.append(self.nvml.close)
            self.folder = tmp_path / "pods"
            self.folder.mkdir()
            self.client = PodResources(kubelet.path)
            allocated = KubeletAllocations(VENDOR, self.client, self.table.list_members, str(self.folder))
            self.collector = nvidia_collector(self.nvml, self.table, allocated=[allocated])

        def owners(self, now_ms=NOW):
            found = self.collector.collect(now_ms)
            return {s.series.device: s.series.job for s in found if s.series.metric == "gpu.power"}

        def allocations(self):
            records = self.collector.allocations.take_records(0).jobs
            return [(job.job_id, a.device, a.source) for job in records for a in check_record(job).allocations]

    made = Bench()
    yield made
    made.client.close()


def test_an_idle_device_belongs_to_the_pod_that_was_given_it(bench, kubelet):
    kubelet.answer = response("GPU-1").SerializeToString()
    (bench.folder / f"ml_train-0_{UID}").mkdir()
    assert bench.owners() == {"gpu0": "", "gpu1": make_pod_job(UID)}
    assert bench.allocations() == [(make_pod_job(UID), "gpu1", "kubelet")]
    assert bench.owners(NOW + 5_000)["gpu1"]
    assert kubelet.asked == 1, "asked every ten seconds at most"
    kubelet.answer = Response().SerializeToString()
    assert bench.owners(NOW + 10_000) == {"gpu0": "", "gpu1": ""}


def test_the_living_one_of_two_pods_with_one_name_counts(bench, kubelet):
    kubelet.answer = response("GPU-1").SerializeToString()
    newer = UID.replace("0a1b", "0000")  # sorts before UID
    for uid in (UID, newer):
        (bench.folder / f"ml_train-0_{uid}").mkdir()
    bench.members.append(member(newer, 2))
    assert bench.owners()["gpu1"] == make_pod_job(newer)


def test_a_stranger_on_a_device_that_was_given_to_another_counts_as_both(bench, kubelet):
    kubelet.answer = response("GPU-1").SerializeToString()
    (bench.folder / f"ml_train-0_{UID}").mkdir()
    other = member(UID.replace("0a1b", "ffff"))
    bench.members.append(other)
    bench.by_pid[7] = other
    bench.devices[1].run((7, 2**30))
    assert bench.owners()["gpu1"] == "", "of two jobs: measured for nobody"
    assert sorted(bench.allocations()) == [
        (make_pod_job(UID), "gpu1", "kubelet"),
        (other.owner.job, "gpu1", "process"),
    ]


def test_a_kubelet_that_does_not_answer_is_reported_once(bench, kubelet, caplog):
    kubelet.answer = None
    bench.owners()
    bench.owners(NOW + 10_000)
    assert [record.message for record in caplog.records if "too many" in record.message] == [
        f"the kubelet does not answer at {kubelet.path}: too many requests: allocations of devices are unknown"
    ]
