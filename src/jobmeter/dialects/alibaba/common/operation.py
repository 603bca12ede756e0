"""Operations of the vendor's products: how calls write parameters, and answers.

Parameters come in the path, the query, a form body or the JSON body of the URL form.

Encodings were measured with the vendor's SDKs for Python: booleans come as ``True``, lists as comma text, maps as JSON
text, numbers often as text.

The URL form is ``/api/{Product}/{version}/{Action}``, which plain HTTP clients use beside the paths of the SDKs. All
parameters, the path's included, are in the query (GET, DELETE) or in a JSON body (POST).

A successful answer is always a JSON object, because the SDKs take an empty body for a failure. PAI's products answer in
percent and MB/s. Utilisations are percent: the sample answer of
https://www.alibabacloud.com/help/en/pai/developer-reference/api-pai-dlc-2020-12-03-getjobmetrics is 23.45. That page
gives rates no unit; PaiStudio's ListTrainingJobInstanceMetrics documents MB/s for the same metric names.
"""

import re
from collections.abc import Generator, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, TypeVar
from urllib.parse import parse_qsl

import msgspec

from jobmeter.access.call import Call
from jobmeter.dialects.base import Answer, Context, MissingFieldError, clamp_negative, round_digits
from jobmeter.dialects.base.request import (
    Choice,
    Flag,
    KindText,
    Operations,
    ParameterKind,
    ParameterReader,
    ParameterSlot,
    Request,
    Time,
    Typed,
    Whole,
)
from jobmeter.errors import InvalidRequestError
from jobmeter.model.catalog import CATALOG
from jobmeter.model.job import JobView
from jobmeter.model.question import Question
from jobmeter.model.time import HOUR, MAX_TIME_MS, MINUTE, SECOND, TimeRange
from jobmeter.query.request import Line

T = TypeVar("T")
Lookup = Generator[Question[Any], Any, T]
"""A part of an operation: yields questions, returns a value."""
MAX_FIELDS = 1000
JSON = "application/json;charset=utf-8"
_UNITS = {"1": 100.0, "By/s": 1e-6}
_FACTORS = {name: _UNITS[one.answer_unit] for name, one in CATALOG.items() if one.answer_unit in _UNITS}
"""Factors that convert a metric's values to percent or MB/s."""
_URL = re.compile(r"/api/(?P<product>[A-Za-z][A-Za-z-]*)/(?P<version>\d{4}-\d{2}-\d{2})/(?P<action>[A-Za-z]+)")

_FORM = "application/x-www-form-urlencoded"
_STEP = re.compile(r"([0-9]{1,9})([hms]?)")
_STEP_UNITS = {"h": HOUR, "m": MINUTE, "s": SECOND}


def match_url_form(raw_path: str) -> re.Match[str] | None:
    """Match a path of the URL form, with the groups ``product``, ``version`` and ``action``; None for another path."""
    return _URL.fullmatch(raw_path)


