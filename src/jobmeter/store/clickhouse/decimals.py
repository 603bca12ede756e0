"""The form of values in the tables, and the expressions that read and write them.

A sample is ``number / 10^digits``. If ``number`` is 0 it is ``value``: 0 itself, or a number that is no short decimal.
The quotient is exactly the double that was written; ``jobmeter.kernel.decimals`` checks that before.

A roll-up row has one of three forms. ``scale`` n + 1: numbers with n digits, ``low`` the minimum and the others as
their distance from it, which is mostly small. ``scale`` ``ALIKE``: all its samples are ``minimum``. ``scale`` 0: plain
doubles. Rows from before this form have 0 in the new columns, and read as before.
"""

ALIKE = 255
_EXACT = 2.0**51
"""Bound below which sums are exact: n doubles of at most 2^51 / n^2 sum with an error below half a unit."""

VALUE = "if(number = 0, value, number / intExp10(digits))"

_ALIKE = f"scale = {ALIKE}"
_POWER = "intExp10(scale - 1)"


def _bucket(column: str, above: str) -> str:
    return f"multiIf(scale = 0, {column}, {_ALIKE}, minimum, (low + {above}) / {_POWER})"


SUM = f"multiIf(scale = 0, sum, {_ALIKE}, minimum * count, (excess + toInt64(count) * low) / {_POWER})"
MINIMUM = f"if(scale = 0 OR {_ALIKE}, minimum, low / {_POWER})"
MAXIMUM = _bucket("maximum", "rise")
FIRST = _bucket("first", "opening")
LAST = _bucket("last", "closing")

STORED = (
    "job, series, time, count, scale, low, rise, opening, closing, excess, "
    "sum, minimum, maximum, first, last, first_time, last_time, increase, elapsed"
)
"""Columns that ``select_stored`` selects, except the days."""


def select_stored(buckets: str, days: str) -> str:
    """Return a SELECT of ``STORED`` and ``days`` from a SELECT of buckets.

    ``buckets`` selects ``job, series, bucket, n, total, lowest, highest, opened, opened_at, closed, closed_at, grown,
    passed`` and the days; ``places``, the digits of its samples; and ``whole``, True if all of them are decimal
    numbers.
    """

    def number(name: str) -> str:
        return f"toInt64(round(if(fits, {name}, 0.) * power))"

    def double(name: str) -> str:
        return f"if(fits OR alike, 0., {name})"

    def is_number(name: str) -> str:
        return f"round({name} * power) / power = {name}"

    ends = " AND ".join(is_number(name) for name in ("lowest", "highest", "opened", "closed"))
    return f"""
SELECT job, series, bucket, n, multiIf(fits, toUInt8(places + 1), alike, toUInt8({ALIKE}), toUInt8(0)), bottom,
  {number("highest")} - bottom, {number("opened")} - bottom, {number("closed")} - bottom,
  {number("total")} - toInt64(n) * bottom,
  {double("total")}, if(fits, 0., lowest), {double("highest")}, {double("opened")}, {double("closed")},
  opened_at, closed_at, grown, passed, {days}
FROM (
  SELECT *, toFloat64(intExp10(places)) AS power, {number("lowest")} AS bottom,
    whole AND greatest(abs(lowest), abs(highest)) * power * n * n < {_EXACT:.1f} AND {ends} AS fits,
    NOT fits AND lowest = highest AND lowest * n = total AS alike
  FROM ({buckets})
)"""
