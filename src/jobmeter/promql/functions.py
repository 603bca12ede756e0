"""Functions of values at one time: arithmetic, dates, labels, order."""

import re
from collections.abc import Callable

import numpy as np

from jobmeter.model.batch import Float64s
from jobmeter.promql.labels import get_value, set_label
from jobmeter.promql.nodes import NAME
from jobmeter.promql.regex import replace_matches
from jobmeter.promql.values import QueryError, Vector

Dates = np.ndarray[tuple[int, ...], np.dtype[np.datetime64]]
_SECONDS = "datetime64[s]"
_LABEL_NAME = re.compile(r"^[a-zA-Z_][a-zA-Z0-9_]*$")
_DIGITS = re.compile(r"(\d+)")


def _date(values: Float64s) -> Dates:
    known = np.where(np.isfinite(values), values, 0)
    return np.trunc(known).astype(np.int64).astype(_SECONDS)


def _part(
    of: Callable[[Dates], object],
) -> Callable[[Float64s], Float64s]:
    def part(values: Float64s) -> Float64s:
        found = np.asarray(of(_date(values))).astype(np.float64)
        return np.where(np.isfinite(values), found, np.nan)

    return part


def _make_calendar_function(small: str, large: str) -> Callable[[Float64s], Float64s]:
    """Return the function that counts units since the start of the larger unit."""
    return _part(
        lambda dates: (dates.astype(f"datetime64[{small}]") - dates.astype(f"datetime64[{large}]")).astype(int)
    )


def _month_days(dates: Dates) -> object:
    month = dates.astype("datetime64[M]")
    return ((month + 1).astype("datetime64[D]") - month.astype("datetime64[D]")).astype(int)


def _weekday(dates: Dates) -> object:
    return (dates.astype("datetime64[D]").astype(int) + 4) % 7


DATES: dict[str, Callable[[Float64s], Float64s]] = {
    "minute": _make_calendar_function("m", "h"),
    "hour": _make_calendar_function("h", "D"),
    "day_of_week": _part(_weekday),
    "day_of_month": _part(
        lambda dates: (dates.astype("datetime64[D]") - dates.astype("datetime64[M]")).astype(int) + 1
    ),
    "day_of_year": _part(lambda dates: (dates.astype("datetime64[D]") - dates.astype("datetime64[Y]")).astype(int) + 1),
    "days_in_month": _part(_month_days),
    "month": _part(lambda dates: dates.astype("datetime64[M]").astype(int) % 12 + 1),
    "year": _part(lambda dates: dates.astype("datetime64[Y]").astype(int) + 1970),
}
"""Functions of times in seconds since 1970, in UTC."""
ARITHMETIC: dict[str, Callable[[Float64s], Float64s]] = {
    "abs": np.abs,
    "acos": np.arccos,
    "acosh": np.arccosh,
    "asin": np.arcsin,
    "asinh": np.arcsinh,
    "atan": np.arctan,
    "atanh": np.arctanh,
    "ceil": np.ceil,
    "cos": np.cos,
    "cosh": np.cosh,
    "deg": np.rad2deg,
    "exp": np.exp,
    "floor": np.floor,
    "ln": np.log,
    "log10": np.log10,
    "log2": np.log2,
    "rad": np.deg2rad,
    "sgn": np.sign,
    "sin": np.sin,
    "sinh": np.sinh,
    "sqrt": np.sqrt,
    "tan": np.tan,
    "tanh": np.tanh,
}
"""Functions of a number."""


def round_to(values: Float64s, multiple: Float64s) -> Float64s:
    """Return the nearest multiple; of two equally near ones, the larger."""
    inverse = 1.0 / multiple
    return np.floor(values * inverse + 0.5) / inverse


def clamp(vector: Vector, least: Float64s, most: Float64s) -> Vector:
    """Return the values within these bounds; no values at times at which the lower bound is above the upper one."""
    values = np.fmax(least, np.fmin(most, vector.values))
    values = np.where(np.isnan(vector.values) | np.isnan(least) | np.isnan(most), np.nan, values)
    return vector.transform(values, vector.present & ~(least > most))


def label_replace(vector: Vector, target: str, replacement: str, source: str, pattern: str) -> Vector:
    """Set a label by a regular expression over another label. Raises QueryError for an invalid name."""
    _check_label(target)
    texts = sorted({get_value(labels, source) for labels in vector.labels})
    made = dict(zip(texts, replace_matches(pattern, replacement, texts), strict=True))

    new = [made[get_value(labels, source)] for labels in vector.labels]
    labels = [
        before if value is None else set_label(before, target, value)
        for before, value in zip(vector.labels, new, strict=True)
    ]
    return vector.relabel(labels, [target == NAME and value is not None for value in new])


def label_join(vector: Vector, target: str, separator: str, sources: list[str]) -> Vector:
    """Set a label to the joined values of other labels. Raises QueryError for an invalid name."""
    for name in (target, *sources):
        _check_label(name)
    labels = [set_label(one, target, separator.join(get_value(one, name) for name in sources)) for one in vector.labels]
    return vector.relabel(labels, [target == NAME] * len(labels))


def _check_label(name: str) -> None:
    if not name:
        raise QueryError(f"invalid label name {name!r}")


def sort_by_value(vector: Vector, *, descending: bool) -> Vector:
    """Return the rows in the order of their newest values, NaN last."""
    if not vector.labels:
        return vector
    values = vector.values[:, -1]
    order = np.lexsort((-values if descending else values, np.isnan(values)))
    found = vector.select_rows(order)
    return Vector(found.labels, found.values, found.present, ordered=True, unnamed=found.unnamed)


def sort_by_label(vector: Vector, names: list[str], *, descending: bool) -> Vector:
    """Return the rows in the natural order of these labels, then of all labels."""

    def key(row: int) -> tuple[object, ...]:
        labels = vector.labels[row]
        return (*(_make_natural_key(get_value(labels, name)) for name in names), labels)

    order = sorted(range(len(vector.labels)), key=key, reverse=descending)
    found = vector.select_rows(np.array(order, np.int64))
    return Vector(found.labels, found.values, found.present, ordered=True, unnamed=found.unnamed)


def _make_natural_key(text: str) -> list[tuple[int, int, str]]:
    """Return a sort key that compares numbers in texts by value."""
    parts = [part for part in _DIGITS.split(text) if part]
    return [(0, int(part), part) if part.isdigit() else (1, 0, part) for part in parts]
