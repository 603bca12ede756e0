"""``extra`` of a job: values by dialect and key, merged key by key."""

from collections.abc import Iterable
from typing import Any

import msgspec

from jobmeter.errors import LimitExceededError
from jobmeter.model.record import MAX_EXTRA_BYTES

Extra = dict[str, dict[str, Any]]


def merge_extra(stored: str | None, given: Iterable[Extra]) -> str:
    """Return ``extra`` as JSON: each key of each dialect set to its last value, or removed by None.

    ``KEY/KEY`` is a key of a nested object, as in ``Condition``; ``~1`` in a key stands for a slash, ``~0`` for ``~``.
    Raises LimitExceededError if the result is too long.
    """
    merged: Extra = msgspec.json.decode(stored) if stored else {}
    for one in given:
        for dialect, values in one.items():
            for path, value in values.items():
                _put(merged.setdefault(dialect, {}), path, value)
    bounded_values = {
        dialect: values_given
        for dialect, values in merged.items()
        if (values_given := {name: value for name, value in values.items() if value is not None})
    }
    return encode_bounded(bounded_values, "extra", MAX_EXTRA_BYTES)


def _put(values: dict[str, Any], path: str, value: object) -> None:
    *outer, last = (name.replace("~1", "/").replace("~0", "~") for name in path.split("/"))
    for name in outer:
        inner = values.get(name)
        if not isinstance(inner, dict):
            inner = values[name] = {}
        values = inner
    if value is None and outer:
        values.pop(last, None)
    else:
        values[last] = value


def encode_bounded(value: object, field: str, most: int) -> str:
    """Return a value as JSON. Raises LimitExceededError that names ``field`` for more than ``most`` bytes."""
    encoded = msgspec.json.encode(value)
    if len(encoded) > most:
        raise LimitExceededError(f"{field} has at most {most} bytes as JSON, with this record {len(encoded)}", field)
    return encoded.decode()
