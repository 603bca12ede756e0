"""Our errors as Huawei's code, message and status.

Codes: https://support.huaweicloud.com/intl/en-us/api-modelarts/modelarts_03_0095.html, those that begin with APIGW
https://support.huaweicloud.com/intl/en-us/devg-apig/apig-dev-180602.html. The SDK reads ``error_code``, ``error_msg``,
and the id of the request from the header alone.
"""

import msgspec

from jobmeter.access.call import Call
from jobmeter.access.signatures.sdk_hmac import SDK_HMAC, canonical_request
from jobmeter.dialects.base import Answer, Context
from jobmeter.dialects.modelarts.answers import id_header, request_id
from jobmeter.dialects.modelarts.names import FIELDS
from jobmeter.errors import (
    ConflictError,
    ForbiddenError,
    InvalidRequestError,
    JobmeterError,
    LimitExceededError,
    NotFoundError,
    QueryTimeoutError,
    ThrottledError,
    UnauthenticatedError,
    UnavailableError,
)

INVALID_QUERY = "ModelArts.2764"
INVALID_JSON = "ModelArts.2787"
INVALID_PARAMETER = "ModelArts.2788"
UNSUPPORTED_SORT = "ModelArts.2790"
UNSUPPORTED_KEY = "ModelArts.2807"
UNSUPPORTED_OPERATOR = "ModelArts.2808"
UNSUPPORTED_VALUE = "ModelArts.2809"
NO_LOG = "ModelArts.2818"
MAX_SHOWN = 4096
"""Most characters of a canonical request in an error message."""
_INCORRECT = "Incorrect IAM authentication information: "


class RefusedError(InvalidRequestError):
    """A request is rejected with a specific code."""

    def __init__(self, code: str, message: str, field: str = "") -> None:
        super().__init__(message, field)
        self.code = code


class _Problem(msgspec.Struct, frozen=True):
    status: int
    code: str
    message: str
    headers: tuple[tuple[str, str], ...] = ()


def render(call: Call, context: Context, error: JobmeterError) -> Answer:
    """Render the error as their answer, a JSON object for every status; gateway errors name the request."""
    problem = _problem(call, error)
    body = {"error_code": problem.code, "error_msg": problem.message}
    if problem.code.startswith("APIGW"):
        body["request_id"] = request_id(context)
    return Answer(problem.status, msgspec.json.encode(body), (*id_header(context), *problem.headers))


def _problem(call: Call, error: JobmeterError) -> _Problem:  # noqa: PLR0911 - one line a kind
    match error:
        case UnauthenticatedError():
            return _Problem(401, "APIGW.0301", _INCORRECT + _credential(call, error))
        case InvalidRequestError():
            return _invalid(error)
        case NotFoundError():
            return _not_found(error)
        case ThrottledError():
            return _Problem(429, "ModelArts.2799", f"Too many requests: {error.message}", _later(error.retry_after_ms))
        case ForbiddenError():
            return _Problem(403, "ModelArts.0108", f"Not authorized: {error.message}")
        case ConflictError():
            return _Problem(409, "ModelArts.2796", error.message)
        case UnavailableError():
            return _Problem(503, "APIGW.0202", error.message, _later(error.retry_after_ms))
        case QueryTimeoutError():
            return _Problem(504, "APIGW.0203", error.message)
        case _:
            return _Problem(500, "APIGW.0601", "Internal server error.")


def _invalid(error: InvalidRequestError) -> _Problem:
    code = error.code if isinstance(error, RefusedError) else INVALID_PARAMETER
    field = FIELDS.get(error.field, error.field)
    said = error.message.removeprefix(field).lstrip()
    message = f"Invalid parameter({field}): {said}" if field else error.message
    too_large = isinstance(error, LimitExceededError) and error.field == "body"
    return _Problem(413 if too_large else 400, code, message)


def _not_found(error: NotFoundError) -> _Problem:
    if error.kind == "job":
        return _Problem(400, "ModelArts.2775", f"Training job (ID: {error.name}) not found.")
    if error.kind == "project":
        return _Problem(404, "ModelArts.2786", error.message)
    if error.kind == "method":
        return _Problem(405, "ModelArts.2803", error.message, (("Allow", error.name),))
    return _Problem(404, "ModelArts.2836", error.message)


def _later(wait_ms: int | None) -> tuple[tuple[str, str], ...]:
    return () if wait_ms is None else (("Retry-After", str(max(1, -(-wait_ms // 1000)))),)


def _credential(call: Call, error: UnauthenticatedError) -> str:
    """Return their gateway's error for an invalid credential."""
    try:
        claim = SDK_HMAC.claim(call)
    except UnauthenticatedError:
        claim = None
    key = "" if claim is None or call.header("x-auth-token") else claim.value
    if error.reason == "missing":
        return "x-auth-token not found"
    if error.reason == "unknown-key":
        return f"ak {key} not exist" if key else "decrypt token fail"
    if error.reason == "bad-signature":
        # The canonical request in one line, for comparison with the client's.
        text = canonical_request(call)[:MAX_SHOWN].replace("\n", "|")
        return f"verify aksk signature fail, canonicalRequest:{text}"
    if error.reason == "stale":
        return "calc ak sk signature fail:signature expired"
    return f"verify {f'ak {key}' if key else 'token'} fail: {error.message}"
