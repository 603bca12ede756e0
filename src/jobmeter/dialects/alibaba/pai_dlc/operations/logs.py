"""GetPodLogs.

https://help.aliyun.com/document_detail/459678.html
"""

from jobmeter.dialects.alibaba.common.instances import CONTAINER
from jobmeter.dialects.alibaba.common.operation import Arguments, answer, in_query, operation
from jobmeter.dialects.alibaba.pai_dlc.operations.common import JOB, LAST_WEEK, POD, WEEK, job_view
from jobmeter.dialects.alibaba.pai_dlc.pods import find, pod_id, pod_uid
from jobmeter.dialects.base import Steps, execute
from jobmeter.model.log import LogPage
from jobmeter.model.time import NS_PER_MS
from jobmeter.query.request import JobRef, LogQuestion

DEFAULT_LINES = 2000
MAX_LINES = 10_000


@operation(
    "GET /api/v1/jobs/{JobId}/pods/{PodId}/logs",
    "jobs:read",
    JOB,
    *POD,
    in_query("MaxLines", f"1 to {MAX_LINES}; of more lines, the newest are given. Default: {DEFAULT_LINES}."),
    *LAST_WEEK,
    in_query("Containers", f"Names, separated by commas. A pod has one, `{CONTAINER}`; others have no lines."),
    in_query("DownloadToFile", "`true` or `false`: the lines come in the answer either way."),
    by_resource=True,
)
def get_pod_logs(arguments: Arguments) -> Steps:
    """Returns the standard output and standard error of a pod's processes, oldest first, a text a line.

    `{JobId, PodId, PodUid, Containers, ContainerInfo, Logs, RequestId}`.
    """
    containers = arguments.names("Containers")
    arguments.flag("DownloadToFile")
    view = yield from job_view(arguments)
    replica, one_attempt = find(view, arguments.required("PodId"), arguments.text("PodUid"))
    span = arguments.time_range(WEEK)
    question = LogQuestion(
        ref=JobRef(view.job.id, view.job.project),
        replicas=frozenset({replica.name}),
        attempt=replica.attempt if one_attempt else None,
        start_ns=span.start_ms * NS_PER_MS,
        end_ns=(span.end_ms + 1) * NS_PER_MS,
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
    return answer(body, arguments)
