"""Operations as functions of the parameters of a call, wherever the call has them, and their answers.

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
from collections.abc import Callable, Generator, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar
from urllib.parse import parse_qsl

import msgspec

from jobmeter.access.call import Call
from jobmeter.access.limit import Rate
from jobmeter.dialects.base import (
    Answer,
    Context,
    MissingFieldError,
    Operation,
    Parameter,
    Steps,
    not_negative,
    rounded,
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
_INTEGER = re.compile(r"-?[0-9]{1,18}")
_STEP_UNITS = {"h": HOUR, "m": MINUTE, "s": SECOND}


def url_form(raw_path: str) -> re.Match[str] | None:
    """Match a path of the URL form, with the groups ``product``, ``version`` and ``action``; None for another path."""
    return _URL.fullmatch(raw_path)


class _Pair(msgspec.Struct, frozen=True, rename="pascal"):
    key: str = ""
    value: str = ""


class Arguments:
    """Parameters by their exact name. An empty text counts as absent; every reader raises InvalidRequestError."""

    def __init__(self, call: Call, context: Context) -> None:
        self.call = call
        self.context = context
        self._url_form = url_form(call.raw_path) is not None
        self._values: dict[str, Any] = {
            **_body(call, self._url_form),
            **dict(reversed(call.parameters)),
            **context.path,
        }

    def text(self, name: str, default: str = "") -> str:
        """Return the parameter, or the default if it is absent."""
        value = self._values.get(name)
        if value is None or value == "":
            return default
        return value if isinstance(value, str) else json_text(value)

    def required(self, name: str) -> str:
        """Return the parameter. Raises MissingFieldError if it is absent."""
        value = self.text(name)
        if not value:
            raise missing(name)
        return value

    def choice(self, name: str, choices: Mapping[str, T], default: T) -> T:
        """Return the meaning of the parameter, which is case-insensitive."""
        text = self.text(name)
        if not text:
            return default
        folded = {key.casefold(): value for key, value in choices.items()}
        if text.casefold() not in folded:
            raise InvalidRequestError(f"{name} {text[:64]!r} is not one of {', '.join(choices)}", name)
        return folded[text.casefold()]

    def integer(self, name: str, default: int | None, lowest: int, highest: int) -> int:
        """Return a whole number within bounds; without a default it is required."""
        text = self.text(name) if default is not None else self.required(name)
        if not text:
            return default if default is not None else 0
        if not _INTEGER.fullmatch(text) or not lowest <= int(text) <= highest:
            raise InvalidRequestError(f"{name} {text[:64]!r} is not a whole number from {lowest} to {highest}", name)
        return int(text)

    def word(self, name: str, words: Iterable[str], default: str = "") -> str:
        """Return one of the words, which are case-insensitive."""
        return self.choice(name, {word: word for word in words}, default)

    def page(self, default_size: int, largest_size: int, last: int) -> tuple[int, int]:
        """Return the offset of the page that PageNumber (1 to ``last``) and PageSize name, and its size."""
        size = self.integer("PageSize", default_size, 1, largest_size)
        return (self.integer("PageNumber", 1, 1, last) - 1) * size, size

    def descending(self, *, default: bool) -> bool:
        """Return True if Order is ``desc``, False if it is ``asc``, in any letter case."""
        return self.choice("Order", {"asc": False, "desc": True}, default)

    def lately(self, back_ms: int) -> TimeRange:
        """Return the range from ``back_ms`` ago until now."""
        return TimeRange(max(0, self.context.now_ms - back_ms), self.context.now_ms)

    def flag(self, name: str, *, default: bool = False) -> bool:
        """Return ``true`` or ``false`` in any letter case as a truth value."""
        return self.choice(name, {"true": True, "false": False}, default)

    def names(self, name: str, most: int | None = None) -> tuple[str, ...]:
        """Return the members of a comma-separated text, of a list in a JSON body, or of ``Name.1``, ``Name.2``, ...

        Raises InvalidRequestError for more than ``most``.
        """
        value = self._values.get(name)
        parts = value if isinstance(value, list) else self.text(name).split(",")
        if value is None:
            numbers = {int(number): key for key in self._values if (number := _numbered(key, name))}
            parts = [self.text(numbers[number]) for number in sorted(numbers)]
        found = tuple(part.strip() for part in map(str, parts) if part.strip())
        if most is not None and len(found) > most:
            raise InvalidRequestError(f"{name} may have {most} members, it has {len(found)}", name)
        return found

    def pairs(self, name: str) -> tuple[tuple[str, str], ...]:
        """Return keys and values of ``Name.1.Key``, ``Name.1.Value``, ..., or of a JSON list of such objects."""
        value = self._values.get(name)
        try:
            listed = msgspec.json.decode(value) if isinstance(value, str) and value else value or []
            given = msgspec.convert(listed, list[_Pair])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidRequestError(f"{name} is not a list of objects with Key and Value", name) from error
        numbers = sorted({int(number) for key in self._values if (number := _numbered(key, name, ".Key"))})
        flat = [(self.text(f"{name}.{number}.Key"), self.text(f"{name}.{number}.Value")) for number in numbers]
        return tuple(flat or [(one.key, one.value) for one in given])

    def given(self, *names: str) -> frozenset[str]:
        """Return the values of those parameters that are not empty, for a filter."""
        return frozenset(filter(None, map(self.text, names)))

    def mapping(self, name: str) -> dict[str, str]:
        """Return a map of texts, sent as JSON text."""
        value = self._values.get(name)
        try:
            decoded = msgspec.json.decode(value) if isinstance(value, str) and value else value or {}
            return msgspec.convert(decoded, dict[str, str])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidRequestError(f"{name} is not a JSON object of texts", name) from error

    def time(self, name: str, default: T) -> int | T:
        """Return epoch milliseconds of an ISO 8601 time, UTC by default."""
        text = self.text(name)
        return parse_time(text, name) if text else default

    def time_range(self, back_ms: int) -> TimeRange:
        """Return the range from StartTime (by default ``back_ms`` ago) to EndTime (by default now).

        For an EndTime before the default StartTime the range starts ``back_ms`` before EndTime.
        """
        now_ms = self.context.now_ms
        end = self.time("EndTime", now_ms)
        start = self.time("StartTime", max(0, (end if end <= now_ms - back_ms else now_ms) - back_ms))
        return ordered_range(start, end)

    def times(self) -> tuple[int | None, int | None]:
        """Return StartTime and EndTime, each None if it is absent. Raises as ``ordered_range``."""
        start, end = self.time("StartTime", None), self.time("EndTime", None)
        if start is not None and end is not None:
            ordered_range(start, end)
        return start, end

    def step(self, name: str, default_ms: int, bare_unit_ms: int) -> int:
        """Return milliseconds of a step such as ``30s``, ``5m``, ``1h``; a bare number counts ``bare_unit_ms``."""
        text = self.text(name)
        if not text:
            return default_ms
        found = _STEP.fullmatch(text)
        step = int(found[1]) * _STEP_UNITS.get(found[2], bare_unit_ms) if found else 0
        if not 0 < step <= MAX_TIME_MS:
            bare = {HOUR: "hours", MINUTE: "minutes", SECOND: "seconds"}[bare_unit_ms]
            raise InvalidRequestError(
                f"{name} {text[:64]!r} is not a step such as 30s, 5m or 1h (a bare number: {bare})", name
            )
        return step

    def body(self, shape: type[T]) -> T:
        """Decode the JSON body as that type; in the URL form its member ``body``, or else the whole body."""
        raw = self.call.body or b"{}"
        try:
            if self._url_form and isinstance(inner := msgspec.json.decode(raw), dict) and "body" in inner:
                return msgspec.convert(inner["body"], shape)
            return msgspec.json.decode(raw, type=shape)
        except (UnicodeDecodeError, RecursionError) as error:
            raise InvalidRequestError("the body is not UTF-8, or is nested too deeply", "body") from error
        except msgspec.DecodeError as error:
            # No shape has required fields: the operations check for missing ones.
            message = str(error)
            field = message.rpartition("at `$")[2].rstrip("`").lstrip(".") if "at `$" in message else "body"
            raise InvalidRequestError(f"the body is not valid: {message}", field) from error


def _numbered(key: str, name: str, ending: str = "") -> str:
    """Return the number of ``Name.12`` followed by ``ending``; empty for another key."""
    number = key.removeprefix(f"{name}.").removesuffix(ending) if key.startswith(f"{name}.") else ""
    return number if key == f"{name}.{number}{ending}" and re.fullmatch(r"[1-9][0-9]{0,5}", number) else ""


def parse_time(text: str, field: str) -> int:
    """Return epoch milliseconds of ISO 8601 text. Raises InvalidRequestError naming ``field``."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise _wrong_time(text, field) from error
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    time_ms = round(moment.timestamp() * 1000)
    if text.isdigit() or not 0 <= time_ms <= MAX_TIME_MS:
        raise _wrong_time(text, field)
    return time_ms


