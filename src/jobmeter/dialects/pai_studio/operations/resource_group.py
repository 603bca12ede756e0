"""GetResourceGroupTotal and GetResourceGroupRequest: the capacity of a resource group, and the requests of its jobs."""

from typing import Any

from jobmeter.access.call import Call
from jobmeter.dialects.alibaba.operation import Arguments, answer
from jobmeter.dialects.base import Answer, Context, Operation, Parameter, Steps, execute
from jobmeter.dialects.pai_studio.names import device_model, kilobytes, whole
from jobmeter.model.job import JobState
from jobmeter.model.time import DAY, MINUTE, TimeRange
from jobmeter.query.group import Amounts, CapacityQuestion, RequestsQuestion
from jobmeter.query.request import GroupRef

NOW_MS = 5 * MINUTE
"""How far back a state of now reaches."""
_STATES = {
    "Waiting": frozenset({JobState.QUEUED}),
    "Running": frozenset({JobState.RUNNING}),
    "Terminated": frozenset(state for state in JobState if state.finished),
}
_GROUP = Parameter("ResourceGroupID", "query", "The resource group, as job and node records name it.", required=True)


def get_resource_group_total(call: Call, context: Context) -> Steps:
    """The capacity of the group's nodes."""
    arguments = Arguments(call, context)
    group = GroupRef(arguments.required("ResourceGroupID"))
    found = yield from execute(CapacityQuestion(group=group, range=_before(context.now_ms, NOW_MS)))
    return _amounts("total", found, context)


def get_resource_group_request(call: Call, context: Context) -> Steps:
    """The limits of the replicas in a state."""
    arguments = Arguments(call, context)
    group = GroupRef(arguments.required("ResourceGroupID"))
    states = arguments.choice("PodStatus", _STATES, _STATES["Running"])
    back_ms = DAY if states == _STATES["Terminated"] else NOW_MS
    found = yield from execute(RequestsQuestion(group=group, range=_before(context.now_ms, back_ms), states=states))
    return _amounts("request", found, context)


def _before(now_ms: int, back_ms: int) -> TimeRange:
    return TimeRange(max(0, now_ms - back_ms), now_ms)


def _amounts(prefix: str, found: Amounts, context: Context) -> Answer:
    counts: dict[str, int] = {}
    for name, count in found.device_types.items():
        counts[device_model(name)] = counts.get(device_model(name), 0) + count
    body: dict[str, Any] = {
        f"{prefix}CPU": whole(found.cpu),
        f"{prefix}GPU": found.devices,
        f"{prefix}Memory": kilobytes(found.memory),
        f"{prefix}GPUInfos": [{"type": name, "count": count} for name, count in sorted(counts.items())],
    }
    return answer(body, context, id_key="")


OPERATIONS = (
    Operation(
        name="GetResourceGroupTotal",
        action="metrics:read",
        method="GET",
        path="/api/v1/resources/data/total",
        answer=get_resource_group_total,
        parameters=(_GROUP,),
        text=(
            "What there is in a resource group: `{totalCPU, totalGPU, totalMemory, totalGPUInfos: [{type, count}]}`, "
            "memory in KB of 1,024 bytes. The group's nodes are those whose record names it, else those on which its "
            "jobs ran in the last day."
        ),
    ),
    Operation(
        name="GetResourceGroupRequest",
        action="metrics:read",
        method="GET",
        path="/api/v1/resources/data/request",
        answer=get_resource_group_request,
        parameters=(
            _GROUP,
            Parameter(
                "PodStatus",
                "query",
                "`Waiting`, `Running` or `Terminated` (in the last day). Default: `Running`.",
            ),
        ),
        text=(
            "What the replicas in a state are allowed: `{requestCPU, requestGPU, requestMemory, requestGPUInfos: "
            "[{type, count}]}`, memory in KB of 1,024 bytes."
        ),
    ),
)
