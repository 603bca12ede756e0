"""Our errors as Huawei's code, message and status.

Codes: https://support.huaweicloud.com/intl/en-us/api-modelarts/modelarts_03_0095.html, those that begin with APIGW
https://support.huaweicloud.com/intl/en-us/devg-apig/apig-dev-180602.html. The SDK reads ``error_code``, ``error_msg``,
and the id of the request from the header alone.
"""

import msgspec

from jobmeter.access.call import Call
from jobmeter.access.signatures.sdk_hmac import SDK_HMAC, describe_canonical_request
from jobmeter.dialects.base import Answer, Context
from jobmeter.dialects.base.errors import choose_http_status, make_headers
from jobmeter.dialects.modelarts.answers import make_id_header, make_request_id
from jobmeter.dialects.modelarts.names import FIELDS
from jobmeter.errors import InvalidRequestError, JobmeterError, NotFoundError, UnauthenticatedError

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
_CODES = {
    400: INVALID_PARAMETER,
    401: "APIGW.0301",
    403: "ModelArts.0108",
    404: "ModelArts.2836",
    405: "ModelArts.2803",
    409: "ModelArts.2796",
    413: INVALID_PARAMETER,
    429: "ModelArts.2799",
    500: "APIGW.0601",
    503: "APIGW.0202",
    504: "APIGW.0203",
}
_MESSAGES = {403: "Not authorized: {}", 429: "Too many requests: {}", 500: "Internal server error."}
"""The template of the message by status, for statuses that add text to our message."""


class RefusedError(InvalidRequestError):
    """A request is rejected with a specific code."""

    def __init__(self, code: str, message: str, field: str = "") -> None:
        super().__init__(message, field)
        self.code = code


def render(call: Call, context: Context, error: JobmeterError) -> Answer:
    """Render the error as Huawei's answer, a JSON object for every status; gateway errors name the request."""
    status, code, message = _problem(call, error)
    body = {"error_code": code, "error_msg": message}
    if code.startswith("APIGW"):
        body["request_id"] = make_request_id(context)
    return Answer(status, msgspec.json.encode(body), (*make_id_header(context), *make_headers(error)))


def _problem(call: Call, error: JobmeterError) -> tuple[int, str, str]:
    """Return status, code and message."""
    status, message = choose_http_status(error, over_limit=400), error.message
    code = _CODES[status]
    match error:
        case NotFoundError(kind="job"):
            return 400, "ModelArts.2775", f"Training job (ID: {error.name}) not found."
        case NotFoundError(kind="project"):
            code = "ModelArts.2786"
        case InvalidRequestError():
            code = error.code if isinstance(error, RefusedError) else code
            field = FIELDS.get(error.field, error.field)
            message = f"Invalid parameter({field}): {message.removeprefix(field).lstrip()}" if field else message
        case UnauthenticatedError():
            message = f"Incorrect IAM authentication information: {_credential(call, error)}"
        case _:
            pass
    return status, code, _MESSAGES.get(status, "{}").format(message)


def _credential(call: Call, error: UnauthenticatedError) -> str:
    """Return the error of Huawei's gateway for an invalid credential."""
    try:
        claim = SDK_HMAC.claim(call)
    except UnauthenticatedError:
        claim = None
    key = "" if claim is None or call.get_header("x-auth-token") else claim.value
    if error.reason == "missing":
        return "x-auth-token not found"
    if error.reason == "unknown-key":
        return f"ak {key} not exist" if key else "decrypt token fail"
    if error.reason == "bad-signature":
        # The canonical request in one line, for comparison with the client's.
        text = describe_canonical_request(call)[:MAX_SHOWN].replace("\n", "|")
        return f"verify aksk signature fail, canonicalRequest:{text}"
    if error.reason == "stale":
        return "calc ak sk signature fail:signature expired"
    return f"verify {f'ak {key}' if key else 'token'} fail: {error.message}"
