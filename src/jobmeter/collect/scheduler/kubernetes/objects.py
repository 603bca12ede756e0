"""The fields that are read of the API server's objects (https://kubernetes.io/docs/reference/kubernetes-api/).

A field that is absent is None or empty, never a guess.
"""

from datetime import datetime
from typing import Any

import msgspec


class Reference(msgspec.Struct, rename="camel", frozen=True):
    """An entry of ``metadata.ownerReferences``."""

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

    def label(self, *names: str) -> str:
        """The value of the first of these labels that exists, else of these annotations; empty when there is none."""
        both = {**(self.annotations or {}), **(self.labels or {})}
        return next((both[name] for name in names if both.get(name)), "")

    @property
    def owner(self) -> Reference | None:
        """The controller of the object; the first owner where none is marked as controller."""
        owners = self.owner_references or []
        return next((owner for owner in owners if owner.controller), owners[0] if owners else None)

    @property
    def node_uid(self) -> str:
        """The uid of a pod on its node: of a static pod the digest of its file, else the API server's.

        https://kubernetes.io/docs/reference/labels-annotations-taints/#kubernetes-io-config-mirror
        """
        mirrors = self.owner is not None and self.owner.kind == "Node"
        return (self.annotations or {}).get("kubernetes.io/config.mirror", self.uid) if mirrors else self.uid


class Terminated(msgspec.Struct, rename="camel", frozen=True):
    """How one run of a container ended."""

    exit_code: int | None = None
    reason: str = ""
    started_at: datetime | None = None
    finished_at: datetime | None = None


class Running(msgspec.Struct, rename="camel", frozen=True):
    """Since when a container runs."""

    started_at: datetime | None = None


class ContainerState(msgspec.Struct, rename="camel", frozen=True):
    """One of the two is set, or neither while a container waits."""

    running: Running | None = None
    terminated: Terminated | None = None


class ContainerStatus(msgspec.Struct, rename="camel", frozen=True):
    """``restart_count`` is the number of the run of ``state``, or of a waiting container's last run."""

    name: str = ""
    restart_count: int = 0
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()


class Resources(msgspec.Struct, rename="camel", frozen=True):
    """Quantities by the name of the resource."""

    limits: dict[str, str | int | float] | None = None
    requests: dict[str, str | int | float] | None = None


class Container(msgspec.Struct, rename="camel", frozen=True):
    """A container as a pod's specification has it."""

    name: str = ""
    resources: Resources = Resources()


class PodSpec(msgspec.Struct, rename="camel", frozen=True):
    """``spec`` of a pod."""

    node_name: str = ""
    containers: list[Container] = []


class Condition(msgspec.Struct, rename="camel", frozen=True):
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
    conditions: list[Condition] | None = None


class Pod(msgspec.Struct, rename="camel", frozen=True):
    """A pod."""

    metadata: Metadata = Metadata()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class Workload(msgspec.Struct, rename="camel", frozen=True):
    """Any object that owns pods, or owns what owns them. What its status means depends on its kind."""

    kind: str = ""
    metadata: Metadata = Metadata()
    spec: dict[str, Any] = {}
    status: dict[str, Any] = {}


def milliseconds(moment: datetime | None) -> int | None:
    """Epoch milliseconds of a time of the API, which has whole seconds."""
    return None if moment is None else round(moment.timestamp() * 1000)


def read_time(text: object) -> int | None:
    """Epoch milliseconds of a time in a status; None for an invalid one."""
    try:
        return milliseconds(msgspec.convert(text, datetime)) if isinstance(text, str) else None
    except msgspec.ValidationError:
        return None
