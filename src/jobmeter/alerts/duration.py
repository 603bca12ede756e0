"""Durations in Prometheus' notation: ``1h30m``."""

import re

from jobmeter.alerts.yaml_file import Field

_UNITS = {"y": 31_536_000_000, "w": 604_800_000, "d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_DURATION = re.compile("".join(rf"(?:(\d{{1,12}}){unit})?" for unit in _UNITS))
LONGEST = 100 * _UNITS["y"]


def read_duration(field: Field) -> int:
    """Return a duration in ms; ``0`` needs no unit. Raises ConfigurationError."""
    text = field.read_text(64)
    if text == "0":
        return 0
    found = _DURATION.fullmatch(text)
    if not text or found is None:
        field.fail(f"{text!r} is not a duration such as 30s, 5m or 1h30m")
    parts = zip(found.groups(), _UNITS.values(), strict=True)
    total = sum(int(number) * unit for number, unit in parts if number is not None)
    if total > LONGEST:
        field.fail(f"{text!r} is longer than 100 years")
    return total
