"""The filters, the order and the paging of ListJobs as a query for jobs."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from jobmeter.dialects.alibaba.common.operation import Arguments
from jobmeter.dialects.alibaba.pai_dlc.specs import GIB, Totals
from jobmeter.dialects.alibaba.pai_dlc.states import STATUS, STATUSES
from jobmeter.errors import InvalidRequestError
from jobmeter.model.job import Condition, JobFilter, JobState, Operator
from jobmeter.model.time import DAY

DEFAULT_PAGE = 50
MAX_PAGE = 1000
SORTS: Mapping[str, str] = MappingProxyType(
    {
        "DisplayName": "name",
        "JobType": "type",
        "Status": "state",
        "GmtCreateTime": "created",
        "GmtFinishTime": "end",
        "GmtRunningTime": "start",
    }
)
"""The sort keys of a list."""
_ALL = frozenset(JobState)
TIMES: Mapping[str, tuple[str, frozenset[JobState]]] = MappingProxyType(
    {
        "GmtCreateTime": ("created", _ALL),
        "GmtSubmittedTime": ("created", _ALL),
        "GmtRunningTime": ("start", _ALL),
        "GmtFinishTime": ("end", frozenset(state for state in JobState if state.finished)),
        "GmtSuccessedTime": ("end", frozenset({JobState.SUCCEEDED})),
        "GmtFailedTime": ("end", frozenset({JobState.FAILED})),
        "GmtStoppedTime": ("end", frozenset({JobState.STOPPED, JobState.UNKNOWN})),
    }
)
"""Times that StartTime and EndTime may bound: our field, and the states that show it."""
_SUMS = ("RequestCPU", "RequestGPU", "RequestMemory", "NodeCount")
NUMBERS = ("Duration", "Priority", *_SUMS)
"""The fields of NumericRangeMin and NumericRangeMax."""
MODES = ("Wildcard", "Fuzzy", "Exact")
PAYMENTS = ("PrePaid", "Spot", "PostPaid")
OVERSOLD = ("ForbiddenQuotaOverSold", "ForceQuotaOverSold", "AcceptQuotaOverSold-true", "AcceptQuotaOverSold-false")

_OWN = "extra.pai-dlc"
_EQUAL = {name: f"{_OWN}.{name}" for name in ("TemplateId", "PipelineId", "Caller", "BusinessUserId")}
_CONTAINS = {
    "Username": "user",
    "ResourceQuotaName": "resource_group",
    "Description": f"{_OWN}.Description",
    "ImageSearch": f"{_OWN}.Images",
    "ReasonSearch": "error",
    "UserCommandSearch": "command",
}
_ALL_PRIORITIES = range(1, 10)


def sums(totals: Totals) -> dict[str, float]:
    """Return the requests of all pods of a registered job, stored in its record so that ListJobs can filter by them."""
    memory = None if totals.memory is None else totals.memory / GIB
    found = dict(zip(_SUMS, (totals.cpu, totals.gpu, memory, totals.pods), strict=True))
    return {name: value for name, value in found.items() if value is not None}


def filter_of(arguments: Arguments) -> JobFilter | None:
    """Return the query of the call; None if its filters exclude each other."""
    status = arguments.word("Status", STATUSES)
    states, conditions = STATUS.matching(status) if status else (_ALL, ())
    bounds, meant = _bounds(arguments)
    states &= meant
    offset, size = arguments.page(DEFAULT_PAGE, MAX_PAGE, 2_000_000)
    users = {arguments.text("UserIdForFilter"), arguments.context.caller if arguments.flag("ShowOwn") else ""} - {""}
    priorities = _priorities(arguments)
    workspaces = frozenset() if arguments.flag("FromAllWorkspaces") else arguments.given("WorkspaceId")
    if not states or len(users) > 1 or not priorities:
        return None
    return JobFilter(
        ids=_ids(arguments),
        states=frozenset() if states == _ALL else states,
        types=arguments.given("JobType"),
        users=frozenset(users),
        resource_groups=arguments.given("ResourceId") or frozenset(arguments.names("ResourceIds")),
        workspaces=workspaces,
        created_from=bounds.get("created_from"),
        created_to=bounds.get("created_to"),
        conditions=(*conditions, *bounds.get("conditions", ()), *_conditions(arguments)),
        sort=arguments.choice("SortBy", SORTS, "created"),
        descending=arguments.descending(default=True),
        offset=offset,
        limit=size,
    )


def _ids(arguments: Arguments) -> tuple[str, ...]:
    """Return the ids as sent and in lower case, because the vendor ignores case."""
    job = arguments.text("JobId")
    names = (job,) if job else arguments.names("JobIds")
    return tuple(dict.fromkeys(part for name in names for part in (name, name.lower())))


def _bounds(arguments: Arguments) -> tuple[dict[str, Any], frozenset[JobState]]:
    field, states = arguments.choice("TimeRangeField", TIMES, TIMES["GmtCreateTime"])
    span = arguments.time_range(7 * DAY)
    if field == "created":
        return {"created_from": span.start_ms, "created_to": span.end_ms + 1}, states
    return {"conditions": (Condition(field, Operator.BETWEEN, (span.start_ms, span.end_ms)),)}, states


def _conditions(arguments: Arguments) -> Iterator[Condition]:
    yield from _name(arguments)
    for operator, fields in ((Operator.IN, _EQUAL), (Operator.CONTAINS, _CONTAINS)):
        for name, field in fields.items():
            if text := arguments.text(name):
                yield Condition(field, operator, (text,))
    for label, value in arguments.mapping("Tags").items():
        yield Condition(f"labels.{label}", Operator.IN, (value,))
    yield from _choices(arguments)
    yield from _number(arguments)


def _name(arguments: Arguments) -> Iterator[Condition]:
    mode = arguments.word("DisplayNameSearchMode", MODES, "Wildcard")
    if text := arguments.text("DisplayName"):
        yield Condition("name", Operator.IN if mode == "Exact" else Operator.CONTAINS, (text,), "id")


def _choices(arguments: Arguments) -> Iterator[Condition]:
    public = arguments.choice("Accessibility", {"PUBLIC": Operator.IN, "PRIVATE": Operator.NOT_IN}, None)
    if public is not None:
        yield Condition(f"{_OWN}.Accessibility", public, ("PUBLIC",))
    if payment := arguments.word("PaymentType", PAYMENTS):
        yield from _payment(payment)
    if oversold := arguments.word("OversoldInfo", OVERSOLD):
        yield Condition(f"{_OWN}.OversoldInfo", Operator.IN, (oversold,))
    if arguments.text("EnableAssignNode"):
        fixed = Operator.IN if arguments.flag("EnableAssignNode") else Operator.NOT_IN
        yield Condition(f"{_OWN}.EnableAssignNode", fixed, ("true",))


def _payment(payment: str) -> Iterator[Condition]:
    """Yield conditions on the payment: by the job's record, else by its resource group, present or not."""
    if payment == "Spot":
        yield Condition(f"{_OWN}.PaymentType", Operator.IN, ("Spot",))
        return
    yield Condition(f"{_OWN}.PaymentType", Operator.NOT_IN, tuple(name for name in PAYMENTS if name != payment))
    yield Condition("resource_group", Operator.NOT_IN if payment == "PrePaid" else Operator.IN, ("",))


