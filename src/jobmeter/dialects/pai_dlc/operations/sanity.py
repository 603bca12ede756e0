"""ListJobSanityCheckResults and GetJobSanityCheckResult: results that a job reported about its machines.

A job reports it in its record: ``extra["pai-dlc"]["SanityCheckResults"]``, a list of checks, each a list of items.
"""

from collections.abc import Iterator
from typing import Any

from jobmeter.access.call import Call
from jobmeter.dialects.alibaba.operation import Arguments, answer
from jobmeter.dialects.base import Context, Operation, Parameter, Steps, execute
from jobmeter.dialects.pai_dlc.items import own
from jobmeter.model.job import Job
from jobmeter.query.request import JobQuestion, JobRef

PHASES = ("CheckInit", "DeviceCheck", "SingleNodeCommCheck", "TwoNodeCommCheck", "AllNodeCommCheck")
_TEXTS = ("Phase", "Status", "Message", "StartedAt", "FinishedAt")
_ID = "RequestID"
"""These two operations spell it so."""


def list_results(call: Call, context: Context) -> Steps:
    """Every check of a job, by its number."""
    arguments = Arguments(call, context)
    descending = arguments.choice("Order", {"asc": False, "desc": True}, False)
    view = yield from execute(JobQuestion(JobRef(arguments.required("JobId"))))
    checks: dict[int, list[dict[str, Any]]] = {}
    for item in _items(view.job):
        checks.setdefault(item["CheckNumber"], []).append(item)
    found = [checks[number] for number in sorted(checks, reverse=descending)]
    return answer({"SanityCheckResults": found, "TotalCount": len(found)}, context, id_key=_ID)


def get_result(call: Call, context: Context) -> Steps:
    """One check of a job, or one phase of it. One that the job did not report has no items."""
    arguments = Arguments(call, context)
    number = arguments.integer("SanityCheckNumber", None, 0, 2**31)
    phase = arguments.choice("SanityCheckPhase", {name: name for name in PHASES}, "")
    view = yield from execute(JobQuestion(JobRef(arguments.required("JobId"))))
    found = [item for item in _items(view.job) if item["CheckNumber"] == number and phase in {"", item["Phase"]}]
    return answer({"JobId": view.job.id, "SanityCheckResult": found}, context, id_key=_ID)


def _items(job: Job) -> Iterator[dict[str, Any]]:
    """The items in the vendor's types. A check without a number has its position in the list as number."""
    reported = own(job).get("SanityCheckResults")
    for place, check in enumerate(reported if isinstance(reported, list) else [], 1):
        for item in check if isinstance(check, list) else [check]:
            if isinstance(item, dict):
                number = item.get("CheckNumber")
                texts = {name: str(item.get(name, "") or "") for name in _TEXTS}
                yield {"CheckNumber": number if type(number) is int else place, **texts}


OPERATIONS = (
    Operation(
        name="ListJobSanityCheckResults",
        action="jobs:read",
        method="GET",
        path="/api/v1/jobs/{JobId}/sanitycheckresults",
        answer=list_results,
        parameters=(
            Parameter("JobId", "path", "The job.", required=True),
            Parameter("Order", "query", "By the number of the check: `asc` (default) or `desc`."),
        ),
        text=(
            "The health checks that the job reported in its record (`extra.pai-dlc.SanityCheckResults`), none where it "
            "reported none: `{SanityCheckResults: [[{CheckNumber, Phase, Status, Message, StartedAt, FinishedAt}]], "
            "TotalCount, RequestID}`."
        ),
    ),
    Operation(
        name="GetJobSanityCheckResult",
        action="metrics:read",
        method="GET",
        path="/api/v1/jobs/{JobId}/sanitycheckresult",
        answer=get_result,
        parameters=(
            Parameter("JobId", "path", "The job.", required=True),
            Parameter("SanityCheckNumber", "query", "The number of the check.", required=True),
            Parameter(
                "SanityCheckPhase", "query", f"One of {', '.join(f'`{name}`' for name in PHASES)}. Default: all."
            ),
            Parameter("Token", "query", "A share token (GetToken), read when the call has no other credential."),
        ),
        text="One health check that the job reported: `{JobId, SanityCheckResult: [...], RequestID}`.",
    ),
)
