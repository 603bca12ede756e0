"""Resource groups: their capacity, the requests of their jobs, and the usage by user and by node.

https://help.aliyun.com/en/pai/developer-reference/api-paistudio-2022-01-12-getuserviewmetrics and
https://help.aliyun.com/zh/pai/developer-reference/api-paistudio-2022-01-12-struct-userviewmetric
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Annotated, Any

from msgspec import Meta, field

from jobmeter.access.limit import Per, Rate
from jobmeter.dialects.alibaba.common.groups import NOW_MS
from jobmeter.dialects.alibaba.common.listing import sort_records
from jobmeter.dialects.alibaba.common.operation import (
    ORDER,
    TIME,
    AlibabaRequest,
    Step,
    answer,
    convert_units,
    operation,
)
from jobmeter.dialects.alibaba.pai_studio.names import (
    DEFAULT_STEP_MS,
    NODE_METRICS,
    TIME_TEXT,
    GroupRequest,
    convert_kilobytes,
    format_megabytes,
    format_number,
    format_percent,
    join_device_models,
    list_node_metrics,
    parse_device_model,
    shorten_job_type,
)
from jobmeter.dialects.base import Answer, Steps, ask, round_up
from jobmeter.dialects.base.request import Choice, list_names
from jobmeter.errors import InvalidRequestError
from jobmeter.model.job import JobState
from jobmeter.model.order import make_natural_key
from jobmeter.model.time import DAY, HOUR, SECOND
from jobmeter.query.group import (
    Amounts,
    CapacityQuestion,
    GroupNodesQuestion,
    GroupQuestion,
    RequestsQuestion,
    ResourceUsage,
)
from jobmeter.query.request import By, GroupRef, Line, MetricQuery

UNKNOWN = ""
"""The text of an unknown rate."""
_STATES = {
    "Waiting": frozenset({JobState.QUEUED}),
    "Running": frozenset({JobState.RUNNING}),
    "Terminated": frozenset(state for state in JobState if state.finished),
}
TimeStep = Annotated[int, Step(SECOND)]


@operation(
    "GET /api/v1/resources/{ResourceGroupID}/usermetrics",
    "metrics:read",
    # The page "PAI monitoring": per user.
    rate=Rate(100, 100, Per.KEY),
    by_resource=True,
)
class GetUserViewMetrics(GroupRequest, frozen=True, kw_only=True):
    """Returns the usage of a resource group by user over the last time step.

    `{ResourceGroupId, UserMetrics: [record], Summary: record, Total}`. Rates are text: percent of the requests, MB/s
    (10^6 bytes); empty without samples. Memory is KB of 1,024 bytes. 100 calls a second for each key.
    """

    page_number: Annotated[int, "From 1.", Meta(ge=1, le=10**6)]
    page_size: Annotated[int, Meta(ge=1, le=1000)]
    sort_by: Annotated[str, "A field of a record; numbers sort by value. Any other name keeps the order."] = ""
    order: Annotated[bool, ORDER] = False
    user_id: Annotated[str, "Only this user's record; Summary still covers all users."] = ""
    workspace_id: Annotated[str, "Jobs of one workspace alone."] = ""
    time_step: TimeStep = DEFAULT_STEP_MS

    def _steps(self) -> Steps:
        group, offset = self.resource_group_id, (self.page_number - 1) * self.page_size
        question = GroupQuestion(
            group=GroupRef(group), range=self.make_recent_range(self.time_step), workspace=self.workspace_id
        )
        found = yield from ask(question)
        records = [_record(group, found.capacity, usage) for usage in found.users if self.user_id in ("", usage.user)]
        records = sort_by_field(records, self.sort_by, descending=self.order)
        body = {
            "ResourceGroupId": group,
            "UserMetrics": records[offset : offset + self.page_size],
            "Summary": _record(group, found.capacity, found.summary),
            "Total": len(records),
        }
        return answer(body, self, id_key="")


@operation("GET /api/v1/resources/{ResourceGroupID}/nodemetrics/{MetricType}", "metrics:read", by_resource=True)
class GetNodeMetrics(GroupRequest, frozen=True, kw_only=True):
    """Returns one metric of a resource group, a line for each node.

    `{ResourceGroupID, MetricType, NodesMetrics: [{NodeID, GPUType, Metrics: [{Time, Value}]}]}`. `Time` is the start of
    the step in milliseconds, `Value` text: percent, or MB/s (10^6 bytes). A node without samples of its own has the
    values of its replicas. Nodes without any samples are absent.
    """

    metric_type: Annotated[str, f"One of {list_names(NODE_METRICS)}, in any letter case."]
    gpu_type: Annotated[str, "Only nodes with this device: `V100`, `A100`, `H200`, ..."] = field(
        default="", name="GPUType"
    )
    start_time: Annotated[int | None, f"{TIME_TEXT} Default: one hour ago.", TIME] = None
    end_time: Annotated[int | None, f"{TIME_TEXT} Not included. Default: now.", TIME] = None
    time_step: TimeStep = DEFAULT_STEP_MS
    verbose: Annotated[bool, "Changes nothing."] = False

    def _steps(self) -> Steps:
        group, metrics = GroupRef(self.resource_group_id), list_node_metrics(self.metric_type)
        if not metrics:
            names = ", ".join(NODE_METRICS)
            raise InvalidRequestError(f"MetricType {self.metric_type!r} is not one of {names}", "MetricType")
        gpu_type = self.gpu_type.casefold()
        span = self.read_time_range(self.start_time, self.end_time, HOUR)
        result = yield from ask(
            MetricQuery(subject=group, metrics=metrics, range=span, step_ms=self.time_step, by=By.NODE)
        )
        nodes = yield from ask(GroupNodesQuestion(group=group, range=span))
        types = {node.name: join_device_models(node.device_types) for node in nodes}
        members = [
            {"NodeID": line.node, "GPUType": types.get(line.node, ""), "Metrics": _points(line)}
            for line in _select_first_metric(metrics, result.lines)
            if not gpu_type or gpu_type in types.get(line.node, "").casefold().split(",")
        ]
        body = {"ResourceGroupID": group.id, "MetricType": self.metric_type, "NodesMetrics": members}
        return answer(body, self, id_key="")


@operation("GET /api/v1/resources/data/total", "metrics:read", by_resource=True)
class GetResourceGroupTotal(GroupRequest, frozen=True, kw_only=True):
    """Returns the capacity of a resource group, memory in KB of 1,024 bytes.

    `{totalCPU, totalGPU, totalMemory, totalGPUInfos: [{type, count}]}`. The group's nodes are those whose record names
    it, else those on which its jobs ran in the last day.
    """

    def _steps(self) -> Steps:
        question = CapacityQuestion(group=GroupRef(self.resource_group_id), range=self.make_recent_range(NOW_MS))
        found = yield from ask(question)
        return _amounts("total", found, self)


@operation("GET /api/v1/resources/data/request", "metrics:read", by_resource=True)
class GetResourceGroupRequest(GroupRequest, frozen=True, kw_only=True):
    """Returns the limits of the replicas in a state, memory in KB of 1,024 bytes.

    `{requestCPU, requestGPU, requestMemory, requestGPUInfos: [{type, count}]}`.
    """

    pod_status: Annotated[frozenset[JobState], "`Terminated`: in the last day.", Choice(_STATES)] = _STATES["Running"]

    def _steps(self) -> Steps:
        span = self.make_recent_range(DAY if self.pod_status == _STATES["Terminated"] else NOW_MS)
        group = GroupRef(self.resource_group_id)
        found = yield from ask(RequestsQuestion(group=group, range=span, states=self.pod_status))
        return _amounts("request", found, self)


def sort_by_field(records: Sequence[dict[str, Any]], field: str, *, descending: bool) -> list[dict[str, Any]]:
    """Sort records by a field, whose name is case-insensitive; an unknown field leaves the order unchanged."""
    names = {name.casefold(): name for record in records[:1] for name in record}
    name = names.get(field.casefold())
    if name is None:
        return list(records)
    return sort_records(
        records,
        lambda record: None if record[name] == UNKNOWN else _key(name, record[name]),
        descending=descending,
    )


def _key(name: str, value: Any) -> Any:  # noqa: ANN401 - as the field's own type compares
    if name.endswith("Rate"):
        return float(value)
    if isinstance(value, list):
        return len(value), [make_natural_key(part) for part in value]
    return make_natural_key(value) if isinstance(value, str) else value


def _record(group: str, capacity: Amounts, usage: ResourceUsage) -> dict[str, Any]:
    """Return a record, its fields in the order of the vendor's sample."""
    some = bool(usage.cpu_jobs or usage.device_jobs)
    devices = bool(usage.requested.devices or usage.device_jobs)
    return {
        "ResourceGroupId": group,
        "TotalCPU": round_up(capacity.cpu),
        "CPUUsageRate": _format_measured(format_percent, usage.cpu, some),
        "GPUUsageRate": _format_measured(format_percent, usage.device, devices),
        "TotalMemory": convert_kilobytes(capacity.memory),
        "TotalGPU": capacity.devices,
        "MemoryUsageRate": _format_measured(format_percent, usage.memory, some),
        "RequestCPU": round_up(usage.requested.cpu),
        "RequestGPU": usage.requested.devices,
        "RequestMemory": convert_kilobytes(usage.requested.memory),
        "NetworkInputRate": _format_measured(format_megabytes, usage.network_receive, some),
        "NetworkOutputRate": _format_measured(format_megabytes, usage.network_transmit, some),
        "DiskReadRate": _format_measured(format_megabytes, usage.disk_read, some),
        "DiskWriteRate": _format_measured(format_megabytes, usage.disk_write, some),
        "JobType": ",".join(dict.fromkeys(shorten_job_type(kind) for kind in usage.types)),
        "UserId": usage.user,
        "CPUNodeNumber": len(usage.cpu_nodes),
        "GPUNodeNumber": len(usage.device_nodes),
        "CpuJobNames": usage.cpu_jobs,
        "GpuJobNames": usage.device_jobs,
        "NodeNames": sorted({*usage.cpu_nodes, *usage.device_nodes}, key=make_natural_key),
        "CpuNodeNames": usage.cpu_nodes,
        "GpuNodeNames": usage.device_nodes,
    }


