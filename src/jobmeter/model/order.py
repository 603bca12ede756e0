"""Natural order of names."""

import re

_DIGITS = re.compile(r"([0-9]+)")


def make_natural_key(name: str) -> tuple[tuple[int, int, str], ...]:
    """Sort key that orders numbers in names by value: ``worker-2`` before ``worker-10``."""
    # Every second piece is a number.
    pieces = enumerate(_DIGITS.split(name))
    return tuple((0, int(piece), piece) if at % 2 else (1, 0, piece) for at, piece in pieces if piece)
