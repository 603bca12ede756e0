"""A cache of keys for requests that differ from earlier ones in times and values alone, as those of one sender do."""

import threading
from collections import Counter, OrderedDict
from collections.abc import Sequence

import msgspec
import numpy as np

from jobmeter.model.batch import Int64s, Uint32s
from jobmeter.wire.otlp.written import Builder, Header, Numbers, Written, usual_columns

LEAST = 64
"""Data points of a request that is worth it."""
_MOST_BYTES = 128 * 2**20
_KEY_BYTES = 100


class Shape(msgspec.Struct, frozen=True, eq=False):
    """A request without times and values: see ``Written``; ``index`` and ``at`` as ``usual_columns`` has them."""

    keys: list[bytes]
    spans: Sequence[tuple[int, Header]]
    index: Uint32s
    at: Int64s
    refused: Counter[str]

    @classmethod
    def of(cls, built: Builder) -> "Shape":
        """That of a request all of whose data points have the usual form, or are refused for their metric."""
        index, at = np.array(built.indexes, np.uint32), np.array(built.places, np.int64)
        return cls(built.keys, built.spans, index, at, +built.refused)

    def written(self, data: bytes) -> Written:
        """A request of this shape."""
        heads, odd = usual_columns(data, self.index, self.at)
        refused = self.refused + Counter({"not-a-number": odd})
        none = np.empty(0, np.uint32), np.empty(0, np.int64), np.empty(0, np.float64)
        return Written(self.keys, heads, none, refused, 0, 0, self.spans)


class Shapes:
    """Shapes of requests: the least recently used go first. ``numbers`` are those that their keys are made of.

    Safe for several threads.
    """

    def __init__(self, bound: int | None = None) -> None:
        """``bound``: bytes of all of them, about."""
        self._bound = _MOST_BYTES if bound is None else bound
        self._lock = threading.Lock()
        self.numbers = Numbers(self._bound // 4)
        self._entries: OrderedDict[bytes, Shape] = OrderedDict()
        self._bytes = 0

    @property
    def size(self) -> int:
        """About how many bytes they take."""
        return self._bytes + self.numbers.size

    def get(self, text: bytes) -> Shape | None:
        """The shape of a request with this text but for times and values."""
        with self._lock:
            found = self._entries.get(text)
            if found is not None:
                self._entries.move_to_end(text)
            return found

    def put(self, text: bytes, shape: Shape) -> None:
        """Remember one."""
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


def _size(text: bytes, shape: Shape) -> int:
    return 2 * len(text) + _KEY_BYTES * len(shape.keys)
