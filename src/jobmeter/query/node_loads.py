"""Load of each node of a group: the running replicas on it."""

from collections.abc import Collection

import msgspec
import numpy as np

from jobmeter.query.group import Amounts, Load
from jobmeter.query.usage import Allocated, Place, UsageParts


class _Sum(msgspec.Struct):
    cpu: float = 0.0
    memory: float = 0.0
    devices: int = 0
    replicas: int = 0
    jobs: set[str] = msgspec.field(default_factory=set)
    users: set[str] = msgspec.field(default_factory=set)

    def load(self) -> Load:
        return Load(
            requested=Amounts(cpu=self.cpu, memory=self.memory, devices=self.devices),
            replicas=self.replicas,
            jobs=tuple(sorted(self.jobs)),
            users=tuple(sorted(self.users - {""})),
        )


def compute_node_loads(parts: UsageParts, places: Collection[Place]) -> dict[Place, Load]:
    """Compute the load of each of those nodes that has replicas.

    A replica without a known cluster is matched by node name only.
    """
    by_name = {name: (cluster, name) for cluster, name in sorted(places, reverse=True)}
    found: dict[Place, _Sum] = {}

    def at(place: Place) -> _Sum | None:
        own = place if place in places else None if place[0] else by_name.get(place[1])
        return None if own is None else found.setdefault(own, _Sum())

    for number, place in enumerate(parts.places):
        one, job = at(place), parts.jobs[int(parts.job[number])]
        if one is not None:
            one.cpu += float(np.nan_to_num(parts.cpu[number]))
            one.memory += float(np.nan_to_num(parts.memory[number]))
            one.devices += job.promised_devices or 0
            one.replicas += 1
            one.jobs.add(job.job.id)
            one.users.add(job.job.user)
    for job in parts.jobs:
        if job.promised_devices is None:
            for node, _ in job.devices:
                one = at(_place_of(job, node))
                if one is not None:
                    one.devices += 1
    return {place: one.load() for place, one in found.items()}


def _place_of(job: Allocated, node: str) -> Place:
    """Return the node of a device, with the cluster of a replica of the job there if known."""
    return next((place for place in job.places.values() if place[1] == node), ("", node))
