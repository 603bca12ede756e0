"""JobSpecs: the resources that each role of a job requests, and the pods, limits and totals that follow from them."""

import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from jobmeter.dialects.alibaba.common.operation import make_missing_error
from jobmeter.errors import InvalidRequestError, LimitExceededError

MAX_PODS = 10_000
"""Most pods of a job that is registered here."""
GIB = 2**30

_TYPE = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,62}")
_QUANTITY = re.compile(r"(\d{1,15}(?:\.\d{1,9})?) ?([munkKMGTPE]?i?)[Bb]?")
_SUFFIXES = {
    "": 1.0,
    "m": 1e-3,
    "k": 1e3,
    **{name: 1e3 ** (power + 1) for power, name in enumerate("KMGTPE")},
    **{f"{name}i": 1024.0 ** (power + 1) for power, name in enumerate("KMGTPE")},
}


class ResourceConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The requests of one pod, as quantities in text: ``4``, ``500m``, ``64Gi``."""

    cpu: str | int | float | None = msgspec.field(default=None, name="CPU")
    gpu: str | int | float | None = msgspec.field(default=None, name="GPU")
    gpu_type: str | None = msgspec.field(default=None, name="GPUType")
    memory: str | int | float | None = msgspec.field(default=None, name="Memory")


class JobSpec(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """The members of a role of a job that Jobmeter reads."""

    type: str | None = None
    pod_count: int | None = None
    image: str | None = None
    ecs_spec: str | None = None
    resource_config: ResourceConfig | None = None
    use_spot_instance: bool | None = None
    spot_spec: dict[str, Any] | None = None
    assign_node_spec: dict[str, Any] | None = None


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """The requests of all pods together: cores, GPUs, bytes. None if unknown."""

    cpu: float | None = None
    gpu: float | None = None
    memory: float | None = None
    pods: int = 0


def check_specs(specs: Sequence[JobSpec] | None) -> list[JobSpec]:
    """Return the roles, if they are valid. Raises InvalidRequestError naming the invalid field."""
    if not specs:
        raise make_missing_error("JobSpecs")
    for at, spec in enumerate(specs):
        where = f"JobSpecs[{at}]"
        if not spec.type:
            raise make_missing_error(f"{where}.Type")
        if not _TYPE.fullmatch(spec.type):
            raise InvalidRequestError(f"{where}.Type {spec.type[:64]!r} is not a role", f"{where}.Type")
        if spec.pod_count is None or spec.pod_count < 1:
            raise InvalidRequestError(f"{where}.PodCount must be at least 1", f"{where}.PodCount")
        for name, value in _amounts(spec.resource_config or ResourceConfig()):
            parse_quantity(value, f"{where}.ResourceConfig.{name}")
    types = [str(spec.type).lower() for spec in specs]
    if len(set(types)) != len(types):
        raise InvalidRequestError("JobSpecs names a Type more than once", "JobSpecs")
    if sum(spec.pod_count or 0 for spec in specs) > MAX_PODS:
        raise LimitExceededError(f"a job may have at most {MAX_PODS} pods", "JobSpecs")
    return list(specs)


def iterate_pod_names(specs: Sequence[JobSpec]) -> Iterator[str]:
    """Yield the replicas of the roles: ``worker-0``, ``worker-1``, ..."""
    for spec in specs:
        yield from (f"{str(spec.type).lower()}-{number}" for number in range(spec.pod_count or 0))


def make_limits(specs: Sequence[JobSpec]) -> dict[str, float]:
    """Return the limits of one pod, by our names.

    They come from the role with the most pods, because a job has one set of limits.
    """
    config = _main(specs).resource_config or ResourceConfig()
    found = {"cpu.limit": parse_quantity(config.cpu, "CPU"), "memory.limit": parse_quantity(config.memory, "Memory")}
    return {name: value for name, value in found.items() if value}


def make_instance_type(specs: Sequence[JobSpec]) -> dict[str, Any]:
    """Return the instance type of a pod of the role with the most pods."""
    main = _main(specs)
    config = main.resource_config or ResourceConfig()
    memory, gpus = parse_quantity(config.memory, "Memory"), parse_quantity(config.gpu, "GPU")
    found = {
        "id": main.ecs_spec,
        "name": main.ecs_spec,
        "cpu": parse_quantity(config.cpu, "CPU"),
        "memory": None if memory is None else round(memory),
        "gpu_type": config.gpu_type,
        "gpu_count": None if gpus is None else math.ceil(gpus),
    }
    return {name: value for name, value in found.items() if value is not None}


def sum_specs(specs: Sequence[JobSpec]) -> Totals:
    """Return the requests of all pods together."""
    sums: dict[str, float] = {}
    for spec in specs:
        for name, value in _amounts(spec.resource_config or ResourceConfig()):
            number = parse_quantity(value, name)
            if number is not None:
                sums[name] = sums.get(name, 0.0) + number * (spec.pod_count or 0)
    pods = sum(spec.pod_count or 0 for spec in specs)
    return Totals(cpu=sums.get("CPU"), gpu=sums.get("GPU"), memory=sums.get("Memory"), pods=pods)


def read_specs(given: Any) -> list[JobSpec]:  # noqa: ANN401 - whatever a record holds
    """Return the roles in a job's record; empty if they are invalid."""
    try:
        return msgspec.convert(given or [], list[JobSpec])
    except msgspec.ValidationError:
        return []


def parse_quantity(value: str | float | None, field: str) -> float | None:
    """Return the number of ``4``, ``500m``, ``64Gi`` or ``64 GB``; None for an empty value.

    Raises InvalidRequestError for another text.
    """
    if value is None or value == "":
        return None
    text = value if isinstance(value, str) else f"{value:.15g}"
    found = _QUANTITY.fullmatch(text.strip())
    if found is None or found[2] not in _SUFFIXES:
        raise InvalidRequestError(f"{field} {text[:64]!r} is not a quantity such as 4, 500m or 64Gi", field)
    return float(found[1]) * _SUFFIXES[found[2]]


def _main(specs: Sequence[JobSpec]) -> JobSpec:
    return max(specs, key=lambda spec: spec.pod_count or 0)


def _amounts(config: ResourceConfig) -> tuple[tuple[str, str | float | None], ...]:
    return (("CPU", config.cpu), ("GPU", config.gpu), ("Memory", config.memory))
