"""GetJob."""

from typing import Annotated

from jobmeter.dialects.alibaba.common.operation import answer, operation
from jobmeter.dialects.alibaba.pai_dlc import items
from jobmeter.dialects.alibaba.pai_dlc.requests import DlcJobRequest
from jobmeter.dialects.base import Steps, ask
from jobmeter.model.event import EventFilter, EventPage, EventSource

MAX_STATES = 1000
"""Most changes of state in an answer."""


@operation("GET /api/v1/jobs/{JobId}", "jobs:read", by_resource=True)
class GetJob(DlcJobRequest, frozen=True, kw_only=True):
    """Returns one job: status, times, requested resources, pods and its past states.

    Earlier attempts are a pod's HistoryPods. RequestGPU and RequestMemory (GiB) are numbers. Unrecorded fields are left
    out; a job that was not registered by CreateJob gets JobSpecs from its replicas and limits.
    """

    need_detail: Annotated[
        bool,
        "`false`: without JobSpecs, Pods, StatusHistory, Envs, CustomEnvs, Settings and CodeSource.",
    ] = True

    def _steps(self) -> Steps:
        view = yield from self.find_view()
        question = EventFilter(
            projects=frozenset({view.job.project}),
            jobs=(view.job.id,),
            sources=frozenset({EventSource.STATE}),
            limit=MAX_STATES,
        )
        page = (yield from ask(question)) if self.need_detail else EventPage([], 0)
        changes = [event for event in page.events if not event.replica]
        return answer(items.describe_job(view, changes, self.context.now_ms, detail=self.need_detail), self)
