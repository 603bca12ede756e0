"""ListEcsSpecs: the instance types that jobs name.

https://www.alibabacloud.com/help/en/pai/developer-reference/api-pai-dlc-2020-12-03-listecsspecs
"""

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from msgspec import Meta

from jobmeter.dialects.alibaba.common.listing import drop_empty, sort_records
from jobmeter.dialects.alibaba.common.operation import ORDER, AlibabaRequest, answer, operation
from jobmeter.dialects.alibaba.pai_dlc.specs import GIB
from jobmeter.dialects.base import Steps, ask, round_up
from jobmeter.dialects.base.request import Choice
from jobmeter.model.instance_types import MOST_JOBS, collect_named_types, make_type_id
from jobmeter.model.job import InstanceType, Job, JobFilter
from jobmeter.query.defaults import find_creation

RESOURCE_TYPES: Mapping[str, str] = {"ECS": "ecs.", "Lingjun": "ml."}
"""Prefixes of the vendor's names of instance types, by the type of the resource."""
_Entry = tuple[InstanceType, Job]
SORTS: Mapping[str, Callable[[_Entry], Any]] = {
    "InstanceType": lambda one: make_type_id(one[0]),
    "CPU": lambda one: one[0].cpu,
    "GPU": lambda one: one[0].gpu_count,
    "Memory": lambda one: one[0].memory,
    "GmtCreateTime": lambda one: find_creation(one[1]),
}


@operation("GET /api/v1/ecsspecs", "jobs:read", by_resource=True)
class ListEcsSpecs(AlibabaRequest, frozen=True, kw_only=True):
    """Lists the instance types that the newest jobs name: `{EcsSpecs, TotalCount, RequestId}`.

    A member is `{InstanceType, AcceleratorType, ResourceType, Cpu, Memory, Gpu, GpuType, GpuMemory}`, memory in GiB;
    fields without a record are left out. Jobmeter offers no machines, so the availability of a type is unknown.
    """

    accelerator_type: Annotated[str, "Types without or with GPUs. Default: all.", Choice(("CPU", "GPU"))] = ""
    instance_types: Annotated[tuple[str, ...], "Names, separated by commas. Default: all."] = ()
    resource_type: Annotated[str, "By the vendor's names of types. Default: all.", Choice(tuple(RESOURCE_TYPES))] = ""
    sort_by: Annotated[str, "`GmtCreateTime`: the newest job's creation.", Choice(tuple(SORTS))] = "InstanceType"
    order: Annotated[bool, ORDER] = False
    page_number: Annotated[int, "From 1.", Meta(ge=1, le=10**6)] = 1
    page_size: Annotated[int, Meta(ge=1, le=1000)] = 10

    def _steps(self) -> Steps:
        page = yield from ask(JobFilter(limit=MOST_JOBS))
        found = [
            (kind, job)
            for kind, job in collect_named_types(page.jobs)
            if (not self.instance_types or make_type_id(kind) in self.instance_types)
            and self.accelerator_type in {"", _accelerator(kind)}
            and self.resource_type in {"", _resource_type(kind)}
        ]
        offset = (self.page_number - 1) * self.page_size
        ordered = sort_records(found, SORTS[self.sort_by], descending=self.order)[offset : offset + self.page_size]
        return answer({"EcsSpecs": [_spec(kind) for kind, _ in ordered], "TotalCount": len(found)}, self)


def _accelerator(kind: InstanceType) -> str:
    """Return CPU or GPU; an empty text if only the type's name is recorded."""
    if kind.gpu_count or kind.gpu_type:
        return "GPU"
    return "CPU" if (kind.cpu, kind.memory, kind.gpu_count) != (None, None, None) else ""


def _resource_type(kind: InstanceType) -> str:
    return next((name for name, begin in RESOURCE_TYPES.items() if make_type_id(kind).startswith(begin)), "")


def _spec(kind: InstanceType) -> dict[str, Any]:
    fields = {
        "InstanceType": make_type_id(kind),
        "AcceleratorType": _accelerator(kind),
        "ResourceType": _resource_type(kind),
        "Cpu": None if kind.cpu is None else round_up(kind.cpu),
        "Memory": _gibibytes(kind.memory),
        "Gpu": kind.gpu_count,
        "GpuType": kind.gpu_type,
        "GpuMemory": _gibibytes(kind.gpu_memory),
    }
    return drop_empty(fields)


def _gibibytes(size: int | None) -> int | None:
    return None if size is None else round_up(size / GIB)
