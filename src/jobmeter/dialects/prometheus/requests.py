"""Reads Prometheus' parameters: of the address first, then of a posted form."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any
from urllib.parse import parse_qsl

from jobmeter.access.call import Call
from jobmeter.dialects.base import Context, MissingFieldError
from jobmeter.dialects.base.request import (
    KindText,
    Operations,
    ParameterKind,
    ParameterReader,
    ParameterSlot,
    Request,
    Time,
)
from jobmeter.errors import InvalidRequestError
from jobmeter.model.grouping import group_pairs
from jobmeter.model.time import MAX_TIME_MS
from jobmeter.promql.evaluation import LOOKBACK_MS
from jobmeter.promql.nodes import Matcher, VectorSelector
from jobmeter.promql.parse import parse

FORM = "application/x-www-form-urlencoded"
API = "/prometheus/api/v1"
Alternatives = tuple[tuple[Matcher, ...], ...]
_MOST_FIELDS = 1_000
_UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000, "y": 31_536_000_000}
_DURATION = re.compile(r"(?:\d+(?:ms|[smhdwy]))+")
_PART = re.compile(r"(\d+)(ms|[smhdwy])")


class PrometheusReader(ParameterReader):
    """Reads parameters of the query API. The first value of a parameter counts."""

    def list_values(self, call: Call, context: Context) -> Mapping[str, Any]:
        """Return the raw values; a parameter whose name ends in ``[]`` has a list of all its values."""
        pairs = call.parameters
        if call.get_header("content-type").partition(";")[0].strip().lower() == FORM:
            try:
                posted = parse_qsl(call.body.decode(), keep_blank_values=True, max_num_fields=_MOST_FIELDS)
            except ValueError as error:
                raise InvalidRequestError(f"The form cannot be read: {error}", "body") from error
            pairs = (*pairs, *posted)
        several = group_pairs(pairs)
        firsts = {name: values if name.endswith("[]") else values[0] for name, values in several.items()}
        return {**firsts, **context.path}

    def resolve_absent(self, slot: ParameterSlot) -> Any:  # noqa: ANN401 - of any kind
        """Raise the error for a required parameter that is absent."""
        raise MissingFieldError(f'invalid parameter "{slot.name}": it is required', slot.name)

    def make_wrong_error(self, slot: ParameterSlot, value: Any, rule: str) -> InvalidRequestError:  # noqa: ANN401, ARG002
        """Return the error for an invalid value."""
        return InvalidRequestError(f'invalid parameter "{slot.name}": {rule}', slot.name)

    def read_whole(self, slot: ParameterSlot, value: Any) -> int:  # noqa: ANN401
        """Return a number from 0 on."""
        if not (value.isascii() and value.isdigit() and len(value) < 10):
            raise self.make_wrong_error(slot, value, "a number from 0 on is needed")
        return int(value)

    def read_time(self, slot: ParameterSlot, value: Any) -> int:  # noqa: ANN401
        """Return a time in ms, from seconds or RFC 3339."""
        try:
            found = round(float(value) * 1000)
        except (ValueError, OverflowError):
            try:
                moment = datetime.fromisoformat(value)
            except ValueError:
                raise self.make_wrong_error(slot, value, f'cannot parse "{value[:64]}" to a valid timestamp') from None
            zoned = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
            found = round(zoned.timestamp() * 1000)
        if not 0 <= found <= MAX_TIME_MS:
            raise self.make_wrong_error(slot, value, f"{value[:64]} is not between 1970 and 2262")
        return found


class Duration(ParameterKind):
    """A length in ms, from seconds or a text such as ``5m30s``."""

    def describe(self, slot: ParameterSlot) -> KindText:
        """Show the default in minutes."""
        default = "" if slot.required else f"`{slot.default // _UNITS['m']}m`"
        return super().describe(slot)._replace(default=default)

    def convert(self, reader: ParameterReader, slot: ParameterSlot, value: Any) -> int:  # noqa: ANN401
        """Return milliseconds."""
        if _DURATION.fullmatch(value):
            return sum(int(number) * _UNITS[unit] for number, unit in _PART.findall(value))
        try:
            return round(float(value) * 1000)
        except (ValueError, OverflowError):
            raise reader.make_wrong_error(slot, value, f'cannot parse "{value[:64]}" to a valid duration') from None


class Selectors(ParameterKind):
    """The alternatives of all parameters ``match[]``."""

    def read(self, reader: ParameterReader, slot: ParameterSlot, values: Mapping[str, Any]) -> Alternatives:
        """Return the matchers of each alternative."""
        texts = values.get(slot.name, ())
        if slot.required and not texts:
            raise MissingFieldError(f"no {slot.name} parameter provided", slot.name)
        found: list[tuple[Matcher, ...]] = []
        for text in texts:
            node = parse(text)
            if not isinstance(node, VectorSelector) or node.range_ms or node.offset_ms or node.at is not None:
                raise reader.make_wrong_error(slot, text, f"{text[:200]} is not a selector")
            found += node.alternatives
        return tuple(found)


operation = Operations(PrometheusReader())
"""Declares an operation."""

TIME = Time()
_QUERY = "A query of PromQL, in the address or in a posted form."


class QueryRequest(Request, frozen=True, kw_only=True):
    """A request with a query."""

    query: Annotated[str, _QUERY]


class EvaluationRequest(QueryRequest, frozen=True, kw_only=True):
    """A request to evaluate a query."""

    limit: Annotated[int, "Most series of the answer; 0 is all."] = 0
    lookback_delta: Annotated[int, "Age up to which a sample counts.", Duration()] = LOOKBACK_MS

    def find_lookback(self) -> int:
        """Return the age, in ms, up to which a sample counts. Raises InvalidRequestError if it is not above 0."""
        if self.lookback_delta <= 0:
            raise InvalidRequestError('invalid parameter "lookback_delta": it must be above 0', "lookback_delta")
        return self.lookback_delta
