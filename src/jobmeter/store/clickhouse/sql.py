"""Parts that every statement needs."""

from collections.abc import Iterator, Sequence
from typing import TypeVar

from jobmeter.model.batch import SeriesKeys

T = TypeVar("T")

PARAMETERS = 4_000
"""Most 64-bit numbers in one parameter: 20 digits each stay below a server's limit of 128 KiB for a field."""


def iterate_pieces(items: Sequence[T], size: int = PARAMETERS) -> Iterator[Sequence[T]]:
    """Yield the items in runs of at most ``size``."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


def iterate_key_pieces(keys: SeriesKeys) -> Iterator[SeriesKeys]:
    """Yield the keys in runs that fit into one parameter."""
    for start in range(0, len(keys), PARAMETERS):
        yield keys.select(slice(start, start + PARAMETERS))
