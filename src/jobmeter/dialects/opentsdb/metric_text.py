"""Parses the metric of a query string: ``sum:rate{counter}:1m-avg:explicit_tags:sys.cpu{host=*}{dc=lga}``.

https://opentsdb.net/docs/build/html/api_http/query/index.html#metric-query-string-format
"""

import msgspec

from jobmeter.errors import InvalidRequestError

_LONGEST = 16 * 1024
_OPEN, _CLOSE = "{(", "})"


class MetricText(msgspec.Struct, frozen=True):
    """The parts of a metric query.

    ``rate`` is the text in its braces, None without a rate. ``tags`` and ``filters`` are the texts in their braces.
    """

    aggregator: str
    metric: str
    rate: str | None = None
    downsample: str = ""
    explicit_tags: bool = False
    tags: str = ""
    filters: str = ""


def split_metric(text: str) -> MetricText:
    """Return the parts of an ``m``. Raises InvalidRequestError (field ``m``)."""
    aggregator, *parts = _split(text, ":")
    if not parts:
        raise InvalidRequestError(f'Invalid parameter m="{text[:100]}" (not enough colons)', "m")
    rate, downsample, explicit = None, "", False
    while len(parts) > 1:
        part = parts[0]
        if part == "rate" or (part.startswith("rate{") and part.endswith("}")):
            rate = part[5:-1]
        elif part[:1].isdigit() or part.startswith("all-"):
            downsample = part
        elif part == "explicit_tags":
            explicit = True
        elif part.startswith(("percentiles[", "show-histogram-buckets", "rollup_", "pre-agg")):
            raise InvalidRequestError(f'"{part[:64]}" is not supported', "m")
        else:
            break
        del parts[0]
    metric, tags, filters = split_braces(":".join(parts), "m")
    return MetricText(aggregator, metric, rate, downsample, explicit, tags, filters)


def split_braces(text: str, field: str) -> tuple[str, str, str]:
    """Return a metric, and the contents of its first and second braces. Raises InvalidRequestError naming ``field``."""
    metric, brace, rest = text.partition("{")
    if not brace:
        return metric, "", ""
    if not rest.endswith("}"):
        raise InvalidRequestError(f"Missing '}}' at the end of: {text[:100]}", field)
    first, second, third = (*_groups(rest[:-1]), "", "")[:3]
    if third:
        raise InvalidRequestError(f"Too many braces in: {text[:100]}", field)
    return metric, first, second


def _groups(text: str) -> list[str]:
    """Return the contents of each brace in ``a}{b``; braces inside parentheses belong to a pattern."""
    found, depth, start = [], 0, 0
    for at, letter in enumerate(text):
        depth += letter == "("
        depth -= letter == ")"
        if letter == "}" and depth <= 0 and text[at + 1 : at + 2] == "{":
            found.append(text[start:at])
            start = at + 2
    return [*found, text[start:]]


def split_tags(text: str, field: str = "m") -> list[tuple[str, str]]:
    """Return the pairs of ``host=*,dc=lga``. Raises InvalidRequestError naming ``field``."""
    pairs = []
    for part in _split(text, ",") if text.strip() else []:
        name, equals, value = part.strip().partition("=")
        if not equals or not name or not value:
            raise InvalidRequestError(f"invalid tag: {part[:100]}", field)
        pairs.append((name.strip(), value.strip()))
    return pairs


def _split(text: str, mark: str) -> list[str]:
    """Return the parts between marks, except marks inside braces and parentheses."""
    if len(text) > _LONGEST:
        raise InvalidRequestError(f"a metric query may have at most {_LONGEST} characters", "m")
    parts, depth, start = [], 0, 0
    for at, letter in enumerate(text):
        depth += letter in _OPEN
        depth -= letter in _CLOSE
        if letter == mark and depth <= 0:
            parts.append(text[start:at])
            start = at + 1
    return [*parts, text[start:]]
