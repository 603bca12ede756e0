"""Reads StatsD datagrams, with DogStatsD's tags, packed values and events.

https://github.com/statsd/statsd/blob/master/docs/metric_types.md,
https://docs.datadoghq.com/developers/dogstatsd/datagram_shell/
"""

import math
import re
from enum import StrEnum
from typing import NamedTuple

from jobmeter.model.event import Level

MOST_LINES, MOST_VALUES, MOST_TAGS, _LONGEST = 2_000, 1_000, 16, 400
_EVENT = re.compile(r"_e\{(\d{1,5}),(\d{1,5})\}:")
_SPECIAL = frozenset({"nan", "inf", "infinity"})
_LEVELS = {"error": Level.ERROR, "warning": Level.WARNING, "info": Level.INFO, "success": Level.INFO}


class StatsdType(StrEnum):
    """Type of a line, as written."""

    GAUGE = "g"
    COUNTER = "c"
    TIMER = "ms"
    HISTOGRAM = "h"
    DISTRIBUTION = "d"
    SET = "s"


class StatsdLine(NamedTuple):
    """Values of one metric. ``relative`` gauges change by their value; ``members`` belong to a set.

    ``rate`` is the share of values that was sent, above 0 to 1.
    """

    name: str
    type: StatsdType
    values: tuple[float, ...] = ()
    relative: bool = False
    members: tuple[str, ...] = ()
    rate: float = 1.0
    tags: tuple[tuple[str, str], ...] = ()


class StatsdEvent(NamedTuple):
    """Event of DogStatsD."""

    title: str
    text: str
    level: Level


def decode(data: bytes) -> tuple[list[StatsdLine | StatsdEvent], int]:
    """Return the lines of a datagram, and the number of lines that could not be read."""
    texts = [one for one in data.decode(errors="replace").split("\n") if one.strip()]
    found = [_line(text.strip("\r")) for text in texts[:MOST_LINES]]
    lines = [one for one in found if one is not None]
    return lines, len(texts) - len(lines)


def _line(text: str) -> StatsdLine | StatsdEvent | None:
    if text.startswith("_e{"):
        return _event(text)
    head, *parts = text.split("|")
    name, colon, rest = head.partition(":")
    if not colon or not parts or not 0 < len(name) <= _LONGEST or name.startswith("_sc"):
        return None
    try:
        kind = StatsdType(parts[0])
    except ValueError:
        return None
    rate = next((_number(part[1:]) for part in parts[1:] if part.startswith("@")), 1.0)
    written = next((part[1:] for part in parts[1:] if part.startswith("#")), "")
    tags = [_tag(one) for one in written.split(",")[:MOST_TAGS] if one]
    if not 0 < rate <= 1:
        return None
    texts = rest.split(":")[:MOST_VALUES]
    if kind is StatsdType.SET:
        return StatsdLine(name, kind, members=tuple(one[:_LONGEST] for one in texts), tags=tuple(tags))
    values = tuple(map(_number, texts))
    for value, shown in zip(values, texts, strict=True):
        # A sum or a mean with NaN would be NaN for ever.
        if not math.isfinite(value) and (kind is not StatsdType.GAUGE or shown.lower().lstrip("+-") not in _SPECIAL):
            return None
    relative = kind is StatsdType.GAUGE and texts[0][:1] in {"+", "-"}
    return StatsdLine(name, kind, values, relative, (), rate, tuple(tags))


def _tag(text: str) -> tuple[str, str]:
    key, colon, value = text.partition(":")
    return key[:_LONGEST], value[:_LONGEST] if colon else "true"


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _event(text: str) -> StatsdEvent | None:
    found = _EVENT.match(text)
    if found is None:
        return None
    title_size, text_size = int(found[1]), int(found[2])
    # The sizes count bytes.
    rest = text[found.end() :].encode()
    if len(rest) < title_size + 1 + text_size or rest[title_size : title_size + 1] != b"|" or not title_size:
        return None
    title, message = rest[:title_size], rest[title_size + 1 : title_size + 1 + text_size]
    more = rest[title_size + 1 + text_size :].decode(errors="replace").split("|")
    level = next((_LEVELS.get(one[2:], Level.INFO) for one in more if one.startswith("t:")), Level.INFO)
    return StatsdEvent(title.decode(errors="replace"), message.decode(errors="replace").replace("\\n", "\n"), level)