def _number(arguments: Arguments) -> Iterator[Condition]:
    field = arguments.word("NumericRangeField", NUMBERS)
    least, most = _range(arguments)
    if not field and (least, most) != (None, None):
        raise InvalidRequestError("NumericRangeMin and NumericRangeMax need NumericRangeField", "NumericRangeField")
    if field == "Duration":
        low, high = (None if bound is None else bound * 1000 for bound in (least, most))
        # A duration of 59.9 s is shown as 59.
        yield Condition("duration", Operator.BETWEEN, (low, None if high is None else high + 999))
    elif field in _SUMS:
        yield Condition(f"{_OWN}.{field}", Operator.BETWEEN, (least, most))
    elif field == "Priority":
        fit = _priorities(arguments)
        others = tuple(str(priority) for priority in _ALL_PRIORITIES if priority not in fit)
        # A job without a priority has the lowest.
        if 1 not in fit:
            yield Condition(f"{_OWN}.Priority", Operator.IN, tuple(map(str, fit)))
        elif others:
            yield Condition(f"{_OWN}.Priority", Operator.NOT_IN, others)


def _priorities(arguments: Arguments) -> tuple[int, ...]:
    """Return the matching priorities; all of them without a filter."""
    least, most = _range(arguments) if arguments.text("NumericRangeField").casefold() == "priority" else (None, None)
    lowest, highest = 1 if least is None else least, 9 if most is None else most
    return tuple(priority for priority in _ALL_PRIORITIES if lowest <= priority <= highest)


def _range(arguments: Arguments) -> tuple[int | None, int | None]:
    return _bound(arguments, "NumericRangeMin"), _bound(arguments, "NumericRangeMax")


def _bound(arguments: Arguments, name: str) -> int | None:
    return arguments.integer(name, 0, 0, 2**53) if arguments.text(name) else None
