"""GetJob."""

from typing import Annotated

from msgspec import Meta

from jobmeter.access.share import DEFAULT_LIFE_SECONDS, MAX_LIFE_SECONDS
from jobmeter.dialects.alibaba.common.operation import AlibabaRequest, answer, operation
from jobmeter.dialects.alibaba.pai_dlc import items
from jobmeter.dialects.alibaba.pai_dlc.requests import DlcJobRequest
from jobmeter.dialects.base import ShareQuestion, Steps, ask
from jobmeter.errors import InvalidRequestError
from jobmeter.model.event import EventFilter, EventPage, EventSource
from jobmeter.query.request import JobRef


@operation("GET /api/v1/tokens", "share:write")
class GetToken(AlibabaRequest, frozen=True, kw_only=True):
    """Returns a token that gives any holder the measurements of one job: `{Token, RequestId}`."""

    target_id: Annotated[str, "The job."]
    target_type: Annotated[str, "`job`."]
    expire_time: Annotated[int, "Seconds.", Meta(ge=1, le=MAX_LIFE_SECONDS)] = DEFAULT_LIFE_SECONDS

    def _steps(self) -> Steps:
        if self.target_type != "job":
            raise InvalidRequestError(f"TargetType {self.target_type!r} is not supported; only job is", "TargetType")
        made = yield from ask(ShareQuestion(JobRef(self.target_id), self.expire_time))
        return answer({"Token": made.token}, self)


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
        view = yield from self.view()
        question = EventFilter(
            projects=frozenset({view.job.project}),
            jobs=(view.job.id,),
            sources=frozenset({EventSource.STATE}),
            limit=MAX_STATES,
        )
        page = (yield from ask(question)) if self.need_detail else EventPage([], 0)
        changes = [event for event in page.events if not event.replica]
        return answer(items.describe_job(view, changes, self.context.now_ms, detail=self.need_detail), self)