def _wrong_time(text: str, field: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"{field} {text[:64]!r} is not a UTC time from 1970 to 2100 such as 2020-11-08T16:00:00Z", field
    )


def missing(name: str) -> MissingFieldError:
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
    if call.header("content-type").partition(";")[0].strip().lower() == _FORM:
        try:
            pairs = parse_qsl(call.body.decode(), keep_blank_values=True, max_num_fields=MAX_FIELDS)
        except ValueError as error:
            raise InvalidRequestError(f"the form body cannot be read: {error}", "body") from error
        return dict(reversed(pairs))
    return {}


def operation(
    route: str,
    action: str,
    *parameters: Parameter,
    by_resource: bool = False,
    rate: Rate | None = None,
    body_bytes: int = 1 << 20,
    read: Callable[[Call, Context], Arguments] = Arguments,
) -> Callable[[Callable[[Arguments], Steps]], Operation]:
    """Make an operation of the function that answers it, ``get_job`` of ``GetJob``. Its docstring documents it.

    ``route`` is a method and a path, ``GET /api/v1/jobs/{JobId}``; see ``Operation`` for the other values.
    """
    method, _, path = route.partition(" ")

    def decorate(function: Callable[[Arguments], Steps]) -> Operation:
        return Operation(
            name=function.__name__.title().replace("_", ""),
            action=action,
            method=method,
            path=path,
            answer=lambda call, context: function(read(call, context)),
            parameters=parameters,
            text=" ".join((function.__doc__ or "").split()),
            by_resource=by_resource,
            rate=rate,
            body_bytes=body_bytes,
        )

    return decorate


