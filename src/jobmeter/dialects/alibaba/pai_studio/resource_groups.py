"""Resource groups: their capacity, the requests of their jobs, and the usage by user and by node.

https://help.aliyun.com/en/pai/developer-reference/api-paistudio-2022-01-12-getuserviewmetrics and
https://help.aliyun.com/zh/pai/developer-reference/api-paistudio-2022-01-12-struct-userviewmetric
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from jobmeter.access.limit import Per, Rate
from jobmeter.dialects.alibaba.common.groups import NOW_MS
from jobmeter.dialects.alibaba.common.listing import in_order
from jobmeter.dialects.alibaba.common.operation import (
    Arguments,
    answer,
    in_path,
    in_query,
    in_their_unit,
    listed,
    operation,
)
from jobmeter.dialects.alibaba.pai_studio.names import (
    DEFAULT_STEP_MS,
    NODE_METRICS,
    TIME,
    device_model,
    device_models,
    job_type,
    kilobytes,
    megabytes_text,
    node_metrics,
    number_text,
    page,
    percent_text,
)
from jobmeter.dialects.base import Answer, Steps, execute, whole
from jobmeter.errors import InvalidRequestError
from jobmeter.model.job import JobState
from jobmeter.model.order import natural
from jobmeter.model.time import DAY, HOUR, SECOND
from jobmeter.query.group import (
    Amounts,
    CapacityQuestion,
    GroupNodesQuestion,
    GroupQuestion,
    RequestsQuestion,
    Usage,
)
from jobmeter.query.request import By, GroupRef, Line, MetricQuery

UNKNOWN = ""
"""The text of an unknown rate."""
_STATES = {
    "Waiting": frozenset({JobState.QUEUED}),
    "Running": frozenset({JobState.RUNNING}),
    "Terminated": frozenset(state for state in JobState if state.finished),
}
_TIME_STEP = in_query("TimeStep", "`30s`, `5m`, `1h`; a bare number counts seconds. Default: `5m`.")
_GROUP_TEXT = "The resource group, as job and node records name it."
_IN_PATH = in_path("ResourceGroupID", _GROUP_TEXT)
_IN_QUERY = in_query("ResourceGroupID", _GROUP_TEXT, required=True)


@operation(
    "GET /api/v1/resources/{ResourceGroupID}/usermetrics",
    "metrics:read",
    _IN_PATH,
    in_query("PageNumber", "From 1.", required=True),
    in_query("PageSize", "1 to 1000.", required=True),
    in_query("SortBy", "A field of a record, by number where it is one; another leaves the order."),
    in_query("Order", "`asc` or `desc` in any letter case. Default: `asc`."),
    in_query("UserId", "One user's record alone; Summary stays that of all."),
    in_query("WorkspaceId", "Jobs of one workspace alone."),
    _TIME_STEP,
    # The page "PAI monitoring": per user.
    rate=Rate(100, 100, Per.KEY),
    by_resource=True,
)
def get_user_view_metrics(arguments: Arguments) -> Steps:
    """Returns the usage of a resource group by user over the last time step.

    `{ResourceGroupId, UserMetrics: [record], Summary: record, Total}`. Rates are text: percent of the requests, MB/s
    (10^6 bytes); empty without samples. Memory is KB of 1,024 bytes. 100 calls a second for each key.
    """
    group = arguments.required("ResourceGroupID")
    offset, size = page(arguments, required=True)
    descending = arguments.descending(default=False)
    span = arguments.lately(arguments.step("TimeStep", DEFAULT_STEP_MS, SECOND))
    question = GroupQuestion(group=GroupRef(group), range=span, workspace=arguments.text("WorkspaceId"))
    found = yield from execute(question)
    user = arguments.text("UserId")
    records = [_record(group, found.capacity, usage) for usage in found.users if user in ("", usage.user)]
    records = by_field(records, arguments.text("SortBy"), descending=descending)
    body = {
        "ResourceGroupId": group,
        "UserMetrics": records[offset : offset + size],
        "Summary": _record(group, found.capacity, found.summary),
        "Total": len(records),
    }
    return answer(body, arguments, id_key="")


@operation(
    "GET /api/v1/resources/{ResourceGroupID}/nodemetrics/{MetricType}",
    "metrics:read",
    _IN_PATH,
    in_path("MetricType", f"One of {listed(NODE_METRICS)}, in any letter case."),
    in_query("GPUType", "Nodes with such a device alone: `V100`, `A100`, `H200`, ..."),
    in_query("StartTime", f"{TIME} Default: one hour ago."),
    in_query("EndTime", f"{TIME} Default: now. Not included."),
    _TIME_STEP,
    in_query("Verbose", "`true` or `false`; changes nothing."),
    by_resource=True,
)
def get_node_metrics(arguments: Arguments) -> Steps:
    """Returns one metric of a resource group, a line for each node.

    `{ResourceGroupID, MetricType, NodesMetrics: [{NodeID, GPUType, Metrics: [{Time, Value}]}]}`. `Time` is the start of
    the step in milliseconds, `Value` text: percent, or MB/s (10^6 bytes). A node without samples of its own has the
    values of its replicas. Nodes without any samples are absent.
    """
    group = GroupRef(arguments.required("ResourceGroupID"))
    metrics = node_metrics(metric_type := arguments.required("MetricType"))
    if not metrics:
        raise InvalidRequestError(f"MetricType {metric_type!r} is not one of {', '.join(NODE_METRICS)}", "MetricType")
    gpu_type = arguments.text("GPUType").casefold()
    arguments.flag("Verbose")
    span = arguments.time_range(HOUR)
    step_ms = arguments.step("TimeStep", DEFAULT_STEP_MS, SECOND)
    result = yield from execute(MetricQuery(subject=group, metrics=metrics, range=span, step_ms=step_ms, by=By.NODE))
    nodes = yield from execute(GroupNodesQuestion(group=group, range=span))
    types = {node.name: device_models(node.device_types) for node in nodes}
    members = [
        {"NodeID": line.node, "GPUType": types.get(line.node, ""), "Metrics": _points(line)}
        for line in _first_of(metrics, result.lines)
        if not gpu_type or gpu_type in types.get(line.node, "").casefold().split(",")
    ]
    body = {"ResourceGroupID": group.id, "MetricType": metric_type, "NodesMetrics": members}
    return answer(body, arguments, id_key="")


@operation("GET /api/v1/resources/data/total", "metrics:read", _IN_QUERY, by_resource=True)
def get_resource_group_total(arguments: Arguments) -> Steps:
    """Returns the capacity of a resource group, memory in KB of 1,024 bytes.

    `{totalCPU, totalGPU, totalMemory, totalGPUInfos: [{type, count}]}`. The group's nodes are those whose record names
    it, else those on which its jobs ran in the last day.
    """
    group = GroupRef(arguments.required("ResourceGroupID"))
    found = yield from execute(CapacityQuestion(group=group, range=arguments.lately(NOW_MS)))
    return _amounts("total", found, arguments)


@operation(
    "GET /api/v1/resources/data/request",
    "metrics:read",
    _IN_QUERY,
    in_query("PodStatus", "`Waiting`, `Running` or `Terminated` (in the last day). Default: `Running`."),
    by_resource=True,
)
def get_resource_group_request(arguments: Arguments) -> Steps:
    """Returns the limits of the replicas in a state, memory in KB of 1,024 bytes.

    `{requestCPU, requestGPU, requestMemory, requestGPUInfos: [{type, count}]}`.
    """
    group = GroupRef(arguments.required("ResourceGroupID"))
    states = arguments.choice("PodStatus", _STATES, _STATES["Running"])
    span = arguments.lately(DAY if states == _STATES["Terminated"] else NOW_MS)
    found = yield from execute(RequestsQuestion(group=group, range=span, states=states))
    return _amounts("request", found, arguments)


def by_field(records: Sequence[dict[str, Any]], field: str, *, descending: bool) -> list[dict[str, Any]]:
    """Sort records by a field, whose name is case-insensitive; an unknown field leaves the order unchanged."""
    names = {name.casefold(): name for record in records[:1] for name in record}
    name = names.get(field.casefold())
    if name is None:
        return list(records)
    return in_order(
        records,
        lambda record: None if record[name] == UNKNOWN else _key(name, record[name]),
        descending=descending,
    )


def _key(name: str, value: Any) -> Any:  # noqa: ANN401 - as the field's own type compares
    if name.endswith("Rate"):
        return float(value)
    if isinstance(value, list):
        return len(value), [natural(part) for part in value]
    return natural(value) if isinstance(value, str) else value


def _record(group: str, capacity: Amounts, usage: Usage) -> dict[str, Any]:
    """Return a record, its fields in the order of the vendor's sample."""
    some = bool(usage.cpu_jobs or usage.device_jobs)
    devices = bool(usage.requested.devices or usage.device_jobs)
    return {
        "ResourceGroupId": group,
        "TotalCPU": whole(capacity.cpu),
        "CPUUsageRate": _measured(percent_text, usage.cpu, some),
        "GPUUsageRate": _measured(percent_text, usage.device, devices),
        "TotalMemory": kilobytes(capacity.memory),
        "TotalGPU": capacity.devices,
        "MemoryUsageRate": _measured(percent_text, usage.memory, some),
        "RequestCPU": whole(usage.requested.cpu),
        "RequestGPU": usage.requested.devices,
        "RequestMemory": kilobytes(usage.requested.memory),
        "NetworkInputRate": _measured(megabytes_text, usage.network_receive, some),
        "NetworkOutputRate": _measured(megabytes_text, usage.network_transmit, some),
        "DiskReadRate": _measured(megabytes_text, usage.disk_read, some),
        "DiskWriteRate": _measured(megabytes_text, usage.disk_write, some),
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


def _measured(text: Callable[[float], str], value: float | None, there: bool) -> str:
    """Return the text of a measured value; ``0`` without capacity."""
    if value is None:
        return UNKNOWN if there else "0"
    return text(value)


def _amounts(prefix: str, found: Amounts, arguments: Arguments) -> Answer:
    counts = Counter[str]()
    for name, count in found.device_types.items():
        counts[device_model(name)] += count
    body: dict[str, Any] = {
        f"{prefix}CPU": whole(found.cpu),
        f"{prefix}GPU": found.devices,
        f"{prefix}Memory": kilobytes(found.memory),
        f"{prefix}GPUInfos": [{"type": name, "count": count} for name, count in sorted(counts.items())],
    }
    return answer(body, arguments, id_key="")


def _first_of(metrics: Sequence[str], lines: Sequence[Line]) -> list[Line]:
    """Return for each node the lines of the first metric with values."""
    ranked: dict[str, int] = {}
    for line in lines:
        ranked[line.node] = min(ranked.get(line.node, len(metrics)), metrics.index(line.metric))
    matching = [line for line in lines if metrics.index(line.metric) == ranked[line.node]]
    return sorted(matching, key=lambda line: natural(line.node))


def _points(line: Line) -> list[dict[str, int | str]]:
    values = in_their_unit(line)
    return [{"Time": time, "Value": number_text(value)} for time, value in zip(line.time.tolist(), values, strict=True)]
