"""ListJobSanityCheckResults and GetJobSanityCheckResult: results that a job reported about its machines.

They are in the job's record: ``extra["pai-dlc"]["SanityCheckResults"]``, a list of checks, each a list of items.
"""

from collections.abc import Iterator
from typing import Annotated, Any

from msgspec import Meta

from jobmeter.dialects.alibaba.common.operation import ORDER, answer, operation
from jobmeter.dialects.alibaba.pai_dlc.items import read_own_fields
from jobmeter.dialects.alibaba.pai_dlc.requests import DlcJobRequest, Token
from jobmeter.dialects.base import Steps
from jobmeter.dialects.base.request import Choice
from jobmeter.model.grouping import group_pairs
from jobmeter.model.job import Job

PHASES = ("CheckInit", "DeviceCheck", "SingleNodeCommCheck", "TwoNodeCommCheck", "AllNodeCommCheck")
_TEXTS = ("Phase", "Status", "Message", "StartedAt", "FinishedAt")
_ID = "RequestID"
"""The spelling of the request id's key in the answers of these two operations."""


@operation("GET /api/v1/jobs/{JobId}/sanitycheckresults", "jobs:read", by_resource=True)
class ListJobSanityCheckResults(DlcJobRequest, frozen=True, kw_only=True):
    """Lists the health checks in the job's record, `extra.pai-dlc.SanityCheckResults`; empty without any.

    `{SanityCheckResults: [[{CheckNumber, Phase, Status, Message, StartedAt, FinishedAt}]], TotalCount, RequestID}`.
    """

    order: Annotated[bool, "By the number of the check.", ORDER] = False

    def _steps(self) -> Steps:
        view = yield from self.find_view()
        checks = group_pairs((item["CheckNumber"], item) for item in _items(view.job))
        found = [checks[number] for number in sorted(checks, reverse=self.order)]
        return answer({"SanityCheckResults": found, "TotalCount": len(found)}, self, id_key=_ID)


@operation("GET /api/v1/jobs/{JobId}/sanitycheckresult", "metrics:read", by_resource=True)
class GetJobSanityCheckResult(DlcJobRequest, frozen=True, kw_only=True):
    """Returns one health check that the job reported: `{JobId, SanityCheckResult: [...], RequestID}`."""

    sanity_check_number: Annotated[int, "The number of the check.", Meta(ge=0, le=2**31)]
    sanity_check_phase: Annotated[str, "Default: all.", Choice(PHASES)] = ""
    token: Token = ""

    def _steps(self) -> Steps:
        view = yield from self.find_view()
        number, phase = self.sanity_check_number, self.sanity_check_phase
        found = [item for item in _items(view.job) if item["CheckNumber"] == number and phase in {"", item["Phase"]}]
        return answer({"JobId": view.job.id, "SanityCheckResult": found}, self, id_key=_ID)


def _items(job: Job) -> Iterator[dict[str, Any]]:
    """Yield the items in the vendor's types. A check without a number gets its position in the list."""
    reported = read_own_fields(job).get("SanityCheckResults")
    for place, check in enumerate(reported if isinstance(reported, list) else [], 1):
        for item in check if isinstance(check, list) else [check]:
            if isinstance(item, dict):
                number = item.get("CheckNumber")
                texts = {name: str(item.get(name, "") or "") for name in _TEXTS}
                yield {"CheckNumber": number if type(number) is int else place, **texts}
