"""ListJobs."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from msgspec import Meta, field

from jobmeter.dialects.alibaba.common.operation import (
    FLAG,
    ORDER,
    AlibabaRequest,
    Labels,
    answer,
    operation,
    select_given,
)
from jobmeter.dialects.alibaba.pai_dlc import items
from jobmeter.dialects.alibaba.pai_dlc.requests import WEEK, WeekEnd, WeekStart
from jobmeter.dialects.alibaba.pai_dlc.specs import GIB, Totals
from jobmeter.dialects.alibaba.pai_dlc.states import STATUS, STATUSES
from jobmeter.dialects.base import Steps, ask
from jobmeter.dialects.base.request import Choice
from jobmeter.errors import InvalidRequestError
from jobmeter.model.job import Condition, JobFilter, JobPage, JobState, Operator

SORTS: Mapping[str, str] = {
    "DisplayName": "name",
    "JobType": "type",
    "Status": "state",
    "GmtCreateTime": "created",
    "GmtFinishTime": "end",
    "GmtRunningTime": "start",
}
"""The sort keys of a list."""
_ALL = frozenset(JobState)
TIMES: Mapping[str, tuple[str, frozenset[JobState]]] = {
    "GmtCreateTime": ("created", _ALL),
    "GmtSubmittedTime": ("created", _ALL),
    "GmtRunningTime": ("start", _ALL),
    "GmtFinishTime": ("end", frozenset(state for state in JobState if state.finished)),
    "GmtSuccessedTime": ("end", frozenset({JobState.SUCCEEDED})),
    "GmtFailedTime": ("end", frozenset({JobState.FAILED})),
    "GmtStoppedTime": ("end", frozenset({JobState.STOPPED, JobState.UNKNOWN})),
}
"""Times that StartTime and EndTime may bound: our field of each, and the states that have the time."""
_SUMS = ("RequestCPU", "RequestGPU", "RequestMemory", "NodeCount")
PAYMENTS = ("PrePaid", "Spot", "PostPaid")

_OWN = "extra.pai-dlc"
_OfSettings = Annotated[str, "The value in the job's Settings."]
_EQUAL = {
    "template_id": f"{_OWN}.TemplateId",
    "pipeline_id": f"{_OWN}.PipelineId",
    "caller": f"{_OWN}.Caller",
    "business_user_id": f"{_OWN}.BusinessUserId",
}
"""Job fields that must equal a parameter, by the name of the parameter."""
_CONTAINS = {
    "username": "user",
    "resource_quota_name": "resource_group",
    "description": f"{_OWN}.Description",
    "image_search": f"{_OWN}.Images",
    "reason_search": "error",
    "user_command_search": "command",
}
_ALL_PRIORITIES = range(1, 10)


def sum_requests(totals: Totals) -> dict[str, float]:
    """Return the requests of all pods of a registered job; ListJobs filters by them as its record stores them."""
    memory = None if totals.memory is None else totals.memory / GIB
    found = dict(zip(_SUMS, (totals.cpu, totals.gpu, memory, totals.pods), strict=True))
    return {name: value for name, value in found.items() if value is not None}


@operation("GET /api/v1/jobs", "jobs:read", by_resource=True)
class ListJobs(AlibabaRequest, frozen=True, kw_only=True):
    """Lists a page of the jobs that match every filter, and their total number: `{Jobs, TotalCount, RequestId}`.

    Without StartTime, only jobs of the last seven days. A member has the fields of GetJob, without pods and history,
    with RequestGPU and RequestMemory (GiB) as texts.
    """

    job_id: Annotated[str, "One job by its id. It takes precedence over JobIds."] = ""
    job_ids: Annotated[tuple[str, ...], "Ids, separated by commas."] = ()
    display_name: Annotated[str, "Part of the name, in any letter case."] = ""
    display_name_search_mode: Annotated[
        Literal["Wildcard", "Fuzzy", "Exact"], "`Exact` takes the whole name, the others a part."
    ] = "Wildcard"
    job_type: Annotated[str, "The job's type, `PyTorchJob` say."] = ""
    status: Annotated[str, Choice(tuple(STATUSES))] = ""
    workspace_id: Annotated[str, "The workspace."] = ""
    from_all_workspaces: Annotated[bool, "`true`: WorkspaceId is ignored."] = False
    resource_id: Annotated[str, "The resource group. It takes precedence over ResourceIds."] = ""
    resource_ids: Annotated[tuple[str, ...], "Resource groups, separated by commas."] = ()
    resource_quota_name: Annotated[str, "Part of the resource group's name."] = ""
    user_id_for_filter: Annotated[str, "The user."] = ""
    username: Annotated[str, "Part of the user's name."] = ""
    show_own: Annotated[bool, "`true`: only jobs whose user has the name of the caller's key."] = False
    tags: Labels = field(default_factory=dict)
    business_user_id: _OfSettings = ""
    caller: _OfSettings = ""
    pipeline_id: _OfSettings = ""
    template_id: Annotated[str, "The template that the job was made from."] = ""
    accessibility: Annotated[
        Operator | None,
        "A job is private unless its record says otherwise.",
        Choice({"PUBLIC": Operator.IN, "PRIVATE": Operator.NOT_IN}),
    ] = None
    payment_type: Annotated[str, "With a resource group, spot, or neither.", Choice(PAYMENTS)] = ""
    oversold_info: Annotated[
        str,
        Choice(
            (
                *("ForbiddenQuotaOverSold", "ForceQuotaOverSold"),
                *("AcceptQuotaOverSold-true", "AcceptQuotaOverSold-false"),
            )
        ),
    ] = ""
    enable_assign_node: Annotated[bool | None, "`true`: jobs that were bound to nodes; `false`: the others.", FLAG] = (
        None
    )
    description: Annotated[str, "Part of the description."] = ""
    image_search: Annotated[str, "Part of an image's name."] = ""
    reason_search: Annotated[str, "Part of the error."] = ""
    user_command_search: Annotated[str, "Part of the command."] = ""
    time_range_field: Annotated[str, "The bounded time.", Choice(tuple(TIMES))] = "GmtCreateTime"
    start_time: WeekStart = None
    end_time: WeekEnd = None
    numeric_range_field: Annotated[
        str,
        "Seconds; 1 to 9; cores, GPUs, GiB and pods of a registered job.",
        Choice(("Duration", "Priority", *_SUMS)),
    ] = ""
    numeric_range_min: Annotated[int | None, "The least number, included.", Meta(ge=0, le=2**53)] = None
    numeric_range_max: Annotated[int | None, "The greatest number, included.", Meta(ge=0, le=2**53)] = None
    sort_by: Annotated[str, Choice(SORTS)] = "created"
    order: Annotated[bool, ORDER] = True
    page_number: Annotated[int, "From 1.", Meta(ge=1, le=2_000_000)] = 1
    page_size: Annotated[int, Meta(ge=1, le=1000)] = 50

    def _steps(self) -> Steps:
        question = self._filter()
        page = JobPage([], 0) if question is None else (yield from ask(question))
        jobs = [items.describe_listed(job, self.context.now_ms) for job in page.jobs]
        return answer({"Jobs": jobs, "TotalCount": page.total}, self)

    def _filter(self) -> JobFilter | None:
        """Return the query of the call; None if its filters exclude each other."""
        states, conditions = STATUS.find_matching(self.status) if self.status else (_ALL, ())
        bounds, meant = self._bounds()
        states &= meant
        users = select_given(self.user_id_for_filter, self.context.caller if self.show_own else "")
        if not states or len(users) > 1 or not self._priorities():
            return None
        return JobFilter(
            ids=self._ids(),
            states=frozenset() if states == _ALL else states,
            types=select_given(self.job_type),
            users=users,
            resource_groups=select_given(self.resource_id) or frozenset(self.resource_ids),
            workspaces=frozenset() if self.from_all_workspaces else select_given(self.workspace_id),
            created_from=bounds.get("created_from"),
            created_to=bounds.get("created_to"),
            conditions=(*conditions, *bounds.get("conditions", ()), *self._conditions()),
            sort=self.sort_by,
            descending=self.order,
            offset=(self.page_number - 1) * self.page_size,
            limit=self.page_size,
        )

    def _ids(self) -> tuple[str, ...]:
        """Return the ids as sent and in lower case, because the vendor ignores case."""
        names = (self.job_id,) if self.job_id else self.job_ids
        return tuple(dict.fromkeys(part for name in names for part in (name, name.lower())))

    def _bounds(self) -> tuple[dict[str, Any], frozenset[JobState]]:
        column, states = TIMES[self.time_range_field]
        span = self.read_time_range(self.start_time, self.end_time, WEEK)
        if column == "created":
            return {"created_from": span.start_ms, "created_to": span.end_ms + 1}, states
        return {"conditions": (Condition(column, Operator.BETWEEN, (span.start_ms, span.end_ms)),)}, states

    def _conditions(self) -> Iterator[Condition]:
        if self.display_name:
            operator = Operator.IN if self.display_name_search_mode == "Exact" else Operator.CONTAINS
            yield Condition("name", operator, (self.display_name,), "id")
        for operator, fields in ((Operator.IN, _EQUAL), (Operator.CONTAINS, _CONTAINS)):
            for name, column in fields.items():
                if text := getattr(self, name):
                    yield Condition(column, operator, (text,))
        for label, value in self.tags.items():
            yield Condition(f"labels.{label}", Operator.IN, (value,))
        yield from self._choices()
        yield from self._numbers()

    def _choices(self) -> Iterator[Condition]:
        if self.accessibility is not None:
            yield Condition(f"{_OWN}.Accessibility", self.accessibility, ("PUBLIC",))
        if self.payment_type:
            yield from _payment(self.payment_type)
        if self.oversold_info:
            yield Condition(f"{_OWN}.OversoldInfo", Operator.IN, (self.oversold_info,))
        if self.enable_assign_node is not None:
            fixed = Operator.IN if self.enable_assign_node else Operator.NOT_IN
            yield Condition(f"{_OWN}.EnableAssignNode", fixed, ("true",))

    def _numbers(self) -> Iterator[Condition]:
        chosen, least, most = self.numeric_range_field, self.numeric_range_min, self.numeric_range_max
        if not chosen and (least, most) != (None, None):
            raise InvalidRequestError("NumericRangeMin and NumericRangeMax need NumericRangeField", "NumericRangeField")
        if chosen == "Duration":
            low, high = (None if bound is None else bound * 1000 for bound in (least, most))
            # A duration of 59.9 s is shown as 59.
            yield Condition("duration", Operator.BETWEEN, (low, None if high is None else high + 999))
        elif chosen in _SUMS:
            yield Condition(f"{_OWN}.{chosen}", Operator.BETWEEN, (least, most))
        elif chosen == "Priority":
            fit = self._priorities()
            others = tuple(str(priority) for priority in _ALL_PRIORITIES if priority not in fit)
            # A job without a priority has the lowest.
            if 1 not in fit:
                yield Condition(f"{_OWN}.Priority", Operator.IN, tuple(map(str, fit)))
            elif others:
                yield Condition(f"{_OWN}.Priority", Operator.NOT_IN, others)

    def _priorities(self) -> tuple[int, ...]:
        """Return the matching priorities; all of them without a filter."""
        if self.numeric_range_field != "Priority":
            return tuple(_ALL_PRIORITIES)
        lowest = 1 if self.numeric_range_min is None else self.numeric_range_min
        highest = 9 if self.numeric_range_max is None else self.numeric_range_max
        return tuple(priority for priority in _ALL_PRIORITIES if lowest <= priority <= highest)


def _payment(payment: str) -> Iterator[Condition]:
    """Yield conditions on the payment in the job's record; a job without one is prepaid if it has a resource group."""
    if payment == "Spot":
        yield Condition(f"{_OWN}.PaymentType", Operator.IN, ("Spot",))
        return
    yield Condition(f"{_OWN}.PaymentType", Operator.NOT_IN, tuple(name for name in PAYMENTS if name != payment))
    yield Condition("resource_group", Operator.NOT_IN if payment == "PrePaid" else Operator.IN, ("",))
