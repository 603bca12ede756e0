"""Collects data points into one batch. Each data point is checked separately, each series is parsed once.

An invalid data point is rejected with a reason; the other data points of its request are stored.
"""

import math
import re
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from jobmeter.errors import InvalidRequestError
from jobmeter.model.batch import SampleBatch
from jobmeter.model.catalog import find
from jobmeter.model.series import DEFAULT_PROJECT, Series, check_series
from jobmeter.model.time import MAX_TIME_MS
from jobmeter.wire.opentsdb.names import (
    ATTEMPT,
    CLUSTER,
    DEVICE,
    IDENTITY,
    JOB,
    NODE_TAGS,
    PROJECT,
    REPLICA,
    parse_opentsdb_name,
)

_SECONDS_DIGITS = 10
"""Most digits of a time in seconds (http://opentsdb.net/docs/build/html/user_guide/writing/index.html)."""
_MOST_DIGITS = 13
_WHOLE = re.compile(r"[-+]?[0-9]{1,40}")
_LONGEST_NUMBER = 64
_MOST_CACHED = 100_000


class PointRefusedError(InvalidRequestError):
    """A data point is rejected. ``reason`` is name, time, value, tags or project."""

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message, reason)
        self.reason = reason


class Column(NamedTuple):
    """A series, and the bounds of its values."""

    series: Series
    lowest: float
    highest: float


def make_column(metric: str, tags: Mapping[str, str], project: str | None) -> Column:
    """Return the series of a metric and its tags. Raises PointRefusedError that names the invalid part."""
    if not metric:
        raise PointRefusedError("Metric name was empty", "name")
    if not tags:
        raise PointRefusedError("Missing tags", "tags")
    try:
        series = check_series(_series(metric, tags, project))
    except PointRefusedError:
        raise
    except InvalidRequestError as error:
        if error.field == "metric":
            raise _make_metric_error(metric) from error
        raise PointRefusedError(error.message, "tags") from error
    described = find(series.metric)
    if described is None:
        raise _make_metric_error(metric)
    lowest = -math.inf if described.minimum is None else described.minimum
    return Column(series, lowest, math.inf if described.maximum is None else described.maximum)


def _project(named: str, own: str | None) -> str:
    """Return the project of a data point. Raises PointRefusedError for a project that the key may not write to.

    ``own`` is the project of the key, None for a key of all projects.
    """
    if own is None:
        return named or DEFAULT_PROJECT
    if named and named != own:
        raise PointRefusedError(f"this key belongs to project {own}, not to {named[:64]}", "project")
    return own


def _make_metric_error(metric: str) -> PointRefusedError:
    return PointRefusedError(f"metric {metric[:128]!r} is not a metric name", "name")


def _series(metric: str, tags: Mapping[str, str], project: str | None) -> Series:
    for name, value in tags.items():
        if not name or not value:
            raise PointRefusedError(f"tag {name[:64]!r} has no name or no value", "tags")
    used = next((name for name in NODE_TAGS if name in tags), "")
    attempt = tags.get(ATTEMPT, "0")
    if not attempt.isdecimal() or len(attempt) > _SECONDS_DIGITS:
        raise PointRefusedError(f"attempt {attempt[:20]!r} is not a number of restarts", "tags")
    return Series(
        metric=parse_opentsdb_name(metric),
        project=_project(tags.get(PROJECT, ""), project),
        cluster=tags.get(CLUSTER, ""),
        node=tags.get(used, ""),
        device=tags.get(DEVICE, ""),
        job=tags.get(JOB, ""),
        replica=tags.get(REPLICA, ""),
        attempt=int(attempt),
        labels=tuple(sorted((key, value) for key, value in tags.items() if key not in IDENTITY and key != used)),
    )


