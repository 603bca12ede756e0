"""GetPodLogs.

https://help.aliyun.com/document_detail/459678.html
"""

from jobmeter.access.call import Call
from jobmeter.dialects.alibaba.operation import Arguments, answer, requested_range
from jobmeter.dialects.base import Context, Operation, Parameter, Steps, execute
from jobmeter.dialects.pai_dlc.pods import find, pod_id, pod_uid
from jobmeter.dialects.pai_dlc.times import TIME, WEEK
from jobmeter.model.log import LogPage
from jobmeter.query.request import JobQuestion, JobRef, LogQuestion

DEFAULT_LINES = 2000
MAX_LINES = 10_000
CONTAINER = "main"
"""A pod's one container: what its processes write is stored by pod."""

_NS = 1_000_000


def get_pod_logs(call: Call, context: Context) -> Steps:
    """The newest lines of one pod, oldest first."""
    arguments = Arguments(call, context)
    containers = arguments.names("Containers")
    arguments.flag("DownloadToFile")
    view = yield from execute(JobQuestion(JobRef(arguments.required("JobId"))))
    replica, one_attempt = find(view, arguments.required("PodId"), arguments.text("PodUid"))
    span = requested_range(arguments, context.now_ms, WEEK)
    question = LogQuestion(
        ref=JobRef(view.job.id, view.job.project),
        replicas=frozenset({replica.name}),
        attempt=replica.attempt if one_attempt else None,
        start_ns=span.start_ms * _NS,
        end_ns=(span.end_ms + 1) * _NS,
        descending=True,
        limit=arguments.integer("MaxLines", DEFAULT_LINES, 1, MAX_LINES),
    )
    requested = not containers or CONTAINER in containers
    page = (yield from execute(question)) if requested else LogPage([])
    body = {
        "JobId": view.job.id,
        "PodId": pod_id(replica, view.job),
        "PodUid": pod_uid(replica, view.job),
        "Containers": ",".join(containers) or CONTAINER,
        "ContainerInfo": {"MainContainer": CONTAINER, "SidecarContainers": []},
        "Logs": [line.text for line in reversed(page.lines)],
    }
    return answer(body, context)


OPERATIONS = (
    Operation(
        name="GetPodLogs",
        action="jobs:read",
        method="GET",
        path="/api/v1/jobs/{JobId}/pods/{PodId}/logs",
        answer=get_pod_logs,
        parameters=(
            Parameter("JobId", "path", "The job.", required=True),
            Parameter("PodId", "path", "The pod, as GetJob names it.", required=True),
            Parameter("PodUid", "query", "One attempt of the pod, as GetJob names it. Default: all of them."),
            Parameter(
                "MaxLines",
                "query",
                f"1 to {MAX_LINES}; of more lines, the newest are given. Default: {DEFAULT_LINES}.",
            ),
            Parameter("StartTime", "query", f"{TIME} Default: seven days ago."),
            Parameter("EndTime", "query", f"{TIME} Default: now. Included."),
            Parameter(
                "Containers",
                "query",
                f"Names, separated by commas. A pod has one, `{CONTAINER}`; others have no lines.",
            ),
            Parameter("DownloadToFile", "query", "`true` or `false`: the lines come in the answer either way."),
        ),
        text=(
            "What a pod's processes wrote to standard output and standard error, oldest first, a text a line: `{JobId, "
            "PodId, PodUid, Containers, ContainerInfo, Logs, RequestId}`."
        ),
    ),
)
