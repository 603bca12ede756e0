"""The symbol tables of version 2.0: each request has its own table, and series refer to symbols by position."""

import threading
from collections.abc import Sequence

import numpy as np

from jobmeter.kernel.text_table import Texts, TextTable
from jobmeter.model.batch import Int64s, Uint64s
from jobmeter.wire.protobuf import make_damage_error

_MOST = 1_000_000
_MOST_BYTES = 64 * 2**20
_LONGEST = 5


class Symbols:
    """A number for each text, the same in every request, so that series are recognised by their numbers.

    Safe for several threads. A table with too many texts is emptied. A number is never used twice.
    """

    def __init__(self, bound: int = _MOST_BYTES) -> None:
        """``bound``: bytes of all texts together."""
        self._bound = bound
        self._lock = threading.Lock()
        self._table = TextTable()
        self._base = 0

    @property
    def size(self) -> int:
        """Bytes of the texts."""
        return self._table.size

    def find_numbers(self, symbols: Sequence[bytes]) -> Uint64s:
        """Return the number of each text, uint64[n]."""
        with self._lock:
            if len(self._table) > _MOST or self._table.size > self._bound:
                self._base += len(self._table)
                self._table = TextTable()
            return (self._table.add(Texts.from_texts(symbols)) + self._base).astype(np.uint64)


def decode_references(parts: Sequence[bytes], count: int) -> tuple[Int64s, Int64s]:
    """Decode packed varints of many series: all numbers int64[n], and the start of each series, int64[len(parts) + 1].

    Raises InvalidRequestError for a varint that is cut off, or not below ``count``.
    """
    octets = np.frombuffer(b"".join(parts), np.uint8)
    last = octets < 128
    stops = np.cumsum(np.fromiter((len(part) for part in parts), np.int64, len(parts)))
    if len(octets) and not last[stops[stops > 0] - 1].all():
        raise make_damage_error("it ends inside a reference")
    ends = np.flatnonzero(last) + 1
    begins = np.r_[0, ends[:-1]] if len(ends) else ends
    digits = ends - begins
    if len(digits) and int(digits.max()) > _LONGEST:
        raise make_damage_error("a reference has more than 32 bits")
    refs = np.zeros(len(ends), np.int64)
    for place in range(int(digits.max(initial=0))):
        there = digits > place
        refs[there] |= (octets[begins[there] + place].astype(np.int64) & 127) << (7 * place)
    if len(refs) and int(refs.max()) >= count:
        raise make_damage_error(f"a series refers to symbol {int(refs.max())} of {count}")
    return refs, np.r_[0, np.cumsum(last)][np.r_[0, stops]]
