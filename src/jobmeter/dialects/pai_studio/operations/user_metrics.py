"""GetUserViewMetrics: usage of a resource group by user.

https://help.aliyun.com/en/pai/developer-reference/api-paistudio-2022-01-12-getuserviewmetrics and
https://help.aliyun.com/zh/pai/developer-reference/api-paistudio-2022-01-12-struct-userviewmetric
"""

from collections.abc import Sequence
from typing import Any

from jobmeter.access.call import Call
from jobmeter.dialects.alibaba.operation import Arguments, answer
from jobmeter.dialects.base import Context, Operation, Parameter, Steps, execute
from jobmeter.dialects.pai_studio.names import job_type, kilobytes, megabytes_text, percent_text, whole
from jobmeter.dialects.pai_studio.operations.common import page
from jobmeter.model.order import natural
from jobmeter.model.time import MINUTE, SECOND, TimeRange
from jobmeter.query.group import Amounts, GroupQuestion, Usage
from jobmeter.query.request import GroupRef

DEFAULT_STEP_MS = 5 * MINUTE
UNKNOWN = ""
"""The text of an unknown rate."""


def get_user_view_metrics(call: Call, context: Context) -> Steps:
    """One record a user over the last time step, and one over all of them."""
    arguments = Arguments(call, context)
    group = arguments.required("ResourceGroupID")
    page_requested = page(arguments, required=True)
    descending = arguments.choice("Order", {"asc": False, "desc": True}, default=False)
    step_ms = arguments.step("TimeStep", DEFAULT_STEP_MS, SECOND)
    found = yield from execute(
        GroupQuestion(
            group=GroupRef(group),
            range=TimeRange(max(0, context.now_ms - step_ms), context.now_ms),
            workspace=arguments.text("WorkspaceId"),
        )
    )
    user = arguments.text("UserId")
    records = [_record(group, found.capacity, usage) for usage in found.users if user in ("", usage.user)]
    records = in_order(records, arguments.text("SortBy"), descending=descending)
    body = {
        "ResourceGroupId": group,
        "UserMetrics": records[page_requested.offset : page_requested.offset + page_requested.size],
        "Summary": _record(group, found.capacity, found.summary),
        "Total": len(records),
    }
    return answer(body, context, id_key="")


def in_order(records: Sequence[dict[str, Any]], field: str, *, descending: bool) -> list[dict[str, Any]]:
    """Records sorted by a field, whose name is case-insensitive; an unknown field leaves the order unchanged.

    Unknown values come last in both directions; the sort is stable.
    """
    names = {name.casefold(): name for record in records[:1] for name in record}
    name = names.get(field.casefold())
    if name is None:
        return list(records)
    present = [record for record in records if record[name] != UNKNOWN]
    unknown = [record for record in records if record[name] == UNKNOWN]
    return [*sorted(present, key=lambda record: _key(name, record[name]), reverse=descending), *unknown]


def _key(name: str, value: Any) -> Any:  # noqa: ANN401 - as the field's own type compares
    if name.endswith("Rate"):
        return float(value)
    if isinstance(value, list):
        return len(value), [natural(part) for part in value]
    return natural(value) if isinstance(value, str) else value


def _record(group: str, capacity: Amounts, usage: Usage) -> dict[str, Any]:
    """One record, its fields in the order of the vendor's sample."""
    some = bool(usage.cpu_jobs or usage.device_jobs)
    return {
        "ResourceGroupId": group,
        "TotalCPU": whole(capacity.cpu),
        "CPUUsageRate": _percent(usage.cpu, some),
        "GPUUsageRate": _percent(usage.device, bool(usage.requested.devices or usage.device_jobs)),
        "TotalMemory": kilobytes(capacity.memory),
        "TotalGPU": capacity.devices,
        "MemoryUsageRate": _percent(usage.memory, some),
        "RequestCPU": whole(usage.requested.cpu),
        "RequestGPU": usage.requested.devices,
        "RequestMemory": kilobytes(usage.requested.memory),
        "NetworkInputRate": _rate(usage.network_receive, some),
        "NetworkOutputRate": _rate(usage.network_transmit, some),
        "DiskReadRate": _rate(usage.disk_read, some),
        "DiskWriteRate": _rate(usage.disk_write, some),
        "JobType": ",".join(dict.fromkeys(job_type(kind) for kind in usage.types)),
        "UserId": usage.user,
        "CPUNodeNumber": len(usage.cpu_nodes),
        "GPUNodeNumber": len(usage.device_nodes),
        "CpuJobNames": usage.cpu_jobs,
        "GpuJobNames": usage.device_jobs,
        "NodeNames": sorted({*usage.cpu_nodes, *usage.device_nodes}, key=natural),
        "CpuNodeNames": usage.cpu_nodes,
        "GpuNodeNames": usage.device_nodes,
    }


def _percent(ratio: float | None, there: bool) -> str:
    """A measured rate; ``0`` without capacity."""
    if ratio is None:
        return UNKNOWN if there else "0"
    return percent_text(ratio)


def _rate(rate: float | None, there: bool) -> str:
    if rate is None:
        return UNKNOWN if there else "0"
    return megabytes_text(rate)


OPERATIONS = (
    Operation(
        name="GetUserViewMetrics",
        action="metrics:read",
        method="GET",
        path="/api/v1/resources/{ResourceGroupID}/usermetrics",
        answer=get_user_view_metrics,
        parameters=(
            Parameter("ResourceGroupID", "path", "The resource group, as job and node records name it.", required=True),
            Parameter("PageNumber", "query", "From 1.", required=True),
            Parameter("PageSize", "query", "1 to 1000.", required=True),
            Parameter("SortBy", "query", "A field of a record, by number where it is one; another leaves the order."),
            Parameter("Order", "query", "`asc` or `desc` in any letter case. Default: `asc`."),
            Parameter("UserId", "query", "One user's record alone; Summary stays that of all."),
            Parameter("WorkspaceId", "query", "Jobs of one workspace alone."),
            Parameter("TimeStep", "query", "`30s`, `5m`, `1h`; a bare number counts seconds. Default: `5m`."),
        ),
        text=(
            "Who used how much of a resource group over the last time step: `{ResourceGroupId, UserMetrics: [record], "
            "Summary: record, Total}`. Rates are text: percent of what is requested, MB/s (10^6 bytes); empty where "
            "nothing was measured. Memory is KB of 1,024 bytes. 100 calls a second for each key."
        ),
    ),
)
