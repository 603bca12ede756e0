"""Used fields of the API server's objects (https://kubernetes.io/docs/reference/kubernetes-api/)."""

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any

import msgspec

from jobmeter.collect.accelerators.registry import is_device_resource

_STATIC_UID = re.compile(r"[0-9a-f]{32}")
_MIRROR, _HASH, _SOURCE = (f"kubernetes.io/config.{name}" for name in ("mirror", "hash", "source"))


class Reference(msgspec.Struct, rename="camel", frozen=True):
    """An entry of ``metadata.ownerReferences``."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class Metadata(msgspec.Struct, rename="camel", frozen=True):
    """``metadata`` of any object."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[Reference] | None = None

    def find_label(self, *names: str) -> str:
        """Return the value of the first of these labels, else of these annotations; empty without any."""
        both = {**(self.annotations or {}), **(self.labels or {})}
        return next((both[name] for name in names if both.get(name)), "")

    @property
    def owner(self) -> Reference | None:
        """Controller of the object, else its first owner."""
        owners = self.owner_references or []
        return next((owner for owner in owners if owner.controller), owners[0] if owners else None)


class Terminated(msgspec.Struct, rename="camel", frozen=True):
    """End of one run of a container."""

    exit_code: int | None = None
    reason: str = ""
    started_at: datetime | None = None
    finished_at: datetime | None = None


class Running(msgspec.Struct, rename="camel", frozen=True):
    """Start of a running container."""

    started_at: datetime | None = None


class ContainerState(msgspec.Struct, rename="camel", frozen=True):
    """State of a container. Neither field is set while it waits."""

    running: Running | None = None
    terminated: Terminated | None = None


class ContainerStatus(msgspec.Struct, rename="camel", frozen=True):
    """Status of a container.

    ``restart_count`` is the number of the run of ``state``, or of a waiting container's last run.
    """

    name: str = ""
    restart_count: int = 0
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()


class ContainerResources(msgspec.Struct, rename="camel", frozen=True):
    """Quantities by resource name."""

    limits: dict[str, str | int | float] | None = None
    requests: dict[str, str | int | float] | None = None


class Container(msgspec.Struct, rename="camel", frozen=True):
    """Container in a pod's specification."""

    name: str = ""
    resources: ContainerResources = ContainerResources()
    restart_policy: str | None = None


class PodSpec(msgspec.Struct, rename="camel", frozen=True):
    """``spec`` of a pod."""

    node_name: str = ""
    containers: list[Container] = []
    init_containers: list[Container] | None = None


class PodCondition(msgspec.Struct, rename="camel", frozen=True):
    """An entry of ``status.conditions``."""

    type: str = ""
    status: str = ""
    reason: str | None = None
    message: str | None = None
    last_transition_time: datetime | None = None


