"""Requests as the client sends them: the query of a GET, the JSON body of a POST.

Unknown fields are ignored, as at MLflow's server. Whole numbers may be text, as in the JSON of protocol buffers.
"""

import re
from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeVar

import msgspec

from jobmeter.access.call import Call
from jobmeter.dialects.base import Answer, Context
from jobmeter.dialects.base.request import Operations, ParameterReader, ParameterSlot, Request, Typed
from jobmeter.errors import InvalidRequestError

R = TypeVar("R", bound=Request)
_FIELD = re.compile(r"`\$\.(\w+)")


class _Reader(ParameterReader):
    def make_converter(self, shape: type[R], slots: Sequence[ParameterSlot]) -> Callable[[Call, Context], R]:  # noqa: ARG002
        """Return the function that converts all parameters at once, from the JSON of protocol buffers."""
        names_run = issubclass(shape, RunRequest)

        def read(call: Call, context: Context) -> R:
            given = _parameters(call)
            if names_run:
                named = [given[name] for name in ("run_id", "run_uuid") if given.get(name, "") != ""]
                if not named:
                    raise InvalidRequestError("Missing value for required parameter 'run_id'.", "run_id")
                given["run_id"] = named[0]
            request: R = _convert({**given, "call": call, "context": context}, shape)
            return request

        return read


def _parameters(call: Call) -> dict[str, Any]:
    """Return the parameters that are present."""
    try:
        given: Any = dict(call.parameters) if call.method == "GET" else msgspec.json.decode(call.body or b"{}")
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError("The request is not a JSON object.", "body") from error
    if not isinstance(given, dict):
        given = _convert(given, dict[str, Any])
    return {name: value for name, value in given.items() if value is not None}


def _convert(given: Any, shape: Any) -> Any:  # noqa: ANN401 - of any type
    try:
        return msgspec.convert(given, shape, strict=False)
    except msgspec.ValidationError as error:
        wrong = _FIELD.search(str(error))
        raise InvalidRequestError(f"Invalid request: {error}", wrong[1] if wrong else "body") from error


operation = Operations(_Reader())
"""Declares an operation."""
NUMBER = Typed(int)
"""A whole number, as JSON or as text; the operation checks its bounds."""
PAGE_TEXT = "`next_page_token` of the previous page."


class RunRequest(Request, frozen=True, kw_only=True):
    """A request that names a run."""

    run_id: Annotated[str, "The run. Old clients send `run_uuid`."]


def answer(body: Any) -> Answer:  # noqa: ANN401 - a JSON object
    """Return a successful answer."""
    return Answer(200, msgspec.json.encode(body))