class AlibabaReader(ParameterReader):
    """Reads parameters by their exact name. An empty text counts as absent, in a path as well."""

    def list_values(self, call: Call, context: Context) -> Mapping[str, Any]:
        """Return the raw values of the path, the query, and a form body or the JSON body of the URL form."""
        body = _body(call, match_url_form(call.raw_path) is not None)
        return {**body, **dict(reversed(call.parameters)), **context.path}

    def get_value(self, values: Mapping[str, Any], slot: ParameterSlot) -> Any:  # noqa: ANN401 - as it was sent
        """Return the raw value; None if it is absent."""
        value = values.get(slot.name)
        return None if value == "" else value

    def resolve_absent(self, slot: ParameterSlot) -> Any:  # noqa: ANN401 - of any kind
        """Raise the error for a required parameter that is absent."""
        raise make_missing_error(slot.name)

    def read_names(self, slot: ParameterSlot, values: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the members of a comma-separated text, of a list in a JSON body, or of ``Name.1``, ``Name.2``, ..."""
        if values.get(slot.name) is not None:
            return super().read_names(slot, values)
        numbers = {int(number): key for key in values if (number := _parse_number(key, slot.name))}
        parts = (self.read_text(slot, values[numbers[number]]) for number in sorted(numbers))
        return tuple(part.strip() for part in parts if part.strip())

    def read_time(self, slot: ParameterSlot, value: Any) -> int:  # noqa: ANN401
        """Return epoch milliseconds of an ISO 8601 time, UTC by default."""
        return parse_time(self.read_text(slot, value), slot.name)

    def read_typed(self, slot: ParameterSlot, value: Any, shape: Any) -> Any:  # noqa: ANN401
        """Return a map of texts, sent as JSON text."""
        return JsonText(shape, "not a JSON object of texts").convert(self, slot, value)


class JsonBodyReader(AlibabaReader):
    """Reads a JSON body beside the path; in the URL form its member ``body``, or else the whole body."""

    def list_values(self, call: Call, context: Context) -> Mapping[str, Any]:
        """Return the raw values."""
        form = {} if match_url_form(call.raw_path) is None else super().list_values(call, context)
        return {**form, **read_json(call), **context.path}

    def get_value(self, values: Mapping[str, Any], slot: ParameterSlot) -> Any:  # noqa: ANN401 - as it was sent
        """Return the raw value; None if it is absent. An empty text is a wrong number, list or object."""
        if isinstance(slot.kind, Whole | Typed):
            return values.get(slot.name)
        return super().get_value(values, slot)

    def read_text(self, slot: ParameterSlot, value: Any) -> str:  # noqa: ANN401
        """Return a text; a body must have a JSON string."""
        found: str = self.read_typed(slot, value, str) if slot.where == "body" else super().read_text(slot, value)
        return found

    def read_whole(self, slot: ParameterSlot, value: Any) -> int:  # noqa: ANN401
        """Return a number; a body must have a JSON number."""
        number: int = self.read_typed(slot, value, int)
        low, high = slot.bounds
        if low == 0 and number < 0:
            raise InvalidRequestError(f"{slot.name} must not be below 0", slot.name)
        if not low <= number <= high:
            raise InvalidRequestError(f"{slot.name} {number} is not a whole number from {low} to {high}", slot.name)
        return number

    def read_typed(self, slot: ParameterSlot, value: Any, shape: Any) -> Any:  # noqa: ANN401
        """Return a JSON value of that type."""
        try:
            return msgspec.convert(value, shape | None)
        except msgspec.ValidationError as error:
            reason, _, inner = str(error).partition(" - at `$")
            at = slot.name + inner.removesuffix("`")
            raise InvalidRequestError(f"the body is not valid: {reason} - at `$.{at}`", at) from error


def read_json(call: Call) -> dict[str, Any]:
    """Decode the object of a JSON body; in the URL form its member ``body``, or else the whole body."""
    try:
        found = msgspec.json.decode(call.body or b"{}", type=dict[str, Any])
    except (UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequestError("the body is not UTF-8, or is nested too deeply", "body") from error
    except msgspec.DecodeError as error:
        raise InvalidRequestError(f"the body is not valid: {error}", "body") from error
    inner = found.get("body") if match_url_form(call.raw_path) else None
    return inner if isinstance(inner, dict) else found


class JsonText(ParameterKind):
    """A JSON value of a type, sent as JSON text or as a member of a JSON body. ``form`` describes a wrong value."""

    def __init__(self, shape: Any, form: str, *, detail: bool = False) -> None:  # noqa: ANN401 - any type
        self.shape = shape
        self._form = form
        self._detail = detail

    def describe(self, slot: ParameterSlot) -> KindText:
        """Show no default."""
        return super().describe(slot)._replace(default="")

    def convert(self, reader: ParameterReader, slot: ParameterSlot, value: Any) -> Any:  # noqa: ANN401, ARG002
        """Return the value of that type."""
        try:
            decoded = msgspec.json.decode(value) if isinstance(value, str) else value
            return msgspec.convert(decoded, self.shape)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            detail = f": {error}" if self._detail else ""
            raise InvalidRequestError(f"{slot.name} is {self._form}{detail}", slot.name) from error


class Step(ParameterKind):
    """A step such as ``30s``, ``5m``, ``1h``, in milliseconds; a bare number is a multiple of ``bare_unit_ms``."""

    def __init__(self, bare_unit_ms: int) -> None:
        self._bare_unit_ms = bare_unit_ms
        self._bare = {HOUR: "hours", MINUTE: "minutes", SECOND: "seconds"}[bare_unit_ms]

    def describe(self, slot: ParameterSlot) -> KindText:
        """Show some steps, and the default in minutes."""
        default = "" if slot.required else f"`{slot.default // MINUTE}m`"
        return KindText(f"`30s`, `5m`, `1h`; a bare number counts {self._bare}.", default)

    def convert(self, reader: ParameterReader, slot: ParameterSlot, value: Any) -> int:  # noqa: ANN401
        """Return milliseconds."""
        found = _STEP.fullmatch(reader.read_text(slot, value))
        step = int(found[1]) * _STEP_UNITS.get(found[2], self._bare_unit_ms) if found else 0
        if not 0 < step <= MAX_TIME_MS:
            raise reader.make_wrong_error(slot, value, f"a step such as 30s, 5m or 1h (a bare number: {self._bare})")
        return step


operation = Operations(AlibabaReader())
"""Declares an operation, whose parameters are in the path, the query or a form."""
json_operation = Operations(JsonBodyReader())
"""Declares an operation with a JSON body."""

TIME, FLAG = Time(), Flag()
ORDER = Choice({"asc": False, "desc": True})
"""The order of a list; the value is True for a descending one."""
Labels = Annotated[dict[str, str], "A JSON object: the job has all of these labels."]
Ignored = Annotated[str, "Changes nothing."]


class AlibabaRequest(Request, frozen=True, kw_only=True, rename="pascal"):
    """A request of a product."""

    def make_recent_range(self, back_ms: int) -> TimeRange:
        """Return the range of the last ``back_ms``."""
        return TimeRange(max(0, self.context.now_ms - back_ms), self.context.now_ms)

    def read_time_range(self, start: int | None, end: int | None, back_ms: int) -> TimeRange:
        """Return the range from ``start`` (by default ``back_ms`` ago) to ``end`` (by default now).

        If the end is before the default start, the range starts ``back_ms`` before the end. Raises as ``make_range``.
        """
        now_ms = self.context.now_ms
        end = now_ms if end is None else end
        if start is None:
            start = max(0, (end if end <= now_ms - back_ms else now_ms) - back_ms)
        return make_range(start, end)


def select_given(*texts: str) -> frozenset[str]:
    """Return the texts that are not empty, for a filter."""
    return frozenset(filter(None, texts))


def _parse_number(key: str, name: str) -> str:
    """Return the number of ``Name.12``; empty for another key."""
    number = key.removeprefix(f"{name}.") if key.startswith(f"{name}.") else ""
    return number if re.fullmatch(r"[1-9][0-9]{0,5}", number) else ""


def parse_time(text: str, field: str) -> int:
    """Return epoch milliseconds of ISO 8601 text. Raises InvalidRequestError naming ``field``."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise _make_time_error(text, field) from error
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    time_ms = round(moment.timestamp() * 1000)
    if text.isdigit() or not 0 <= time_ms <= MAX_TIME_MS:
        raise _make_time_error(text, field)
    return time_ms


def _make_time_error(text: str, field: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"{field} {text[:64]!r} is not a UTC time from 1970 to 2100 such as 2020-11-08T16:00:00Z", field
    )


def make_missing_error(name: str) -> MissingFieldError:
    """Return the error for a required parameter that is absent or empty."""
    return MissingFieldError(f"{name} is mandatory for this action", name)


def _body(call: Call, url_form: bool) -> dict[str, Any]:
    if not call.body:
        return {}
    if url_form:
        try:
            return msgspec.json.decode(call.body, type=dict[str, Any])
        except (ValueError, RecursionError) as error:
            raise InvalidRequestError("the body is not a JSON object", "body") from error
    if call.get_header("content-type").partition(";")[0].strip().lower() == _FORM:
        try:
            pairs = parse_qsl(call.body.decode(), keep_blank_values=True, max_num_fields=MAX_FIELDS)
        except ValueError as error:
            raise InvalidRequestError(f"the form body cannot be read: {error}", "body") from error
        return dict(reversed(pairs))
    return {}


def make_range(start_ms: int, end_ms: int) -> TimeRange:
    """Return the range from start to end. Raises InvalidRequestError (EndTime) if the end is before the start."""
    if end_ms < start_ms:
        raise InvalidRequestError("EndTime must not be earlier than StartTime", "EndTime")
    return TimeRange(start_ms, end_ms)


def check_range(start_ms: int | None, end_ms: int | None) -> None:
    """Raise as ``make_range`` if both times are present."""
    if start_ms is not None and end_ms is not None:
        make_range(start_ms, end_ms)


def answer(body: dict[str, Any], request: Request, *, id_key: str = "RequestId") -> Answer:
    """Return the body with the request's id under ``id_key`` (empty: not in the body); a header repeats it."""
    request_id = request.context.request_id
    full = {**body, id_key: request_id} if id_key else body
    return Answer(200, msgspec.json.encode(full), (("x-acs-request-id", request_id),), JSON)


def dump_json(value: object) -> str:
    """Encode a value as JSON text, which some answers hold as a text."""
    return msgspec.json.encode(value).decode()


def map_pod_ids(view: JobView) -> dict[str, str]:
    """Return the pod of each replica's newest attempt, by the replica's name; empty if the record names no pod."""
    return {replica.name: replica.pod_id for replica in sorted(view.replicas, key=lambda one: one.attempt)}


def convert_units(line: Line) -> list[float]:
    """Return a line's values as percent or MB/s (10^6 bytes a second), to 12 significant digits, none below 0.

    A percentage is above 100 if the usage exceeds the limit, for example in a burst of CPU.
    """
    factor = _FACTORS[line.metric]
    return [round_digits(clamp_negative(value)) for value in (line.value * factor).tolist()]
