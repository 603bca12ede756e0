"""Lists, over the kubelet's socket, which devices it allocated to which container.

https://kubernetes.io/docs/concepts/extend-kubernetes/compute-storage-net/device-plugins/#monitoring-device-plugin-resources
"""

import logging
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from jobmeter.collect.kubelet.messages import ContainerDevices, read_devices
from jobmeter.errors import InvalidRequestError, UnavailableError

if TYPE_CHECKING:
    import grpc

SOCKET = Path("/var/lib/kubelet/pod-resources/kubelet.sock")
_LIST = "/v1.PodResourcesLister/List"
_SECONDS = 2.0
_MOST_BYTES = 16 * 2**20
"""The kubelet's own limit of an answer."""

_log = logging.getLogger(__name__)


class PodResources:
    """For one thread. gRPC is imported only where there is a socket."""

    def __init__(self, socket: Path = SOCKET) -> None:
        self._socket = socket
        self._channel: grpc.Channel | None = None
        self._missing = False

    @property
    def present(self) -> bool:
        """Whether the kubelet's socket is there."""
        try:
            return not self._missing and stat.S_ISSOCK(self._socket.stat().st_mode)
        except OSError:
            return False

    def devices(self) -> list[ContainerDevices]:
        """The devices of every container of the node.

        Raises UnavailableError where the kubelet does not answer, or what gRPC needs is not installed.
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
        """Let go of the socket."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None
