"""Parameters of the query API: in the address, or in a form that is posted."""

import re
from datetime import UTC, datetime
from functools import cached_property
from urllib.parse import parse_qsl

from jobmeter.access.call import Call
from jobmeter.dialects.base import MissingFieldError
from jobmeter.errors import InvalidRequestError, LimitExceededError
from jobmeter.model.time import MAX_TIME_MS
from jobmeter.promql.evaluation import LOOKBACK_MS
from jobmeter.promql.nodes import Matcher, Selector
from jobmeter.promql.parse import parse

FORM = "application/x-www-form-urlencoded"
MOST_STEPS = 11_000
"""Most points of a series in an answer."""
_MOST_FIELDS = 1_000
_UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000, "y": 31_536_000_000}
_DURATION = re.compile(r"(?:\d+(?:ms|[smhdwy]))+")
_PART = re.compile(r"(\d+)(ms|[smhdwy])")


class Arguments:
    """The parameters of a call: first of its address, then of its form."""

    def __init__(self, call: Call, now_ms: int) -> None:
        self._call = call
        self._now_ms = now_ms

    @cached_property
    def _all(self) -> tuple[tuple[str, str], ...]:
        found = self._call.parameters
        if self._call.header("content-type").partition(";")[0].strip().lower() == FORM:
            try:
                posted = parse_qsl(self._call.body.decode(), keep_blank_values=True, max_num_fields=_MOST_FIELDS)
            except ValueError as error:
                raise InvalidRequestError(f"The form cannot be read: {error}", "body") from error
            found = (*found, *posted)
        return found

    def get(self, name: str) -> str:
        """Return the first value of a parameter, an empty text where it is missing."""
        return next((value for one, value in self._all if one == name), "")

    def required(self, name: str) -> str:
        """Return a parameter. Raises MissingFieldError where it is missing or empty."""
        value = self.get(name)
        if not value:
            raise MissingFieldError(f'invalid parameter "{name}": it is required', name)
        return value

    def time(self, name: str, default: int | None = None) -> int:
        """Return a time in ms, from seconds or RFC 3339. ``default`` None takes the present."""
        value = self.get(name)
        if not value:
            return self._now_ms if default is None else default
        try:
            found = round(float(value) * 1000)
        except (ValueError, OverflowError):
            try:
                moment = datetime.fromisoformat(value)
            except ValueError:
                raise InvalidRequestError(
                    f'invalid parameter "{name}": cannot parse "{value[:64]}" to a valid timestamp', name
                ) from None
            zoned = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
            found = round(zoned.timestamp() * 1000)
        if not 0 <= found <= MAX_TIME_MS:
            raise InvalidRequestError(f'invalid parameter "{name}": {value[:64]} is not between 1970 and 2262', name)
        return found

    def duration(self, name: str, default: int | None = None) -> int:
        """Return a length in ms, from seconds or a text such as ``5m30s``. Raises InvalidRequestError."""
        value = self.get(name) if default is not None else self.required(name)
        if not value and default is not None:
            return default
        if _DURATION.fullmatch(value):
            return sum(int(number) * _UNITS[unit] for number, unit in _PART.findall(value))
        try:
            return round(float(value) * 1000)
        except (ValueError, OverflowError):
            raise InvalidRequestError(
                f'invalid parameter "{name}": cannot parse "{value[:64]}" to a valid duration', name
            ) from None

    def limit(self, name: str = "limit") -> int:
        """Return how many to answer, 0 for all."""
        value = self.get(name)
        if value and not (value.isascii() and value.isdigit() and len(value) < 10):
            raise InvalidRequestError(f'invalid parameter "{name}": a number from 0 on is needed', name)
        return int(value or 0)

    def lookback(self) -> int:
        """Return the age up to which a sample counts, in ms."""
        found = self.duration("lookback_delta", LOOKBACK_MS)
        if found <= 0:
            raise InvalidRequestError('invalid parameter "lookback_delta": it must be above 0', "lookback_delta")
        return found

    def steps(self) -> tuple[int, int, int]:
        """Return start, end and step of a range in ms. Raises InvalidRequestError or LimitExceededError."""
        for name in ("start", "end"):
            self.required(name)
        start, end, step = self.time("start"), self.time("end"), self.duration("step")
        if end < start:
            raise InvalidRequestError('invalid parameter "end": end timestamp must not be before start time', "end")
        if step <= 0:
            raise InvalidRequestError(
                'invalid parameter "step": zero or negative query resolution step widths are not accepted. '
                "Try a positive integer",
                "step",
            )
        if (end - start) // step >= MOST_STEPS:
            raise LimitExceededError(
                f"exceeded maximum resolution of {MOST_STEPS:,} points per timeseries. "
                "Try decreasing the query resolution (?step=XX)",
                "step",
            )
        return start, end, step

    def selectors(self, *, required: bool) -> tuple[tuple[Matcher, ...], ...]:
        """Return the alternatives of all parameters ``match[]``. Raises InvalidRequestError."""
        texts = [value for name, value in self._all if name == "match[]"]
        if required and not texts:
            raise MissingFieldError("no match[] parameter provided", "match[]")
        found: list[tuple[Matcher, ...]] = []
        for text in texts:
            node = parse(text)
            if not isinstance(node, Selector) or node.range_ms or node.offset_ms or node.at is not None:
                raise InvalidRequestError(f'invalid parameter "match[]": {text[:200]} is not a selector', "match[]")
            found += node.alternatives
        return tuple(found)
