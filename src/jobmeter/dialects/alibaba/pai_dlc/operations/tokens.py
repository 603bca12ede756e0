"""GetToken: a share token, which GetJobMetrics accepts as ``Token``."""

from typing import Annotated

from msgspec import Meta

from jobmeter.access.share import DEFAULT_LIFE_SECONDS, MAX_LIFE_SECONDS
from jobmeter.dialects.alibaba.common.operation import AlibabaRequest, answer, operation
from jobmeter.dialects.base import ShareQuestion, Steps, ask
from jobmeter.errors import InvalidRequestError
from jobmeter.query.request import JobRef


@operation("GET /api/v1/tokens", "share:write")
class GetToken(AlibabaRequest, frozen=True, kw_only=True):
    """Returns a token with which any holder can read the measurements of one job: `{Token, RequestId}`."""

    target_id: Annotated[str, "The job."]
    target_type: Annotated[str, "`job`."]
    expire_time: Annotated[int, "Seconds.", Meta(ge=1, le=MAX_LIFE_SECONDS)] = DEFAULT_LIFE_SECONDS

    def _steps(self) -> Steps:
        if self.target_type != "job":
            raise InvalidRequestError(f"TargetType {self.target_type!r} is not supported; only job is", "TargetType")
        made = yield from ask(ShareQuestion(JobRef(self.target_id), self.expire_time))
        return answer({"Token": made.token}, self)
