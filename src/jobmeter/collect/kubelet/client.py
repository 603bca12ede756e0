"""Device allocations to containers, from the kubelet's socket.

Only the used parts of the messages of ``v1.PodResourcesLister`` are decoded:
https://github.com/kubernetes/kubelet/blob/master/pkg/apis/podresources/v1/api.proto and
https://kubernetes.io/docs/concepts/extend-kubernetes/compute-storage-net/device-plugins/#monitoring-device-plugin-resources.
"""

import stat
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from jobmeter.collect.machine import Machine
from jobmeter.errors import InvalidRequestError, UnavailableError
from jobmeter.wire.protobuf import BYTES, iterate_fields

if TYPE_CHECKING:
    import grpc

SOCKET = Path("/var/lib/kubelet/pod-resources/kubelet.sock")
_LIST = "/v1.PodResourcesLister/List"
_SECONDS = 2.0
_MOST_BYTES = 16 * 2**20
"""Largest answer of the kubelet, by its own limit."""

_Fields = Mapping[int, list[bytes]]
"""Contents of the texts, bytes and messages in a message, by the number of the field."""


@dataclass(frozen=True, slots=True)
class PodDevices:
    """Devices allocated to a container of a pod.

    ``ids`` come from a device plug-in; for a resource claim they are the driver's device names and their CDI names.
    ``resource`` is the name of the resource, or of the driver of a claim.
    """

    namespace: str
    pod: str
    ids: tuple[str, ...]
    resource: str = ""


def read_devices(body: bytes) -> list[PodDevices]:
    """Decode the devices in a ``ListPodResourcesResponse``. Raises InvalidRequestError for invalid bytes."""
    return [found for pod in _fields(body)[1] for found in _pod(_fields(pod))]


def _pod(pod: _Fields) -> Iterator[PodDevices]:
    """Yield the devices of a ``PodResources``: by ``devices`` and ``dynamic_resources`` of its ``containers``."""
    name, namespace = _text(pod, 1), _text(pod, 2)
    for container in map(_fields, pod[3]):
        for devices in map(_fields, container[2]):
            yield PodDevices(namespace, name, tuple(map(_decode, devices[2])), _text(devices, 1))
        for dynamic in map(_fields, container[5]):
            for claim in map(_fields, dynamic[4]):
                names = (_text(claim, 4), *(_text(_fields(cdi), 1) for cdi in claim[1]))
                yield PodDevices(namespace, name, tuple(filter(None, names)), _text(claim, 2))


def _fields(body: bytes) -> _Fields:
    found: defaultdict[int, list[bytes]] = defaultdict(list)
    for tag, _, content, end in iterate_fields(body, 0, len(body)):
        if tag & 7 == BYTES:
            found[tag >> 3].append(body[content:end])
    return found


def _text(message: _Fields, number: int) -> str:
    return _decode(message[number][0]) if message[number] else ""


def _decode(content: bytes) -> str:
    return content.decode(errors="replace")


class PodResources:
    """Client of the kubelet's socket. For one thread. gRPC is imported only if there is a socket."""

    def __init__(self, socket: Path = SOCKET) -> None:
        self._socket = socket
        self._channel: grpc.Channel | None = None
        self._missing = False

    @classmethod
    def for_machine(cls, machine: Machine) -> "PodResources":
        """Return the client of a machine's kubelet."""
        return cls(Path(machine.var, SOCKET.relative_to("/var")))

    @property
    def present(self) -> bool:
        """True if the kubelet's socket exists."""
        try:
            return not self._missing and stat.S_ISSOCK(self._socket.stat().st_mode)
        except OSError:
            return False

    def list_devices(self) -> list[PodDevices]:
        """Return the devices of every container of the node.

        Raises UnavailableError if the kubelet does not answer, or gRPC is not installed.
        """
        try:
            import grpc  # noqa: PLC0415 - where there is no kubelet nobody needs it
        except ImportError as error:
            self._missing = True
            raise UnavailableError("the kubelet's socket needs the package's extra: jobmeter[kubernetes]") from error
        if self._channel is None:
            options = [("grpc.max_receive_message_length", _MOST_BYTES), ("grpc.enable_http_proxy", 0)]
            self._channel = grpc.insecure_channel(f"unix:{self._socket}", options)
        list_pods = self._channel.unary_unary(_LIST)
        try:
            body: bytes = list_pods(b"", timeout=_SECONDS)
            return read_devices(body)
        except grpc.RpcError as error:
            raise UnavailableError(f"the kubelet does not answer at {self._socket}: {error.details()}") from error
        except InvalidRequestError as error:
            raise UnavailableError(f"the kubelet's answer is damaged: {error.message}") from error

    def close(self) -> None:
        """Close the connection."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None
