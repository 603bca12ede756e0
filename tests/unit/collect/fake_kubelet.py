"""Fake kubelet: its messages, encoded with Google's own encoder, and a server on a socket."""

from concurrent.futures import ThreadPoolExecutor

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

# The messages of https://github.com/kubernetes/kubelet/blob/master/pkg/apis/podresources/v1/api.proto.
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


class Kubelet:
    """Server on its own socket that answers as the kubelet does."""

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
