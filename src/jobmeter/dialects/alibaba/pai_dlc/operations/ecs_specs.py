"""ListEcsSpecs: the instance types that jobs name.

https://www.alibabacloud.com/help/en/pai/developer-reference/api-pai-dlc-2020-12-03-listecsspecs
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from jobmeter.dialects.alibaba.common.listing import in_order, present
from jobmeter.dialects.alibaba.common.operation import Arguments, answer, in_query, listed, operation
from jobmeter.dialects.alibaba.pai_dlc.filters import MAX_PAGE
from jobmeter.dialects.alibaba.pai_dlc.specs import GIB
from jobmeter.dialects.base import Steps, execute, whole
from jobmeter.model.instance_types import MOST_JOBS, named_types, type_id
from jobmeter.model.job import InstanceType, Job, JobFilter
from jobmeter.query.defaults import job_created

DEFAULT_PAGE = 10
ACCELERATORS = ("CPU", "GPU")
RESOURCE_TYPES: Mapping[str, str] = MappingProxyType({"ECS": "ecs.", "Lingjun": "ml."})
"""Prefixes of the vendor's names of instance types, by the type of the resource."""
_Entry = tuple[InstanceType, Job]
SORTS: Mapping[str, Callable[[_Entry], Any]] = MappingProxyType(
    {
        "InstanceType": lambda one: type_id(one[0]),
        "CPU": lambda one: one[0].cpu,
        "GPU": lambda one: one[0].gpu_count,
        "Memory": lambda one: one[0].memory,
        "GmtCreateTime": lambda one: job_created(one[1]),
    }
)


@operation(
    "GET /api/v1/ecsspecs",
    "jobs:read",
    in_query("AcceleratorType", f"One of {listed(ACCELERATORS)}: types without or with GPUs. Default: all."),
    in_query("InstanceTypes", "Names, separated by commas. Default: all."),
    in_query(
        "ResourceType", f"One of {listed(RESOURCE_TYPES)}: the names of the vendor's types say which. Default: all."
    ),
    in_query("SortBy", f"One of {listed(SORTS)}, the last being the newest job's creation. Default: `InstanceType`."),
    in_query("Order", "`asc` (default) or `desc`."),
    in_query("PageNumber", "From 1, the default."),
    in_query("PageSize", f"1 to {MAX_PAGE}. Default: {DEFAULT_PAGE}."),
    by_resource=True,
)
def list_ecs_specs(arguments: Arguments) -> Steps:
    """Lists the instance types that the newest jobs name: `{EcsSpecs, TotalCount, RequestId}`.

    A member is `{InstanceType, AcceleratorType, ResourceType, Cpu, Memory, Gpu, GpuType, GpuMemory}`, memory in GiB;
    fields without a record are left out. Jobmeter offers no machines, so the availability of a type is unknown.
    """
    offset, size = arguments.page(DEFAULT_PAGE, MAX_PAGE, 10**6)
    names = frozenset(arguments.names("InstanceTypes"))
    accelerator, resource = (
        arguments.word("AcceleratorType", ACCELERATORS),
        arguments.word("ResourceType", RESOURCE_TYPES),
    )
    sort = arguments.choice("SortBy", SORTS, SORTS["InstanceType"])
    descending = arguments.descending(default=False)
    page = yield from execute(JobFilter(limit=MOST_JOBS))
    found = [
        (kind, job)
        for kind, job in named_types(page.jobs)
        if (not names or type_id(kind) in names)
        and accelerator in {"", _accelerator(kind)}
        and resource in {"", _resource_type(kind)}
    ]
    ordered = in_order(found, sort, descending=descending)
    body = {"EcsSpecs": [_spec(kind) for kind, _ in ordered[offset : offset + size]], "TotalCount": len(found)}
    return answer(body, arguments)


def _accelerator(kind: InstanceType) -> str:
    """Return one of ``ACCELERATORS``; empty for a type whose record has only a name."""
    if kind.gpu_count or kind.gpu_type:
        return "GPU"
    return "CPU" if (kind.cpu, kind.memory, kind.gpu_count) != (None, None, None) else ""


def _resource_type(kind: InstanceType) -> str:
    return next((name for name, begin in RESOURCE_TYPES.items() if type_id(kind).startswith(begin)), "")


def _spec(kind: InstanceType) -> dict[str, Any]:
    fields = {
        "InstanceType": type_id(kind),
        "AcceleratorType": _accelerator(kind),
        "ResourceType": _resource_type(kind),
        "Cpu": None if kind.cpu is None else whole(kind.cpu),
        "Memory": _gibibytes(kind.memory),
        "Gpu": kind.gpu_count,
        "GpuType": kind.gpu_type,
        "GpuMemory": _gibibytes(kind.gpu_memory),
    }
    return present(fields)


def _gibibytes(size: int | None) -> int | None:
    return None if size is None else whole(size / GIB)
