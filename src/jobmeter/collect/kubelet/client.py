"""Device allocations to containers, from the kubelet's socket.

Only the used parts of the messages of ``v1.PodResourcesLister`` are decoded:
https://github.com/kubernetes/kubelet/blob/master/pkg/apis/podresources/v1/api.proto and
https://kubernetes.io/docs/concepts/extend-kubernetes/compute-storage-net/device-plugins/#monitoring-device-plugin-resources.
"""

import logging
import stat
from collections.abc import Iterator
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

_log = logging.getLogger(__name__)


_PODS = 1 << 3 | BYTES
_POD_NAME, _POD_NAMESPACE, _POD_CONTAINERS = 1 << 3 | BYTES, 2 << 3 | BYTES, 3 << 3 | BYTES
_CONTAINER_DEVICES, _CONTAINER_DYNAMIC = 2 << 3 | BYTES, 5 << 3 | BYTES
_RESOURCE_NAME, _DEVICE_IDS = 1 << 3 | BYTES, 2 << 3 | BYTES
_CLAIM_RESOURCES, _CDI_DEVICES = 4 << 3 | BYTES, 1 << 3 | BYTES
_CLAIM_DRIVER, _CLAIM_DEVICE = 2 << 3 | BYTES, 4 << 3 | BYTES
_CDI_NAME = 1 << 3 | BYTES


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
    return [found for tag, content in _parts(body) if tag == _PODS for found in _pod(list(_parts(content)))]


def _pod(parts: list[tuple[int, bytes]]) -> Iterator[PodDevices]:
    name, namespace = _text(parts, _POD_NAME), _text(parts, _POD_NAMESPACE)
    for tag, content in parts:
        for kind, given in _parts(content) if tag == _POD_CONTAINERS else ():
            inner = list(_parts(given)) if kind in {_CONTAINER_DEVICES, _CONTAINER_DYNAMIC} else []
            if kind == _CONTAINER_DEVICES:
                ids = tuple(_decode(one) for key, one in inner if key == _DEVICE_IDS)
                yield PodDevices(namespace, name, ids, _text(inner, _RESOURCE_NAME))
            for key, body in inner:
                if kind == _CONTAINER_DYNAMIC and key == _CLAIM_RESOURCES:
                    claim = list(_parts(body))
                    yield PodDevices(namespace, name, _claim(claim), _text(claim, _CLAIM_DRIVER))


def _claim(parts: list[tuple[int, bytes]]) -> tuple[str, ...]:
    cdi = [_text(list(_parts(content)), _CDI_NAME) for tag, content in parts if tag == _CDI_DEVICES]
    return tuple(filter(None, [_text(parts, _CLAIM_DEVICE), *cdi]))


def _parts(body: bytes) -> Iterator[tuple[int, bytes]]:
    return ((tag, body[content:end]) for tag, _, content, end in iterate_fields(body, 0, len(body)) if tag & 7 == BYTES)


def _text(parts: list[tuple[int, bytes]], wanted: int) -> str:
    return next((_decode(content) for tag, content in parts if tag == wanted), "")


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
