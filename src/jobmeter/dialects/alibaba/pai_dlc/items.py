"""A job in PAI-DLC's form, as a member of a list and alone. Unknown fields are left out.

RequestGPU and RequestMemory are texts in a list and numbers in GetJob, as the vendor's SDK declares them.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from jobmeter.dialects.alibaba.common.listing import drop_empty, pick
from jobmeter.dialects.alibaba.common.statuses import list_states
from jobmeter.dialects.alibaba.common.times import compute_seconds, stamp
from jobmeter.dialects.alibaba.pai_dlc import specs
from jobmeter.dialects.alibaba.pai_dlc.pods import list_pods, name_pod_type
from jobmeter.dialects.alibaba.pai_dlc.requests import NAME
from jobmeter.dialects.alibaba.pai_dlc.states import REASONS, STATUS, WORDS
from jobmeter.model.event import Event
from jobmeter.model.job import Job, JobState, JobView, Replica
from jobmeter.query.defaults import find_creation

STORED_FIELDS = (
    *("Accessibility", "CodeSource", "CredentialConfig", "DataSources", "ElasticSpec", "Envs"),
    *("JobSpecs", "Priority", "SchedulingStrategy", "Settings", "ThirdpartyLibDir", "ThirdpartyLibs", "UserVpc"),
)
"""Fields of CreateJob that a list and GetJob return verbatim."""
_ONLY_LISTED = (
    *("JobMaxRunningTimeMinutes", "TemplateId", "TemplateName", "UserScript", "WorkingDir", "SystemEnvs"),
    *("RetryCount", "EnablePreemptibleJob", "UseOversoldResource"),
)
_ONLY_ALONE = ("CustomEnvs", "Description", "RestartRecord", "RoleSystemEnvs")
_PLAIN = ("SubStatus", "ResourceLevel", "ResourceType", "ClusterId", "EnabledDebugger")
_FINISHES = {
    JobState.SUCCEEDED: "GmtSuccessedTime",
    JobState.FAILED: "GmtFailedTime",
    JobState.STOPPED: "GmtStoppedTime",
    JobState.UNKNOWN: "GmtStoppedTime",
}


def describe_listed(job: Job, now_ms: int) -> dict[str, Any]:
    """Return a member of ListJobs."""
    given = read_own_fields(job)
    totals = specs.sum_specs(specs.read_specs(given.get("JobSpecs")))
    item = {
        **_describe_common(job, now_ms),
        **pick(given, _ONLY_LISTED),
        "Username": job.user,
        "IsDeleted": False,
        "GmtModifiedTime": stamp(job.updated),
        "RequestCPU": _round_up(totals.cpu),
        "RequestGPU": _text(totals.gpu),
        "RequestMemory": _text(_gib(totals.memory)),
        "NodeCount": str(totals.pods) if totals.pods else None,
        "ResourceName": job.resource_group,
        "ResourceQuotaName": job.resource_group,
    }
    return drop_empty(item)


def describe_job(view: JobView, events: Sequence[Event], now_ms: int, *, detail: bool) -> dict[str, Any]:
    """Return the body of GetJob, without its request id.

    Without ``detail``, pods, specs, environment and history are left out.
    """
    job, given = view.job, read_own_fields(view.job)
    roles: Any = given.get("JobSpecs") or (_derive_roles(job, view.replicas) if detail else None)
    totals = specs.sum_specs(specs.read_specs(roles))
    restarts = max((replica.attempt for replica in view.replicas), default=0)
    item = {
        **_describe_common(job, now_ms),
        **pick(given, _ONLY_ALONE),
        "RequestCPU": _round_up(totals.cpu),
        "RequestGPU": totals.gpu,
        "RequestMemory": _gib(totals.memory),
        "RestartTimes": str(restarts),
        "JobSpecs": roles,
        "Pods": list_pods(view, now_ms),
        "StatusHistory": make_history(job, events),
    }
    if not detail:
        for name in ("JobSpecs", "Pods", "StatusHistory", "Envs", "CustomEnvs", "Settings", "CodeSource"):
            item.pop(name, None)
    return drop_empty(item)


def make_history(job: Job, events: Sequence[Event]) -> list[dict[str, Any]]:
    """Return the history of a job's states: from events, else from its times. The last one is open until it ends."""
    states = set(JobState)
    changes = [(event.time, JobState(event.reason), event.message) for event in events if event.reason in states]
    steps = changes or [(time, state, "") for time, state in list_states(job)]
    ends = [time for time, _, _ in steps[1:]]
    found = []
    for at, (time, state, message) in enumerate(steps):
        code, text = REASONS[state]
        step = {"Status": WORDS[state], "ReasonCode": code, "ReasonMessage": message or text, "StartTime": stamp(time)}
        found.append({**step, "EndTime": stamp(ends[at])} if at < len(ends) else step)
    return found


