"""GetNodeMetrics: one metric of every node of a resource group."""

from collections.abc import Sequence

from jobmeter.access.call import Call
from jobmeter.dialects.alibaba.operation import Arguments, answer, in_their_unit, requested_range
from jobmeter.dialects.base import Context, Operation, Parameter, Steps, execute
from jobmeter.dialects.pai_studio.names import (
    NODE_METRICS,
    device_model,
    node_metrics,
    number_text,
)
from jobmeter.dialects.pai_studio.operations.common import TIME
from jobmeter.errors import InvalidRequestError
from jobmeter.model.order import natural
from jobmeter.model.time import HOUR, MINUTE, SECOND
from jobmeter.query.group import GroupNode, GroupNodesQuestion
from jobmeter.query.request import By, GroupRef, Line, MetricQuery

DEFAULT_STEP_MS = 5 * MINUTE


def get_node_metrics(call: Call, context: Context) -> Steps:
    """One metric by node."""
    arguments = Arguments(call, context)
    group = GroupRef(arguments.required("ResourceGroupID"))
    metrics = node_metrics(metric_type := arguments.required("MetricType"))
    if not metrics:
        raise InvalidRequestError(f"MetricType {metric_type!r} is not one of {', '.join(NODE_METRICS)}", "MetricType")
    gpu_type = arguments.text("GPUType").casefold()
    arguments.flag("Verbose")
    span = requested_range(arguments, context.now_ms, HOUR)
    step_ms = arguments.step("TimeStep", DEFAULT_STEP_MS, SECOND)
    result = yield from execute(MetricQuery(subject=group, metrics=metrics, range=span, step_ms=step_ms, by=By.NODE))
    nodes = yield from execute(GroupNodesQuestion(group=group, range=span))
    types = {node.name: _models(node) for node in nodes}
    members = [
        {"NodeID": line.node, "GPUType": ",".join(types.get(line.node, ())), "Metrics": _points(line)}
        for line in _first_of(metrics, result.lines)
        if not gpu_type or gpu_type in {model.casefold() for model in types.get(line.node, ())}
    ]
    body = {"ResourceGroupID": group.id, "MetricType": metric_type, "NodesMetrics": members}
    return answer(body, context, id_key="")


def _first_of(metrics: Sequence[str], lines: Sequence[Line]) -> list[Line]:
    """For each node, the lines of the first metric with values."""
    ranked: dict[str, int] = {}
    for line in lines:
        ranked[line.node] = min(ranked.get(line.node, len(metrics)), metrics.index(line.metric))
    matching = [line for line in lines if metrics.index(line.metric) == ranked[line.node]]
    return sorted(matching, key=lambda line: natural(line.node))


def _models(node: GroupNode) -> tuple[str, ...]:
    return tuple(dict.fromkeys(device_model(name) for name in node.device_types))


def _points(line: Line) -> list[dict[str, int | str]]:
    values = in_their_unit(line)
    return [{"Time": time, "Value": number_text(value)} for time, value in zip(line.time.tolist(), values, strict=True)]


OPERATIONS = (
    Operation(
        name="GetNodeMetrics",
        action="metrics:read",
        method="GET",
        path="/api/v1/resources/{ResourceGroupID}/nodemetrics/{MetricType}",
        answer=get_node_metrics,
        parameters=(
            Parameter("ResourceGroupID", "path", "The resource group, as job and node records name it.", required=True),
            Parameter(
                "MetricType",
                "path",
                f"One of {', '.join(f'`{name}`' for name in NODE_METRICS)}, in any letter case.",
                required=True,
            ),
            Parameter("GPUType", "query", "Nodes with such a device alone: `V100`, `A100`, `H200`, ..."),
            Parameter("StartTime", "query", f"{TIME} Default: one hour ago."),
            Parameter("EndTime", "query", f"{TIME} Default: now. Not included."),
            Parameter("TimeStep", "query", "`30s`, `5m`, `1h`; a bare number counts seconds. Default: `5m`."),
            Parameter("Verbose", "query", "`true` or `false`; changes nothing."),
        ),
        text=(
            "One metric of a resource group, a line for each node: `{ResourceGroupID, MetricType, NodesMetrics: "
            "[{NodeID, GPUType, Metrics: [{Time, Value}]}]}`. `Time` is the start of the step in milliseconds, `Value` "
            "text: percent, or MB/s (10^6 bytes). Where a node itself was not measured, what the replicas on it did. "
            "Nodes without samples are absent."
        ),
    ),
)