class PodStatus(msgspec.Struct, rename="camel", frozen=True):
    """``status`` of a pod."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    start_time: datetime | None = None
    container_statuses: list[ContainerStatus] | None = None
    conditions: list[PodCondition] | None = None


class PodObject(msgspec.Struct, rename="camel", frozen=True):
    """Pod."""

    metadata: Metadata = Metadata()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def static_uid(self) -> str:
        """Uid on its node of the static pod that this pod mirrors; empty for any other pod.

        A kubelet gives a static pod the MD5 digest of its manifest as uid, and creates its mirror with the node's name
        at the end of the pod's name. Anybody who may create a pod can write such annotations, so a uid counts only if
        everything else is as a kubelet writes it. The uid of another pod has dashes, and never counts.
        https://kubernetes.io/docs/reference/labels-annotations-taints/#kubernetes-io-config-mirror.
        """
        owner, node, annotations = self.metadata.owner, self.spec.node_name, self.metadata.annotations or {}
        uid = annotations.get(_MIRROR, "")
        fits = (
            owner is not None
            and (owner.kind, owner.name, owner.controller) == ("Node", node, True)
            and self.metadata.name.endswith(f"-{node}")
            and annotations.get(_HASH, uid) == uid
            and annotations.get(_SOURCE) != "api"
        )
        return uid if fits and _STATIC_UID.fullmatch(uid) else ""


class Workload(msgspec.Struct, rename="camel", frozen=True):
    """Object that owns pods or their owners. The meaning of its status depends on its kind."""

    kind: str = ""
    metadata: Metadata = Metadata()
    spec: dict[str, Any] = {}
    status: dict[str, Any] = {}


def convert_time(moment: datetime | None) -> int | None:
    """Convert a time of the API, which has whole seconds, to epoch milliseconds."""
    return None if moment is None else round(moment.timestamp() * 1000)


def read_time(text: object) -> int | None:
    """Read a time in a status as epoch milliseconds; None for an invalid one."""
    try:
        return convert_time(msgspec.convert(text, datetime)) if isinstance(text, str) else None
    except msgspec.ValidationError:
        return None


_QUANTITY = re.compile(r"(?P<number>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,3})?)(?P<suffix>[numkMGTPE]|[KMGTPE]i)?")
_SUFFIXES = {
    **{name: Decimal(1000) ** power for name, power in zip("numkMGTPE", (-3, -2, -1, 1, 2, 3, 4, 5, 6), strict=True)},
    **{f"{name}i": Decimal(1024) ** (power + 1) for power, name in enumerate("KMGTPE")},
}


def parse_quantity(value: str | float) -> Decimal | None:
    """Parse a quantity; None for an invalid or impossible one: below 0, or above 2^53."""
    match = _QUANTITY.fullmatch(str(value).strip())
    if match is None or len(str(value)) > 64:
        return None
    number = Decimal(match["number"]) * _SUFFIXES.get(match["suffix"] or "", Decimal(1))
    return number if 0 <= number <= 2**53 else None


def limit_of_pod(pod: PodSpec, resource: str) -> Decimal | None:
    """Return the limit of a pod as the kubelet enforces it; None if no container has a valid one.

    Containers that run together add their limits. One that runs before them may have a larger limit.
    """
    before = [one for one in pod.init_containers or () if one.restart_policy != "Always"]
    beside = [one for one in pod.init_containers or () if one.restart_policy == "Always"]
    together = _limits((*pod.containers, *beside), resource)
    return max([*([sum(together, Decimal(0))] if together else []), *_limits(before, resource)], default=None)


def _limits(containers: Iterable[Container], resource: str) -> list[Decimal]:
    found = (parse_quantity((one.resources.limits or {}).get(resource, "")) for one in containers)
    return [limit for limit in found if limit is not None]


class PodRequests:
    """Requests of a pod: cores, bytes of memory, and devices by resource name."""

    def __init__(self, containers: Iterable[Container]) -> None:
        self.cpu: float | None = None
        self.memory: int | None = None
        self.devices: dict[str, int] = {}
        for container in containers:
            requests = _requests(container)
            if "cpu" in requests:
                self.cpu = (self.cpu or 0.0) + float(requests["cpu"])
            if "memory" in requests:
                self.memory = (self.memory or 0) + int(requests["memory"])
            for name in filter(is_device_resource, requests):
                self.devices[name] = self.devices.get(name, 0) + int(requests[name])

    @property
    def instance_type(self) -> dict[str, int | float | str] | None:
        """Requests in the form of a job record; None without any."""
        found: dict[str, int | float | str] = {}
        if self.cpu is not None:
            found["cpu"] = self.cpu
        if self.memory is not None:
            found["memory"] = self.memory
        if self.devices:
            found["gpu_count"] = sum(self.devices.values())
            found["gpu_type"] = ",".join(sorted(self.devices))[:256]
        return found or None


def _requests(container: Container) -> Mapping[str, Decimal]:
    """Return the requests of a container. A limit without a request counts as the request."""
    both = {**(container.resources.limits or {}), **(container.resources.requests or {})}
    return {name: number for name, value in both.items() if (number := parse_quantity(value)) is not None}