def read_own_fields(job: Job) -> Mapping[str, Any]:
    """Return the fields of the job's record for this dialect."""
    return job.extra.get(NAME, {})


def _describe_common(job: Job, now_ms: int) -> dict[str, Any]:
    given = read_own_fields(job)
    code, message = REASONS[job.state]
    finished = stamp(job.end) if job.state.finished else ""
    return {
        "JobId": job.id,
        "DisplayName": job.name or job.id,
        "JobType": job.type,
        "Status": STATUS.find_status(job),
        "ReasonCode": _read_text(given, "ReasonCode", code),
        "ReasonMessage": _read_text(given, "ReasonMessage", job.error or message),
        "WorkspaceId": job.workspace,
        "WorkspaceName": job.workspace,
        "ResourceId": job.resource_group,
        "UserId": job.user,
        "TenantId": job.project,
        "UserCommand": job.command,
        "GmtCreateTime": stamp(find_creation(job)),
        "GmtSubmittedTime": stamp(find_creation(job)),
        "GmtRunningTime": stamp(job.start),
        "GmtFinishTime": finished,
        **({_FINISHES[job.state]: finished} if job.state.finished else {}),
        "Duration": int(compute_seconds(job.start, job.end if job.state.finished else None, now_ms)),
        "Accessibility": "PRIVATE",
        "Priority": 1,
        "EnabledDebugger": False,
        "supportedProfilingTypes": "",
        **pick(given, (*STORED_FIELDS, *_PLAIN)),
    }


def _derive_roles(job: Job, replicas: Sequence[Replica]) -> list[dict[str, Any]]:
    """Return the roles of a job that was registered without any, from its replicas and limits."""
    counts: dict[str, int] = {}
    for name in dict.fromkeys(replica.name for replica in replicas):
        counts[name_pod_type(name)] = counts.get(name_pod_type(name), 0) + 1
    machine = job.instance_type
    memory = job.limits.get("memory.limit")
    config = {
        "CPU": _text(job.limits.get("cpu.limit")),
        "Memory": None if memory is None else f"{_text(_gib(memory))}Gi",
        "GPU": str(machine.gpu_count) if machine and machine.gpu_count is not None else None,
        "GPUType": machine.gpu_type if machine else None,
    }
    machine_fields = {"EcsSpec": machine.id if machine else None, "ResourceConfig": drop_empty(config) or None}
    return [drop_empty({"Type": role, "PodCount": count, **machine_fields}) for role, count in counts.items()]


def _read_text(given: Mapping[str, Any], name: str, default: str) -> str:
    value = given.get(name)
    return value if isinstance(value, str) and value else default


def _round_up(value: float | None) -> int | None:
    return None if value is None else math.ceil(round(value, 6))


def _gib(value: float | None) -> float | None:
    return None if value is None else round(value / specs.GIB, 6)


def _text(value: float | None) -> str | None:
    return None if value is None else f"{value:.12g}"