def parse_time(value: object) -> int:
    """Convert a time in seconds or milliseconds, a number or its text, to milliseconds. Raises PointRefusedError.

    Seconds with three decimals (``1364410924.250``) are legal too.
    """
    if isinstance(value, str) and len(value) == _SECONDS_DIGITS and value.isascii() and value.isdecimal():
        found = int(value) * 1000
        if 0 < found <= MAX_TIME_MS:
            return found
    text = repr(value) if isinstance(value, float) else str(value)
    if isinstance(value, bool) or value is None:
        raise PointRefusedError("Invalid timestamp", "time")
    whole, point, rest = text.partition(".")
    if not _WHOLE.fullmatch(whole) or (point and not (len(rest) <= 3 and (rest == "" or rest.isdecimal()))):
        raise PointRefusedError(f"Invalid timestamp: {text[:40]}", "time")
    number = int(whole)
    if number <= 0:
        raise PointRefusedError(f"Invalid timestamp: {number if number > -(10**20) else 'below zero'}", "time")
    if number >= 10**_MOST_DIGITS:
        raise PointRefusedError(f"Invalid timestamp: more than {_MOST_DIGITS} digits", "time")
    moment = number * 1000 + int((rest or "0").ljust(3, "0")) if number < 10**_SECONDS_DIGITS else number
    if moment > MAX_TIME_MS:
        raise PointRefusedError(f"Invalid timestamp: {text[:40]} is after the year 2100", "time")
    return moment


def parse_number(value: object) -> float:
    """Return the value as a number, from a number or its text. Raises PointRefusedError."""
    if isinstance(value, str):
        number = _parse_number(value)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        number = _to_float(value)
    elif value is None:
        raise PointRefusedError("Empty value", "value")
    else:
        raise PointRefusedError("Unable to parse value to a number", "value")
    if not math.isfinite(number):
        raise PointRefusedError("Unable to parse value to a number", "value")
    return number


def _parse_number(text: str) -> float:
    if not text:
        raise PointRefusedError("Empty value", "value")
    # float() also accepts surrounding spaces, underscores and digits of other scripts. Infinities are rejected later.
    if len(text) > _LONGEST_NUMBER or not text.isascii() or "_" in text or text[0] <= " " or text[-1] <= " ":
        raise PointRefusedError("Unable to parse value to a number", "value")
    try:
        return float(text)
    except ValueError as error:
        raise PointRefusedError("Unable to parse value to a number", "value") from error


def _to_float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


class Points:
    """Collects the data points of one sender. Not safe for several threads.

    Series are cached for the next batch, so that a cached series costs one look-up.
    """

    def __init__(self, project: str | None) -> None:
        """``project`` is the project of the sender's key, None for a key of all projects."""
        self._project = project
        self._columns: dict[object, Column] = {}
        self._places: dict[object, int] = {}
        self._used: list[Column] = []
        self._index: list[int] = []
        self._time: list[int] = []
        self._value: list[float] = []

    def __len__(self) -> int:
        return len(self._time)

    def add(self, metric: str, time: object, value: object, tags: Mapping[str, str]) -> None:
        """Add a data point. Raises PointRefusedError."""
        self.add_cached((metric, *tags.items()), metric, time, value, tags)

    def add_cached(self, key: object, metric: str, time: object, value: object, tags: Mapping[str, str]) -> None:
        """Add a data point of the series that ``key`` stands for and that ``metric`` and ``tags`` describe.

        Raises PointRefusedError.
        """
        column = self._columns.get(key)
        if column is None:
            column = make_column(metric, tags, self._project)
            if len(self._columns) >= _MOST_CACHED:
                self._columns.clear()
            self._columns[key] = column
        moment, number = parse_time(time), parse_number(value)
        if not column.lowest <= number <= column.highest:
            raise PointRefusedError(
                f"{metric} {number!r} is outside of [{column.lowest:g}, {column.highest:g}]: is its unit right?",
                "value",
            )
        place = self._places.get(key)
        if place is None:
            place = self._places[key] = len(self._used)
            self._used.append(column)
        self._index.append(place)
        self._time.append(moment)
        self._value.append(number)

    def is_described(self, key: object) -> bool:
        """Return True if the series of that key is cached."""
        return key in self._columns

    @property
    def cached(self) -> int:
        """The number of cached series."""
        return len(self._columns)

    def clear_cache(self) -> None:
        """Clear the cached series; they are parsed from their tags again."""
        self._columns.clear()

    def take(self) -> SampleBatch:
        """Return the collected batch, in order. The next batch starts empty."""
        batch = SampleBatch(
            [column.series for column in self._used],
            np.array(self._index, np.uint32),
            np.array(self._time, np.int64),
            np.array(self._value, np.float64),
        )
        self._places, self._used, self._index, self._time, self._value = {}, [], [], [], []
        return batch
