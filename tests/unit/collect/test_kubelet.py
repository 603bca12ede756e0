"""Devices by the kubelet's word: its messages, its socket, and whose a device is then."""

from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from tests.unit.collect.gpus import Gpu

from jobmeter.collect.base import Owner, Place
from jobmeter.collect.discover.member import Member, Source
from jobmeter.collect.kubelet.allocated import KubeletAllocations, indices
from jobmeter.collect.kubelet.client import PodDevices, PodResources, read_devices
from jobmeter.collect.nvidia.binding import PynvmlLibrary
from jobmeter.collect.nvidia.collector import NvidiaCollector
from jobmeter.errors import UnavailableError
from jobmeter.model.pod import job_of_pod
from jobmeter.model.record import check_record

UID = "0a1b2c3d-0001-0002-0003-00000000abcd"
NOW = 1_767_225_600_000

# https://github.com/kubernetes/kubelet/blob/master/pkg/apis/podresources/v1/api.proto, with Google's own encoder.
_MESSAGES = {
    "ListPodResourcesResponse": [("pod_resources", 1, "PodResources", True)],
    "PodResources": [
        ("name", 1, "", False),
        ("namespace", 2, "", False),
        ("containers", 3, "ContainerResources", True),
    ],
    "ContainerResources": [
        ("name", 1, "", False),
        ("devices", 2, "PodDevices", True),
        ("cpu_ids", 3, "int64", True),
        ("dynamic_resources", 5, "DynamicResource", True),
    ],
    "PodDevices": [
        ("resource_name", 1, "", False),
        ("device_ids", 2, "", True),
        ("topology", 3, "TopologyInfo", False),
    ],
    "TopologyInfo": [("nodes", 1, "NUMANode", True)],
    "NUMANode": [("ID", 1, "int64", False)],
    "DynamicResource": [
        ("claim_name", 2, "", False),
        ("claim_namespace", 3, "", False),
        ("claim_resources", 4, "ClaimResource", True),
    ],
    "ClaimResource": [
        ("cdi_devices", 1, "CDIDevice", True),
        ("driver_name", 2, "", False),
        ("pool_name", 3, "", False),
        ("device_name", 4, "", False),
    ],
    "CDIDevice": [("name", 1, "", False)],
}


def _message_class():
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="podresources.proto", package="v1", syntax="proto3")
    for name, members in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for label, number, kind, many in members:
            types = {"": field.TYPE_STRING, "int64": field.TYPE_INT64}
            message.field.add(
                name=label,
                number=number,
                type=types.get(kind, field.TYPE_MESSAGE),
                type_name=None if kind in types else f".v1.{kind}",
                label=field.LABEL_REPEATED if many else field.LABEL_OPTIONAL,
            )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("v1.ListPodResourcesResponse"))


Response = _message_class()


def response(*ids, resource="nvidia.com/gpu", name="train-0"):
    devices = {"resource_name": resource, "device_ids": list(ids), "topology": {"nodes": [{"ID": 1}]}}
    container = {"name": "main", "devices": [devices], "cpu_ids": [0, 5]}
    return Response(pod_resources=[{"name": name, "namespace": "ml", "containers": [container, {"name": "side"}]}])


def test_the_devices_of_an_answer():
    body = response("GPU-1", "GPU-2").SerializeToString()
    assert read_devices(body) == [PodDevices("ml", "train-0", ("GPU-1", "GPU-2"))]
    assert read_devices(b"") == []


def test_devices_of_resource_claims():
    claim = {
        "cdi_devices": [{"name": "k8s.gpu.nvidia.com/device=GPU-3"}],
        "driver_name": "gpu.nvidia.com",
        "device_name": "gpu-3",
    }
    container = {"name": "main", "dynamic_resources": [{"claim_name": "c", "claim_resources": [claim]}]}
    body = Response(pod_resources=[{"name": "p", "namespace": "d", "containers": [container]}]).SerializeToString()
    assert read_devices(body) == [PodDevices("d", "p", ("gpu-3", "k8s.gpu.nvidia.com/device=GPU-3"))]


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
    assert indices(ids, [Gpu(0, "GPU-0"), Gpu(1, "GPU-1")]) == found


class Kubelet:
    """A server on a socket of its own that answers as the kubelet does."""

    def __init__(self, folder):
        self.path, self.asked = folder / "kubelet.sock", 0
        self.answer: bytes | None = b""
        self.server = grpc.server(ThreadPoolExecutor(2))
        method = grpc.unary_unary_rpc_method_handler(self._list)
        service = grpc.method_handlers_generic_handler("v1.PodResourcesLister", {"List": method})
        self.server.add_generic_rpc_handlers((service,))
        self.server.add_insecure_port(f"unix:{self.path}")
        self.server.start()

    def _list(self, request, context):
        assert request == b""
        self.asked += 1
        if self.answer is None:
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many requests")
        return self.answer


