"""The kubelet's answer on the devices of containers, as bytes of protocol buffers.

The messages are those of ``v1.PodResourcesLister``, of which only what is read is described here:
https://github.com/kubernetes/kubelet/blob/master/pkg/apis/podresources/v1/api.proto
"""

from collections.abc import Iterator
from dataclasses import dataclass

from jobmeter.wire.protobuf import BYTES, fields

_PODS = 1 << 3 | BYTES
_POD_NAME, _POD_NAMESPACE, _POD_CONTAINERS = 1 << 3 | BYTES, 2 << 3 | BYTES, 3 << 3 | BYTES
_CONTAINER_NAME, _CONTAINER_DEVICES = 1 << 3 | BYTES, 2 << 3 | BYTES
_CONTAINER_DYNAMIC = 5 << 3 | BYTES
_RESOURCE, _DEVICE_IDS = 1 << 3 | BYTES, 2 << 3 | BYTES
_CLAIM_RESOURCES, _CDI_DEVICES, _CLAIM_DRIVER, _CLAIM_DEVICE = (
    4 << 3 | BYTES,
    1 << 3 | BYTES,
    2 << 3 | BYTES,
    4 << 3 | BYTES,
)
_CDI_NAME = 1 << 3 | BYTES


@dataclass(frozen=True, slots=True)
class ContainerDevices:
    """Devices that a container was given.

    ``resource`` is what a device plug-in calls them (``nvidia.com/gpu``), or the driver of a resource claim. ``ids``
    are the plug-in's, or of a claim the driver's names of devices and their CDI names.
    """

    namespace: str
    pod: str
    container: str
    resource: str
    ids: tuple[str, ...]


def read_devices(body: bytes) -> list[ContainerDevices]:
    """The devices in a ``ListPodResourcesResponse``. Raises InvalidRequestError for bytes that are none."""
    return [found for tag, content in _parts(body) if tag == _PODS for found in _pod(content)]


def _pod(body: bytes) -> Iterator[ContainerDevices]:
    parts = list(_parts(body))
    name, namespace = _text(parts, _POD_NAME), _text(parts, _POD_NAMESPACE)
    for tag, content in parts:
        if tag == _POD_CONTAINERS:
            container = list(_parts(content))
            for resource, ids in _container(container):
                yield ContainerDevices(namespace, name, _text(container, _CONTAINER_NAME), resource, ids)


def _container(parts: list[tuple[int, bytes]]) -> Iterator[tuple[str, tuple[str, ...]]]:
    for tag, content in parts:
        inner = list(_parts(content)) if tag in {_CONTAINER_DEVICES, _CONTAINER_DYNAMIC} else []
        if tag == _CONTAINER_DEVICES:
            yield _text(inner, _RESOURCE), tuple(_decoded(one) for kind, one in inner if kind == _DEVICE_IDS)
        for kind, claim in inner:
            if tag == _CONTAINER_DYNAMIC and kind == _CLAIM_RESOURCES:
                yield _claim(list(_parts(claim)))


def _claim(parts: list[tuple[int, bytes]]) -> tuple[str, tuple[str, ...]]:
    cdi = [_text(list(_parts(content)), _CDI_NAME) for tag, content in parts if tag == _CDI_DEVICES]
    return _text(parts, _CLAIM_DRIVER), tuple(filter(None, [_text(parts, _CLAIM_DEVICE), *cdi]))


def _parts(body: bytes) -> Iterator[tuple[int, bytes]]:
    return ((tag, body[content:end]) for tag, _, content, end in fields(body, 0, len(body)) if tag & 7 == BYTES)


def _text(parts: list[tuple[int, bytes]], wanted: int) -> str:
    return next((_decoded(content) for tag, content in parts if tag == wanted), "")


def _decoded(content: bytes) -> str:
    return content.decode(errors="replace")
