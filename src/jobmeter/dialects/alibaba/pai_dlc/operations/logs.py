"""GetPodLogs.

https://help.aliyun.com/document_detail/459678.html
"""

from typing import Annotated

from msgspec import Meta

from jobmeter.dialects.alibaba.common.instances import CONTAINER
from jobmeter.dialects.alibaba.common.operation import answer, operation
from jobmeter.dialects.alibaba.pai_dlc.pods import find, make_pod_id, make_pod_uid
from jobmeter.dialects.alibaba.pai_dlc.requests import WEEK, PodRequest, WeekEnd, WeekStart
from jobmeter.dialects.base import Steps, ask
from jobmeter.model.log import LogPage
from jobmeter.model.time import NS_PER_MS
from jobmeter.query.request import JobRef, LogQuestion


@operation("GET /api/v1/jobs/{JobId}/pods/{PodId}/logs", "jobs:read", by_resource=True)
class GetPodLogs(PodRequest, frozen=True, kw_only=True):
    """Returns the standard output and standard error of a pod's processes, oldest first, a text a line.

    `{JobId, PodId, PodUid, Containers, ContainerInfo, Logs, RequestId}`.
    """

    max_lines: Annotated[int, "Most lines; the newest are returned.", Meta(ge=1, le=10_000)] = 2000
    start_time: WeekStart = None
    end_time: WeekEnd = None
    containers: Annotated[
        tuple[str, ...],
        f"Names, separated by commas. A pod has one, `{CONTAINER}`; others have no lines.",
    ] = ()
    download_to_file: Annotated[bool, "The lines come in the answer either way."] = False

    def _steps(self) -> Steps:
        view = yield from self.find_view()
        replica, one_attempt = find(view, self.pod_id, self.pod_uid)
        span = self.read_time_range(self.start_time, self.end_time, WEEK)
        question = LogQuestion(
            ref=JobRef(view.job.id, view.job.project),
            replicas=frozenset({replica.name}),
            attempt=replica.attempt if one_attempt else None,
            start_ns=span.start_ms * NS_PER_MS,
            end_ns=(span.end_ms + 1) * NS_PER_MS,
            descending=True,
            limit=self.max_lines,
        )
        requested = not self.containers or CONTAINER in self.containers
        page = (yield from ask(question)) if requested else LogPage([])
        body = {
            "JobId": view.job.id,
            "PodId": make_pod_id(replica, view.job),
            "PodUid": make_pod_uid(replica, view.job),
            "Containers": ",".join(self.containers) or CONTAINER,
            "ContainerInfo": {"MainContainer": CONTAINER, "SidecarContainers": []},
            "Logs": [line.text for line in reversed(page.lines)],
        }
        return answer(body, self)
