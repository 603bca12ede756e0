"""Reader of Alertmanager's parameters, and the parameters that several operations have."""

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import field

from jobmeter.access.call import Call
from jobmeter.alerts.muting import MOST_MATCHERS, parse_matcher
from jobmeter.dialects.base import Answer, Context
from jobmeter.dialects.base.request import Choice, Operations, ParameterKind, ParameterReader, ParameterSlot, Request
from jobmeter.errors import InvalidRequestError, LimitExceededError
from jobmeter.model.alert import LabelMatcher


class _Reader(ParameterReader):
    def list_values(self, call: Call, context: Context) -> Mapping[str, Any]:
        """Return the first value of each parameter, and all values of ``filter``."""
        filters = [value for name, value in call.parameters if name == "filter"]
        return {**super().list_values(call, context), "filter": filters}

    def make_wrong_error(self, slot: ParameterSlot, value: Any, rule: str) -> InvalidRequestError:  # noqa: ANN401, ARG002
        """Return the error for a wrong flag: only flags have a fixed choice of words."""
        return InvalidRequestError(f"{slot.name} must be true or false", slot.name)


class Matchers(ParameterKind):
    """The matchers of all parameters ``filter``."""

    def read(
        self,
        reader: ParameterReader,  # noqa: ARG002
        slot: ParameterSlot,
        values: Mapping[str, Any],
    ) -> tuple[LabelMatcher, ...]:
        """Return the matchers. Raises InvalidRequestError, LimitExceededError."""
        texts = values[slot.name]
        if len(texts) > MOST_MATCHERS:
            raise LimitExceededError(f"a call may have at most {MOST_MATCHERS} filters", slot.name)
        return tuple(parse_matcher(text) for text in texts)


operation = Operations(_Reader())
"""Declares an operation."""
API = "/api/v2"
SHOWN = Choice({"true": True, "false": False}, shown=False, exact=True)


class FilterRequest(Request, frozen=True, kw_only=True):
    """A request with filters."""

    matchers: Annotated[
        tuple[LabelMatcher, ...],
        'A matcher such as `severity="critical"`; may be repeated.',
        Matchers(),
    ] = field(default=(), name="filter")


class SilenceRequest(Request, frozen=True, kw_only=True):
    """A request that names a silence."""

    id: Annotated[str, "The silence's id."] = field(name="silenceID")


def answer(body: Any) -> Answer:  # noqa: ANN401 - of JSON
    """Return a successful answer."""
    return Answer(200, msgspec.json.encode(body))
