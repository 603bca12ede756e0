"""Our errors as the vendor's Code, Message and status.

Codes: https://api.aliyun.com/document/pai-dlc/2020-12-03/errorCode and the gateway's common ones. The vendor's SDK
needs an error body that is a JSON object with exactly these keys, and three throttling headers, as measured with
``alibabacloud-tea-openapi`` 0.3.16, 0.4.4 and 0.4.6. The URL form has the codes and statuses of its own page.
"""

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from jobmeter.access.call import Call
from jobmeter.dialects.alibaba.common.operation import JSON, match_url_form
from jobmeter.dialects.base import Answer, Context, MissingFieldError
from jobmeter.dialects.base.errors import Headers, choose_http_status, make_headers, name_field
from jobmeter.errors import (
    ForbiddenError,
    InvalidRequestError,
    JobmeterError,
    NotFoundError,
    QueryTimeoutError,
    ThrottledError,
    UnauthenticatedError,
)


class _Problem(msgspec.Struct, frozen=True):
    status: int
    code: str
    message: str
    headers: Headers = ()


# reason -> status, code, the vendor's sentence. The first sentence needs its colon: an older core of the vendor's SDK
# splits the message of SignatureDoesNotMatch there and fails without it.
_CREDENTIALS: Mapping[str, tuple[int, str, str]] = {
    "bad-signature": (
        400,
        "SignatureDoesNotMatch",
        "Specified signature is not matched with our calculation: check the secret and the signed request.",
    ),
    "unknown-key": (404, "InvalidAccessKeyId.NotFound", "Specified access key is not found."),
    "revoked": (403, "InvalidAccessKeyId.Inactive", "Specified access key is disabled."),
    "stale": (400, "InvalidTimeStamp.Expired", "Specified time stamp or date value is expired."),
    "expired": (400, "InvalidSecurityToken.Expired", "Specified token is expired."),
    "replayed": (400, "SignatureNonceUsed", "Specified signature nonce was used already."),
}

_CODES = {
    400: "InvalidParameter",
    403: "Forbidden.RAM",
    404: "NotFound",
    405: "UnsupportedHTTPMethod",
    409: "OperationConflict",
    413: "InvalidParameter",
    429: "Throttling.User",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "ServiceUnavailable.Timeout",
}
NOT_FOUND: Mapping[str, str] = {"job": "InvalidJobId.NotFound"}
"""The code for a missing object, by kind; a product may have others. The default is ``NotFound``."""


def render(
    call: Call,
    context: Context,
    error: JobmeterError,
    fields: Mapping[str, str],
    not_found: Mapping[str, str],
    forbidden: str,
) -> Answer:
    """Render the error as the vendor's answer, with the words of a ``product.Product``.

    The body is a JSON object for every status.
    """
    problem = _problem(error, fields, not_found)
    if match_url_form(call.raw_path):
        problem = _convert_to_url_form(error, problem)
    if forbidden and isinstance(error, ForbiddenError):
        problem = replace(problem, code=forbidden)
    body = msgspec.json.encode(
        {
            "RequestId": context.request_id,
            "HostId": call.get_header("host"),
            "Code": problem.code,
            "Message": problem.message,
        }
    )
    headers = (("x-acs-request-id", context.request_id), *problem.headers)
    return Answer(problem.status, body, headers, JSON)


def _convert_to_url_form(error: JobmeterError, problem: _Problem) -> _Problem:
    match error:
        case UnauthenticatedError():
            return _Problem(401, "Unauthorized", f"The API key or token is invalid or missing: {error.message}.")
        case ForbiddenError():
            return replace(problem, code="UnauthorizedOperation")
        case ThrottledError():
            return replace(problem, code="Throttling")
        case QueryTimeoutError():
            return replace(problem, status=503, code="ServiceUnavailable")
        case MissingFieldError():
            return replace(problem, code="InvalidParameter")
        case _:
            return problem


def _problem(error: JobmeterError, fields: Mapping[str, str], not_found: Mapping[str, str]) -> _Problem:
    if isinstance(error, UnauthenticatedError):
        return _Problem(*_CREDENTIALS.get(error.reason, (400, "IncompleteSignature", error.message)))
    status, message, headers = choose_http_status(error, over_limit=400), error.message, make_headers(error)
    code = _CODES[status]
    match error:
        case InvalidRequestError():
            message = name_field(error, fields)
            code = "MissingParameter" if isinstance(error, MissingFieldError) else code
        case NotFoundError(kind="path"):
            code = "InvalidAction.NotFound"
        case NotFoundError():
            code = not_found.get(error.kind, code)
            if error.kind == "job":
                message = f"The specified {fields.get('job', 'JobId')} {error.name} does not exist."
        case ThrottledError():
            headers = _make_throttling_headers(error)
        case _:
            pass
    if status == 500:
        message = "The request processing has failed due to an internal error."
    return _Problem(status, code, message, headers)


def _make_throttling_headers(error: ThrottledError) -> Headers:
    # Core 0.4.6 reads x-acs-retry-after (ms), 0.4.0 to 0.4.4 x-ratelimit-user-api, plain HTTP clients Retry-After (s).
    wait = max(1, error.retry_after_ms)
    return (
        ("x-acs-retry-after", str(wait)),
        *make_headers(error),
        ("x-ratelimit-user-api", f"Limit:1,Remain:0,TimeLeft:{wait}"),
    )