def _format_measured(text: Callable[[float], str], value: float | None, there: bool) -> str:
    """Return the text of a measured value; ``0`` without capacity."""
    if value is None:
        return UNKNOWN if there else "0"
    return text(value)


def _amounts(prefix: str, found: Amounts, request: AlibabaRequest) -> Answer:
    counts = Counter[str]()
    for name, count in found.device_types.items():
        counts[parse_device_model(name)] += count
    body: dict[str, Any] = {
        f"{prefix}CPU": round_up(found.cpu),
        f"{prefix}GPU": found.devices,
        f"{prefix}Memory": convert_kilobytes(found.memory),
        f"{prefix}GPUInfos": [{"type": name, "count": count} for name, count in sorted(counts.items())],
    }
    return answer(body, request, id_key="")


def _select_first_metric(metrics: Sequence[str], lines: Sequence[Line]) -> list[Line]:
    """Return for each node the lines of the first metric with values."""
    ranked: dict[str, int] = {}
    for line in lines:
        ranked[line.node] = min(ranked.get(line.node, len(metrics)), metrics.index(line.metric))
    matching = [line for line in lines if metrics.index(line.metric) == ranked[line.node]]
    return sorted(matching, key=lambda line: make_natural_key(line.node))


def _points(line: Line) -> list[dict[str, int | str]]:
    values = convert_units(line)
    return [
        {"Time": time, "Value": format_number(value)} for time, value in zip(line.time.tolist(), values, strict=True)
    ]
