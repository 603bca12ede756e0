"""A cache for requests that differ from earlier ones only in times and values, as the requests of one sender do."""

import threading
from collections import Counter, OrderedDict
from collections.abc import Sequence

import msgspec
import numpy as np

from jobmeter.model.batch import Int64s, Uint32s
from jobmeter.wire.otlp.written import Builder, Numbers, WrittenHeader, WrittenTelemetry, read_usual_columns

LEAST = 64
"""Fewest data points of a request that is cached."""
_MOST_BYTES = 128 * 2**20
_KEY_BYTES = 100


class RequestShape(msgspec.Struct, frozen=True, eq=False):
    """A request without times and values: see ``WrittenTelemetry``.

    ``index`` and ``at`` are arguments of ``read_usual_columns``.
    """

    keys: list[bytes]
    spans: Sequence[tuple[int, WrittenHeader]]
    index: Uint32s
    at: Int64s
    refused: Counter[str]

    @classmethod
    def from_request(cls, built: Builder) -> "RequestShape":
        """Return the shape of a request whose data points all have the usual form or were rejected for their metric."""
        index, at = np.array(built.indexes, np.uint32), np.array(built.places, np.int64)
        return cls(built.keys, built.spans, index, at, +built.refused)

    def combine(self, data: bytes) -> WrittenTelemetry:
        """Combine this shape with the times and values of a request."""
        heads, odd = read_usual_columns(data, self.index, self.at)
        refused = self.refused + Counter({"not-a-number": odd})
        none = np.empty(0, np.uint32), np.empty(0, np.int64), np.empty(0, np.float64)
        return WrittenTelemetry(self.keys, heads, none, refused, 0, 0, self.spans)


class Shapes:
    """A cache of shapes that drops the least recently used. ``numbers`` are the numbers in the keys.

    Safe for several threads.
    """

    def __init__(self, bound: int | None = None) -> None:
        """``bound``: bytes of all shapes together, about."""
        self._bound = _MOST_BYTES if bound is None else bound
        self._lock = threading.Lock()
        self.numbers = Numbers(self._bound // 4)
        self._entries: OrderedDict[bytes, RequestShape] = OrderedDict()
        self._bytes = 0

    @property
    def size(self) -> int:
        """Bytes of all shapes, about."""
        return self._bytes + self.numbers.size

    def get(self, text: bytes) -> RequestShape | None:
        """Return the shape cached under this text, which is a request with zeros for times and values."""
        with self._lock:
            found = self._entries.get(text)
            if found is not None:
                self._entries.move_to_end(text)
            return found

    def put(self, text: bytes, shape: RequestShape) -> None:
        """Cache a shape."""
        size = _size(text, shape)
        if size > self._bound // 4:
            return
        with self._lock:
            if text in self._entries:
                return
            self._entries[text] = shape
            self._bytes += size
            while self._bytes > self._bound:
                self._bytes -= _size(*self._entries.popitem(last=False))


def _size(text: bytes, shape: RequestShape) -> int:
    return 2 * len(text) + _KEY_BYTES * len(shape.keys)
