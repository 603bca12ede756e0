"""Find the object that a job is made from: the root of a pod's owners.

Creators of pods and workloads choose their ``ownerReferences``. The API server checks neither that the owner exists nor
that it is in the same namespace; its garbage collector deletes such an object later
(https://kubernetes.io/docs/concepts/overview/working-with-objects/owners-dependents/). So a reference counts only
within the object's namespace, and for a watched kind only if that owner exists with this uid.
"""

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import StrEnum

from jobmeter.collect.scheduler.kubernetes.kinds import KINDS, SCHEDULES, OwnerKind
from jobmeter.collect.scheduler.kubernetes.objects import Metadata, Reference, Workload

POD = "Pod"
NODE = "Node"
_DEPTH = 8
"""Length of the longest chain of owners."""
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_UID = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,63}")
_KIND = re.compile(r"[A-Za-z][A-Za-z0-9]{0,62}")


class OwnerPresence(StrEnum):
    """Existence of an object on the API server."""

    THERE = "there"
    DELETED = "deleted"
    MISSING = "missing"
    """It existed, and its deletion was not observed."""


@dataclass(frozen=True, slots=True)
class RootOwner:
    """Object that a job is made from. If its kind is not watched, only its dependents name it."""

    kind: str
    name: str
    namespace: str
    uid: str

    @property
    def key(self) -> str:
        """Key of the job. Pods of another namespace never have an equal one."""
        return f"{self.namespace}/{self.kind}/{self.uid}"


@dataclass(slots=True)
class PodOwner:
    """Watched workload."""

    kind: OwnerKind
    workload: Workload
    presence: OwnerPresence = OwnerPresence.THERE
    deleted_ms: int | None = None

    @property
    def root(self) -> RootOwner:
        """Root owner that this workload is if it has no owner."""
        metadata = self.workload.metadata
        return RootOwner(self.kind.name, metadata.name, metadata.namespace, metadata.uid)


@dataclass(frozen=True, slots=True)
class Resolution:
    """Root of an object's owners. ``missing``: an owner of a watched kind that was not found yet."""

    root: RootOwner
    missing: Reference | None = None


class OwnerTable:
    """Watched workloads by uid. For one thread."""

    def __init__(self, pod: Callable[[str], Metadata | None]) -> None:
        """``pod`` returns the metadata of a known pod by its uid."""
        self._pod = pod
        self._owners: dict[str, PodOwner] = {}
        self._listed: set[OwnerKind] = set()

    def add(self, kind: OwnerKind, found: Workload) -> PodOwner:
        """Add or update a workload, and return its entry."""
        owner = self._owners.setdefault(found.metadata.uid, PodOwner(kind, found))
        owner.workload, owner.presence = found, OwnerPresence.THERE
        return owner

    def get(self, uid: str) -> PodOwner | None:
        """Return the workload with that uid."""
        return self._owners.get(uid)

    def find_workload(self, root: RootOwner) -> PodOwner | None:
        """Return the workload of a root owner; None if it is not watched."""
        owner = self._owners.get(root.uid)
        return owner if owner is not None and owner.root.key == root.key else None

    def take_list(self, kind: OwnerKind, there: Collection[str]) -> list[str]:
        """Take a complete list of a kind. Return the uids of known workloads that are not in it."""
        self._listed.add(kind)
        return [uid for uid, owner in self._owners.items() if owner.kind is kind and uid not in there]

    def forget(self, uid: str) -> None:
        """Remove a workload."""
        self._owners.pop(uid, None)

    def may_be_late(self, reference: Reference, behind: Collection[OwnerKind]) -> bool:
        """Return True if the owner's kind cannot be read now, so that an unknown owner may exist."""
        return reference.kind != POD and not any(
            kind in self._listed and kind not in behind for kind in _kinds_of(reference)
        )

    def resolve(self, start: RootOwner, metadata: Metadata) -> Resolution:
        """Follow the owners of an object up to their root. ``start`` is the object itself."""
        root = start
        for _ in range(_DEPTH):
            above = metadata.owner
            if above is None or above.kind in SCHEDULES or above.kind == NODE:
                break
            owner, pod = self._owners.get(above.uid), self._pod(above.uid)
            if owner is not None:
                if not _is_referenced(above, owner, start.namespace):
                    break
                root, metadata = owner.root, owner.workload.metadata
            elif pod is not None:
                if above.kind != POD or pod.namespace != start.namespace:
                    break
                root, metadata = RootOwner(POD, pod.name, pod.namespace, pod.uid), pod
            elif not _is_valid(above):
                break
            elif above.kind == POD or _kinds_of(above):
                return Resolution(root, above)
            else:
                return Resolution(claim_owner(above, start.namespace))
        return Resolution(root)


def claim_owner(reference: Reference, namespace: str) -> RootOwner:
    """Return the root owner that a reference claims, in this namespace."""
    return RootOwner(reference.kind, reference.name, namespace, reference.uid)


def _is_referenced(reference: Reference, owner: PodOwner, namespace: str) -> bool:
    return owner.kind in _kinds_of(reference) and owner.workload.metadata.namespace == namespace


def _is_valid(reference: Reference) -> bool:
    """Return False for a name or uid that no object of the API server can have."""
    parts = (_KIND, reference.kind), (_NAME, reference.name), (_UID, reference.uid)
    return all(pattern.fullmatch(text) for pattern, text in parts)


def _kinds_of(reference: Reference) -> list[OwnerKind]:
    """Return the watched kinds that a reference may mean. Without an API version all of its name count."""
    group = reference.api_version.rpartition("/")[0]
    return [
        kind for kind in KINDS if kind.name == reference.kind and (not reference.api_version or kind.group == group)
    ]
