"""Quantities of Kubernetes: ``500m``, ``2``, ``1.5Gi``, ``1e3``.

https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
"""

import re
from collections.abc import Iterable, Mapping
from decimal import Decimal

from jobmeter.collect.accelerators.registry import is_device_resource
from jobmeter.collect.scheduler.kubernetes.objects import Container, PodSpec

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
    """Return the requests of a container; a limit without a request counts as the request."""
    both = {**(container.resources.limits or {}), **(container.resources.requests or {})}
    return {name: number for name, value in both.items() if (number := parse_quantity(value)) is not None}
