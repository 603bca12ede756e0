"""Writes samples as lines of text, without a Python object for each (``rows.c``)."""

from collections.abc import Generator, Sequence

import numpy as np
from numpy.typing import NDArray

from jobmeter.kernel.bind import DATA, PLACE, SIZE, bind
from jobmeter.kernel.library import point_to
from jobmeter.kernel.powers import make_powers

PIECE = 512 * 1024
"""Bytes of one piece of text, about."""
_MORE = 64
"""Most bytes of a time and a value, and of the overrun when a text is copied."""
_ROWS = bind("jobmeter_rows", [*[PLACE] * 3, SIZE, DATA, PLACE, SIZE, PLACE, PLACE, SIZE, PLACE], SIZE)


class Lines:
    """Writes samples as text, in pieces of about ``PIECE`` bytes.

    ``texts`` has three parts for each sample index: before the time, between time and value, and after the value. A
    value gets the fewest digits that read back as the same number. Not safe for several threads.
    """

    def __init__(self, texts: Sequence[tuple[str, str, str]]) -> None:
        parts = [part.encode() for text in texts for part in text]
        self._text = b"".join(parts) + bytes(_MORE)
        self._edges = np.zeros(len(parts) + 1, np.int64)
        np.cumsum([len(part) for part in parts], out=self._edges[1:])
        self._most = len(texts)
        self._longest = int(np.diff(self._edges[::3]).max(initial=0))
        self._powers = make_powers()
        self._out = np.empty(max(PIECE, self._longest + _MORE), np.uint8)
        self._used = np.zeros(1, np.int64)

    def add(self, index: NDArray[np.uint32], time: NDArray[np.int64], value: NDArray[np.float64]) -> Generator[bytes]:
        """Write some samples. Yield each piece that is full."""
        index, time = np.ascontiguousarray(index, np.uint32), np.ascontiguousarray(time, np.int64)
        value = np.ascontiguousarray(value, np.float64)
        if not len(index) == len(time) == len(value) or int(index.max(initial=0)) >= max(self._most, 1):
            raise ValueError("the columns of the samples do not match")
        first, count = 0, len(index)
        while first < count:
            first += _ROWS(
                point_to(index[first:]), point_to(time[first:]), point_to(value[first:]), count - first,
                self._text, point_to(self._edges), self._longest, point_to(self._powers),
                point_to(self._out), len(self._out), point_to(self._used),
            )  # fmt: skip
            if first < count:
                yield self.take_rest()

    def take_rest(self) -> bytes:
        """Return the text that was written and not yet yielded."""
        text = self._out[: int(self._used[0])].tobytes()
        self._used[0] = 0
        return text
