"""Pods to which the kubelet allocated a node's devices."""

import logging
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from jobmeter.collect.accelerators.device import Accelerator
from jobmeter.collect.accelerators.registry import find_resource_vendor
from jobmeter.collect.accelerators.vendor import Vendor
from jobmeter.collect.base import Owner
from jobmeter.collect.discover.member import Member
from jobmeter.collect.kubelet.client import PodDevices, PodResources
from jobmeter.errors import UnavailableError
from jobmeter.model.job import AllocationSource
from jobmeter.model.pod import make_pod_job

_LIST_MS = 10_000
_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class KubeletAllocations:
    """Allocations of one vendor's devices by the kubelet, read at most every 10 s. For one thread.

    Resources of other vendors are left out. A resource of no known vendor counts by the UUIDs in its ids. ``folder``
    has a folder ``NAMESPACE_NAME_UID`` for each pod of the node.
    """

    source = AllocationSource.KUBELET

    vendor: Vendor[Any]
    kubelet: PodResources
    members: Callable[[], Iterable[Member]]
    folder: str
    _listed_ms: int | None = None
    _given: list[PodDevices] = field(default_factory=list)
    _problem: str = ""

    def find_owners(self, devices: Sequence[Accelerator], now_ms: int) -> dict[int, list[Owner]]:
        """Return the pods that have each device number; empty if the kubelet does not answer."""
        if self._listed_ms is None or not 0 <= now_ms - self._listed_ms < _LIST_MS:
            self._listed_ms = now_ms
            self._given = self._list()
        if not self._given:
            return {}
        runs = {member.pod_id: member.owner for member in self.members() if member.pod_id}
        uids = self._map_uids(runs)
        found: dict[int, list[Owner]] = {}
        for given in self._given:
            uid = uids.get((given.namespace, given.pod))
            if uid is None:
                continue
            owner = runs.get(uid) or Owner(make_pod_job(uid), "worker-0")
            for index in find_indices(self.vendor, given.ids, devices, given.resource):
                if owner not in found.setdefault(index, []):
                    found[index].append(owner)
        return found

    def _list(self) -> list[PodDevices]:
        if not self.kubelet.present:
            return []
        try:
            given = self.kubelet.list_devices()
        except UnavailableError as error:
            if error.message != self._problem:
                _log.warning("%s: allocations of devices are unknown", error.message)
            self._problem = error.message
            return []
        self._problem = ""
        return [one for one in given if find_resource_vendor(one.resource) in (self.vendor, None)]

    def _map_uids(self, living: Iterable[str]) -> dict[tuple[str, str], str]:
        """Return the uid of each pod by namespace and name. Among pods of one name the one with processes counts."""
        try:
            names = sorted(entry.name for entry in os.scandir(self.folder))
        except OSError:
            return {}
        alive = set(living)
        found: dict[tuple[str, str], str] = {}
        for name in names:
            namespace, _, rest = name.partition("_")
            pod, _, uid = rest.rpartition("_")
            if uid and (found.get((namespace, pod)) not in alive or uid in alive):
                found[namespace, pod] = uid
        return found


def find_indices(
    vendor: Vendor[Any], ids: Iterable[str], devices: Sequence[Accelerator], resource: str = ""
) -> list[int]:
    """Return the distinct device numbers of a resource's ids.

    A device plug-in gives the ids. A CDI name has the id after its last ``=``.
    """
    by_name = {name: device.index for device in devices for name in (device.pci, device.uuid) if name}
    by_name |= {vendor.id_of_part(one.part): one.index for one in devices if one.part is not None}
    numbers = {device.index for device in devices if device.part is None}
    found: list[int | None] = []
    for text in (one.rpartition("=")[2] for one in ids):
        named = by_name.get(text, by_name.get(vendor.uuid_of_id(text)))
        found.append(vendor.number_of_id(resource, text, devices) if named is None else named)
    return list(dict.fromkeys(index for index in found if index is not None and index in numbers | {*by_name.values()}))
