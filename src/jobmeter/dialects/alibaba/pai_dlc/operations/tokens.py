"""GetToken: a share token, which GetJobMetrics accepts as ``Token``."""

from jobmeter.access.share import DEFAULT_LIFE_SECONDS, MAX_LIFE_SECONDS
from jobmeter.dialects.alibaba.common.operation import Arguments, answer, in_query, operation
from jobmeter.dialects.base import ShareQuestion, Steps, execute
from jobmeter.errors import InvalidRequestError
from jobmeter.query.request import JobRef


@operation(
    "GET /api/v1/tokens",
    "share:write",
    in_query("TargetId", "The job.", required=True),
    in_query("TargetType", "`job`.", required=True),
    in_query("ExpireTime", "Seconds, 1 to 31536000. Default: 604800."),
)
def get_token(arguments: Arguments) -> Steps:
    """Returns a token that gives any holder the measurements of one job: `{Token, RequestId}`."""
    kind = arguments.required("TargetType")
    if kind != "job":
        raise InvalidRequestError(f"TargetType {kind!r} is not supported; only job is", "TargetType")
    seconds = arguments.integer("ExpireTime", DEFAULT_LIFE_SECONDS, 1, MAX_LIFE_SECONDS)
    made = yield from execute(ShareQuestion(JobRef(arguments.required("TargetId")), seconds))
    return answer({"Token": made.token}, arguments)