@pytest.fixture
def kubelet(tmp_path):
    made = Kubelet(tmp_path)
    yield made
    made.server.stop(0).wait()


def test_the_socket_is_queried(kubelet):
    kubelet.answer = response("GPU-1").SerializeToString()
    client = PodResources(kubelet.path)
    assert client.present
    assert client.devices() == [PodDevices("ml", "train-0", ("GPU-1",))]
    kubelet.answer = None
    with pytest.raises(UnavailableError, match="too many requests"):
        client.devices()
    kubelet.answer = b"\x0a\x7f"
    with pytest.raises(UnavailableError, match="damaged"):
        client.devices()
    client.close()


def test_where_there_is_no_kubelet(tmp_path):
    client = PodResources(tmp_path / "kubelet.sock")
    assert not client.present
    (tmp_path / "kubelet.sock").touch()
    assert not client.present, "a file is no socket"
    assert KubeletAllocations(client, list).owners([Gpu(0, "GPU-0")], NOW) == {}


def member(uid, run=0):
    return Member(owner=Owner(job_of_pod(uid), "worker-0", run), source=Source.KUBERNETES, pod_id=uid)


@pytest.fixture
def bench(kubelet, tmp_path, make_driver):
    driver = make_driver(2)
    driver.install()

    class Bench:
        def __init__(self):
            self.members: list[Member] = []
            self.devices = driver.devices
            for number, device in enumerate(self.devices):
                device.set(uuid=f"GPU-{number}")
            self.nvml = PynvmlLibrary(proc_root=str(tmp_path))
            driver.readers.append(self.nvml.close)
            self.folder = tmp_path / "pods"
            self.folder.mkdir()
            self.client = PodResources(kubelet.path)
            allocated = KubeletAllocations(self.client, lambda: self.members, str(self.folder))
            self.by_pid: dict[int, Member] = {}
            self.collector = NvidiaCollector(
                Place("n1"), self.nvml, self.by_pid.get, lambda: self.members, allocated=[allocated]
            )

        def owners(self, now_ms=NOW):
            found = self.collector.collect(now_ms)
            return {s.series.device: s.series.job for s in found if s.series.metric == "gpu.power"}

        def allocations(self):
            records = self.collector.allocations.records(0).jobs
            return [(job.job_id, a.device, a.source) for job in records for a in check_record(job).allocations]

    made = Bench()
    yield made
    made.client.close()


def test_an_idle_device_belongs_to_the_pod_that_was_given_it(bench, kubelet):
    kubelet.answer = response("GPU-1").SerializeToString()
    (bench.folder / f"ml_train-0_{UID}").mkdir()
    assert bench.owners() == {"gpu0": "", "gpu1": job_of_pod(UID)}
    assert bench.allocations() == [(job_of_pod(UID), "gpu1", "kubelet")]
    assert bench.owners(NOW + 5_000)["gpu1"]
    assert kubelet.asked == 1, "asked every ten seconds at most"
    kubelet.answer = Response().SerializeToString()
    assert bench.owners(NOW + 10_000) == {"gpu0": "", "gpu1": ""}


def test_the_living_one_of_two_pods_with_one_name_counts(bench, kubelet):
    kubelet.answer = response("GPU-1").SerializeToString()
    newer = UID.replace("0a1b", "0000")  # sorts before
    for uid in (UID, newer):
        (bench.folder / f"ml_train-0_{uid}").mkdir()
    bench.members.append(member(newer, 2))
    assert bench.owners()["gpu1"] == job_of_pod(newer)


def test_a_stranger_on_a_device_that_was_given_to_another_counts_as_both(bench, kubelet):
    kubelet.answer = response("GPU-1").SerializeToString()
    (bench.folder / f"ml_train-0_{UID}").mkdir()
    other = member(UID.replace("0a1b", "ffff"))
    bench.members.append(other)
    bench.by_pid[7] = other
    bench.devices[1].run((7, 2**30))
    assert bench.owners()["gpu1"] == "", "of two jobs: measured for nobody"
    assert sorted(bench.allocations()) == [
        (job_of_pod(UID), "gpu1", "kubelet"),
        (other.owner.job, "gpu1", "process"),
    ]


def test_a_kubelet_that_does_not_answer_is_reported_once(bench, kubelet, caplog):
    kubelet.answer = None
    bench.owners()
    bench.owners(NOW + 10_000)
    assert [record.message for record in caplog.records if "too many" in record.message] == [
        f"the kubelet does not answer at {kubelet.path}: too many requests: allocations of devices are unknown"
    ]
