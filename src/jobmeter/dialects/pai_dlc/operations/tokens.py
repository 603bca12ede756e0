"""GetToken: a share token, which GetJobMetrics takes as ``Token``."""

from jobmeter.access.call import Call
from jobmeter.access.share import DEFAULT_LIFE_SECONDS, MAX_LIFE_SECONDS
from jobmeter.dialects.alibaba.operation import Arguments, answer
from jobmeter.dialects.base import Context, Operation, Parameter, ShareQuestion, Steps, execute
from jobmeter.errors import InvalidRequestError
from jobmeter.query.request import JobRef


def get_token(call: Call, context: Context) -> Steps:
    """A share token for one job."""
    arguments = Arguments(call, context)
    kind = arguments.required("TargetType")
    if kind != "job":
        raise InvalidRequestError(f"TargetType {kind!r} is not supported; only job is", "TargetType")
    seconds = arguments.integer("ExpireTime", DEFAULT_LIFE_SECONDS, 1, MAX_LIFE_SECONDS)
    made = yield from execute(ShareQuestion(JobRef(arguments.required("TargetId")), seconds))
    return answer({"Token": made.token}, context)


OPERATIONS = (
    Operation(
        name="GetToken",
        action="share:write",
        method="GET",
        path="/api/v1/tokens",
        answer=get_token,
        parameters=(
            Parameter("TargetId", "query", "The job.", required=True),
            Parameter("TargetType", "query", "`job`.", required=True),
            Parameter("ExpireTime", "query", "Seconds, 1 to 31536000. Default: 604800."),
        ),
        text="A token that opens the measurements of one job to whoever holds it: `{Token, RequestId}`.",
    ),
)