def in_path(name: str, text: str) -> Parameter:
    """Return a parameter of the path, which is always required."""
    return Parameter(name, "path", text, required=True)


def in_query(name: str, text: str, *, required: bool = False) -> Parameter:
    """Return a parameter of the query."""
    return Parameter(name, "query", text, required)


def in_body(name: str, text: str, *, required: bool = False) -> Parameter:
    """Return a parameter of the body."""
    return Parameter(name, "body", text, required)


def listed(names: Iterable[str]) -> str:
    """List names for the text of a parameter."""
    return ", ".join(f"`{name}`" for name in names)


def ordered_range(start_ms: int, end_ms: int) -> TimeRange:
    """Return the range between both. Raises InvalidRequestError (EndTime) if the end is earlier than the start."""
    if end_ms < start_ms:
        raise InvalidRequestError("EndTime must not be earlier than StartTime", "EndTime")
    return TimeRange(start_ms, end_ms)


def answer(body: dict[str, Any], arguments: Arguments, *, id_key: str = "RequestId") -> Answer:
    """Return the body with the request's id under ``id_key`` (empty: not in the body); a header repeats it."""
    request_id = arguments.context.request_id
    full = {**body, id_key: request_id} if id_key else body
    return Answer(200, msgspec.json.encode(full), (("x-acs-request-id", request_id),), JSON)


def json_text(value: object) -> str:
    """Encode a value as JSON text, which some answers hold as a text."""
    return msgspec.json.encode(value).decode()


def pod_ids(view: JobView) -> dict[str, str]:
    """Return the pod of each replica's newest attempt, by the replica's name; empty if its record names none."""
    return {replica.name: replica.pod_id for replica in sorted(view.replicas, key=lambda one: one.attempt)}


def member_name(line: Line) -> str:
    """Return the name of a line's member: the replica, else the node if samples name no replica."""
    return line.replica or line.node or "worker-0"


def in_their_unit(line: Line) -> list[float]:
    """Return a line's values as percent or MB/s (10^6 bytes a second), to 12 significant digits, none below 0.

    A percentage is above 100 if the usage exceeds the limit, for example in a burst of CPU.
    """
    factor = _FACTORS[line.metric]
    return [rounded(not_negative(value)) for value in (line.value * factor).tolist()]
