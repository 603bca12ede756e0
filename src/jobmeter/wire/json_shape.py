"""Estimates the decoded size of a JSON text before it is decoded.

A text of 1 MiB can stand for 350,000 objects, which take a hundred times its memory. So each body is measured first:
records and lines against their limits, all values against the memory budget of requests.
"""

import msgspec

from jobmeter.errors import LimitExceededError
from jobmeter.kernel.json import count

DEPTHS = 8
_CONTAINER, _VALUE, _WIDEST = 512, 96, 4
"""Bytes of an object or array with the structures made from it, of any other value, and of a character at most."""
_RECORDED = 6


class JsonShape(msgspec.Struct, frozen=True):
    """Counts of a JSON text, from which its decoded size follows.

    ``opened[d]``: objects and arrays that begin at depth d (0: the whole text); the last entry also counts deeper ones.
    ``commas``: commas between values. ``text_bytes``: most bytes of the texts.
    """

    opened: list[int]
    commas: int
    text_bytes: int

    @property
    def read_bytes(self) -> int:
        """Most bytes, about, of the values and the objects made from them until they are stored."""
        return sum(self.opened) * _CONTAINER + self.commas * _VALUE + self.text_bytes

    @property
    def recorded_bytes(self) -> int:
        """Most bytes, about, of records, including the database's share."""
        return _RECORDED * self.read_bytes

    def check(self, depth: int, most: int, what: str) -> None:
        """Raise LimitExceededError if more than ``most`` objects and arrays begin at that depth.

        ``what`` names them in the error, for example ``records``.
        """
        if self.opened[depth] > most:
            raise LimitExceededError(f"a request may have at most {most} {what}, not {self.opened[depth]}", what)


def count_json(data: bytes) -> JsonShape:
    """Count a JSON text. The result of invalid JSON has no meaning: decoding fails later."""
    opened, commas = count(data, DEPTHS)
    return JsonShape(opened, commas, len(data) * (1 if data.isascii() else _WIDEST))
