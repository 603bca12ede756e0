"""Numbers and texts as the templates of Prometheus write them."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

_LARGE, _SMALL = "kMGTPEZY", "munpfazy"
_VERB = re.compile(r"%([-+# 0]*)(\d{0,3})(?:\.(\d{0,3}))?([a-zA-Z%])")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SHORTEST = 6
"""Power of ten from which the shortest form of a number has an exponent."""


def go_value(value: Any) -> str:  # noqa: ANN401 - texts and numbers
    """Return a value as Go prints it."""
    return go_float(value) if isinstance(value, float) else str(value)


def go_float(value: float) -> str:
    """Return the shortest form of a number."""
    if not math.isfinite(value):
        return _format_non_finite(value)
    sign, digits, exponent = Decimal(repr(value)).as_tuple()
    text = "".join(map(str, digits)).rstrip("0") or "0"
    power = len(digits) + int(exponent) - 1
    minus = "-" if sign else ""
    if text == "0":
        return f"{minus}0"
    if power < -4 or power >= _SHORTEST:
        mantissa = text[0] + (f".{text[1:]}" if len(text) > 1 else "")
        return f"{minus}{mantissa}e{power:+03d}"
    return minus + format(Decimal(text).scaleb(power - len(text) + 1), "f")


def _format_non_finite(value: float) -> str:
    return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"


def _format_four_digits(value: float) -> str:
    """Return a number with four digits."""
    return f"{value:.4g}" if math.isfinite(value) else _format_non_finite(value)


def _number(value: Any) -> float:  # noqa: ANN401 - texts and numbers
    try:
        return float(value)
    except ValueError:
        return math.nan


def _scale_below_one(value: float) -> tuple[float, str]:
    prefix = ""
    for one in _SMALL:
        if abs(value) >= 1:
            break
        prefix, value = one, value * 1000
    return value, prefix


def humanize(given: Any) -> str:  # noqa: ANN401 - texts and numbers
    """Return a number with a metric prefix."""
    value = _number(given)
    if value == 0 or not math.isfinite(value):
        return _format_four_digits(value)
    prefix = ""
    if abs(value) >= 1:
        for one in _LARGE:
            if abs(value) < 1000:
                break
            prefix, value = one, value / 1000
        return _format_four_digits(value) + prefix
    value, prefix = _scale_below_one(value)
    return _format_four_digits(value) + prefix


def humanize_1024(given: Any) -> str:  # noqa: ANN401 - texts and numbers
    """Return a number with a binary prefix."""
    value = _number(given)
    if abs(value) <= 1 or not math.isfinite(value):
        return _format_four_digits(value)
    prefix = ""
    for one in _LARGE:
        if abs(value) < 1024:
            break
        prefix, value = f"{one}i", value / 1024
    return _format_four_digits(value) + prefix


def humanize_duration(given: Any) -> str:  # noqa: ANN401 - texts and numbers
    """Return seconds as days, hours, minutes and seconds."""
    value = _number(given)
    if not math.isfinite(value):
        return _format_four_digits(value)
    if value == 0:
        return "0s"
    if abs(value) < 1:
        value, prefix = _scale_below_one(value)
        return f"{_format_four_digits(value)}{prefix}s"
    sign, value = ("-" if value < 0 else ""), abs(value)
    whole = int(value)
    days, hours, minutes, seconds = whole // 86_400, whole // 3_600 % 24, whole // 60 % 60, whole % 60
    if days:
        return f"{sign}{days}d {hours}h {minutes}m {seconds}s"
    if hours:
        return f"{sign}{hours}h {minutes}m {seconds}s"
    return f"{sign}{minutes}m {seconds}s" if minutes else f"{sign}{_format_four_digits(value)}s"


def humanize_percentage(given: Any) -> str:  # noqa: ANN401 - texts and numbers
    """Return a ratio in percent."""
    return _format_four_digits(_number(given) * 100) + "%"


def humanize_timestamp(given: Any) -> str:  # noqa: ANN401 - texts and numbers
    """Return seconds since 1970 as a date."""
    value = _number(given)
    if not math.isfinite(value) or abs(value) > 2**40:
        return _format_four_digits(value)
    try:
        moment = _EPOCH + timedelta(milliseconds=int(value * 1000))
    except OverflowError:
        return _format_four_digits(value)
    text = moment.strftime("%Y-%m-%d %H:%M:%S")
    fraction = f"{moment.microsecond // 1000:03d}".rstrip("0")
    return f"{text}{'.' + fraction if fraction else ''} +0000 UTC"


def format_printf(form: str, arguments: Sequence[Any]) -> str:
    """Return a text formatted as by Go's ``Printf``. The text names a verb that does not fit its argument."""
    waiting = list(arguments)

    def replace(found: re.Match[str]) -> str:
        if found[4] == "%":
            return "%"
        if not waiting:
            return f"%!{found[4]}(MISSING)"
        return _verb(found, waiting.pop(0))

    text = _VERB.sub(replace, form)
    extra = ", ".join(f"{_kind(one)}={go_value(one)}" for one in waiting)
    return f"{text}%!(EXTRA {extra})" if extra else text


def _kind(value: Any) -> str:  # noqa: ANN401 - texts and numbers
    return "float64" if isinstance(value, float) else "int" if isinstance(value, int) else "string"


def _verb(found: re.Match[str], value: Any) -> str:  # noqa: ANN401 - texts and numbers
    flags, width, precision, verb = found.groups()
    pattern = f"%{flags}{width}" + (f".{precision or 0}" if precision is not None else "")
    if verb == "v" or (verb == "s" and isinstance(value, str)):
        return _pad_text(flags, width, precision, go_value(value))
    if verb == "q" and isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
        return _pad_text(flags, width, None, f'"{escaped}"')
    if verb in "feEgG" and isinstance(value, float):
        if not math.isfinite(value):
            return _pad_text(flags.replace("0", ""), width, None, _format_non_finite(value))
        if verb in "gG" and precision is None:
            return _pad_text(flags, width, None, go_float(value))
        return (pattern + verb) % value
    if verb in "dxXo" and isinstance(value, int):
        return (pattern + verb) % value
    return f"%!{verb}({_kind(value)}={go_value(value)})"


def _pad_text(flags: str, width: str, precision: str | None, text: str) -> str:
    cut = text if precision is None else text[: int(precision or 0)]
    size = int(width or 0)
    return cut.ljust(size) if "-" in flags else cut.rjust(size)


FORMATTERS: Mapping[str, Callable[[Any], str]] = {
    "humanize": humanize,
    "humanize1024": humanize_1024,
    "humanizeDuration": humanize_duration,
    "humanizePercentage": humanize_percentage,
    "humanizeTimestamp": humanize_timestamp,
    "title": lambda value: re.sub(r"(?<![A-Za-z'])[a-z]", lambda one: one[0].upper(), go_value(value)),
    "toUpper": lambda value: go_value(value).upper(),
    "toLower": lambda value: go_value(value).lower(),
}
"""Functions of one argument."""
