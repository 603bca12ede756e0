"""ListJobSanityCheckResults and GetJobSanityCheckResult: results that a job reported about its machines.

A job reports them in its record: ``extra["pai-dlc"]["SanityCheckResults"]``, a list of checks, each a list of items.
"""

from collections.abc import Iterator
from typing import Any

from jobmeter.dialects.alibaba.common.operation import Arguments, answer, in_query, listed, operation
from jobmeter.dialects.alibaba.pai_dlc.items import own
from jobmeter.dialects.alibaba.pai_dlc.operations.common import JOB, TOKEN, job_view
from jobmeter.dialects.base import Steps
from jobmeter.model.job import Job

PHASES = ("CheckInit", "DeviceCheck", "SingleNodeCommCheck", "TwoNodeCommCheck", "AllNodeCommCheck")
_TEXTS = ("Phase", "Status", "Message", "StartedAt", "FinishedAt")
_ID = "RequestID"
"""Spelling of the request's id in these two operations."""


@operation(
    "GET /api/v1/jobs/{JobId}/sanitycheckresults",
    "jobs:read",
    JOB,
    in_query("Order", "By the number of the check: `asc` (default) or `desc`."),
    by_resource=True,
)
def list_job_sanity_check_results(arguments: Arguments) -> Steps:
    """Lists the health checks in the job's record, `extra.pai-dlc.SanityCheckResults`; empty without any.

    `{SanityCheckResults: [[{CheckNumber, Phase, Status, Message, StartedAt, FinishedAt}]], TotalCount, RequestID}`.
    """
    descending = arguments.choice("Order", {"asc": False, "desc": True}, False)
    view = yield from job_view(arguments)
    checks: dict[int, list[dict[str, Any]]] = {}
    for item in _items(view.job):
        checks.setdefault(item["CheckNumber"], []).append(item)
    found = [checks[number] for number in sorted(checks, reverse=descending)]
    return answer({"SanityCheckResults": found, "TotalCount": len(found)}, arguments, id_key=_ID)


@operation(
    "GET /api/v1/jobs/{JobId}/sanitycheckresult",
    "metrics:read",
    JOB,
    in_query("SanityCheckNumber", "The number of the check.", required=True),
    in_query("SanityCheckPhase", f"One of {listed(PHASES)}. Default: all."),
    TOKEN,
    by_resource=True,
)
def get_job_sanity_check_result(arguments: Arguments) -> Steps:
    """Returns one health check that the job reported: `{JobId, SanityCheckResult: [...], RequestID}`."""
    number = arguments.integer("SanityCheckNumber", None, 0, 2**31)
    phase = arguments.word("SanityCheckPhase", PHASES)
    view = yield from job_view(arguments)
    found = [item for item in _items(view.job) if item["CheckNumber"] == number and phase in {"", item["Phase"]}]
    return answer({"JobId": view.job.id, "SanityCheckResult": found}, arguments, id_key=_ID)


def _items(job: Job) -> Iterator[dict[str, Any]]:
    """Yield the items in the vendor's types. A check without a number gets its position in the list."""
    reported = own(job).get("SanityCheckResults")
    for place, check in enumerate(reported if isinstance(reported, list) else [], 1):
        for item in check if isinstance(check, list) else [check]:
            if isinstance(item, dict):
                number = item.get("CheckNumber")
                texts = {name: str(item.get(name, "") or "") for name in _TEXTS}
                yield {"CheckNumber": number if type(number) is int else place, **texts}
