"""The operations of PAI-DLC that are answered, and how a call finds one."""

from jobmeter.access.call import Call
from jobmeter.dialects.base import Gap, Match, Operation, Parameter, path_parameters
from jobmeter.dialects.pai_dlc import request, response
from jobmeter.dialects.pai_dlc.names import METRICS, VERSION
from jobmeter.errors import NotFoundError

_TIME = "UTC, ISO 8601 (`2020-11-08T16:00:00Z`)."

OPERATIONS = (
    Operation(
        name="GetJobMetrics",
        action="metrics:read",
        method="GET",
        path="/api/v1/jobs/{JobId}/metrics",
        parse=request.job_metrics,
        render=response.job_metrics,
        parameters=(
            Parameter("JobId", "path", "The job.", required=True),
            Parameter("MetricType", "query", f"One of {', '.join(f'`{name}`' for name in METRICS)}.", required=True),
            Parameter("StartTime", "query", f"{_TIME} Default: one hour ago."),
            Parameter("EndTime", "query", f"{_TIME} Default: now. Not included."),
            Parameter("TimeStep", "query", "`30s`, `5m`, `1h`; a bare number counts minutes. Default: `5m`."),
            Parameter("Token", "query", "A share token (GetToken), read when the call has no other credential."),
        ),
        text=(
            "One metric of a job, a line for each pod: `{JobId, PodMetrics: [{PodId, Metrics: [{Time, Value}]}], "
            "RequestId}`. `Time` is the start of the step in milliseconds. Utilisations are percent (0 to 100), rates "
            "MB/s (10^6 bytes). A GPU metric of a pod joins its devices. Steps without samples and pods without any "
            "are absent."
        ),
    ),
    Operation(
        name="GetToken",
        action="share:write",
        method="GET",
        path="/api/v1/tokens",
        parse=request.token,
        render=response.token,
        parameters=(
            Parameter("TargetId", "query", "The job.", required=True),
            Parameter("TargetType", "query", "`job`.", required=True),
            Parameter("ExpireTime", "query", "Seconds, 1 to 31536000. Default: 604800."),
        ),
        text="A token that opens the metrics of one job to whoever holds it: `{Token, RequestId}`.",
    ),
)

GAPS = (
    Gap("GetToken with `TargetType=tensorboard`", "Jobmeter serves no TensorBoard."),
    Gap("GetToken's `TokenSettings.*`", "They concern accounts of the vendor; they are accepted and change nothing."),
    Gap(
        "Operations other than those above (ListJobs, GetJob, CreateJob, GetPodLogs, GetMetrics, ...)",
        "They are refused with `InvalidAction.NotFound`.",
    ),
)


def match(call: Call) -> Match | None:
    """See ``Dialect.match``: by version and action, as the vendor's SDKs send them, else by path alone."""
    version, action = call.header("x-acs-version"), call.header("x-acs-action")
    if not version and not action:
        return _by_path(call)
    if version != VERSION:
        return None
    for operation in OPERATIONS:
        if operation.name == action:
            return _at_path(operation, call)
    raise NotFoundError(f"Specified api {action!r} is not found, please check your url and method.", "path", action)


def _by_path(call: Call) -> Match | None:
    for operation in OPERATIONS:
        values = path_parameters(operation.path, call.raw_path)
        if values is not None:
            _check_method(operation, call)
            return Match(operation, values)
    return None


def _at_path(operation: Operation, call: Call) -> Match:
    values = path_parameters(operation.path, call.raw_path)
    if values is None:
        message = f"{operation.name} is found at {operation.path}, not at the path of this request."
        raise NotFoundError(message, "path", operation.name)
    _check_method(operation, call)
    return Match(operation, values)


def _check_method(operation: Operation, call: Call) -> None:
    if call.method != operation.method:
        message = f"This http method is not supported: {operation.name} takes {operation.method}."
        raise NotFoundError(message, "method", operation.method)
