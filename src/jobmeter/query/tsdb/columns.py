"""Points of series as columns."""

import msgspec
import numpy as np

from jobmeter.errors import LimitExceededError
from jobmeter.model.batch import Float64s, Int64s

MOST_POINTS = 2_000_000
"""Most points that a sub query may hold at one time."""


class SeriesColumns(msgspec.Struct, frozen=True, eq=False):
    """Points of some series, sorted by (index, time), each pair once.

    ``index`` int64[n] is the series; ``time`` int64[n] ms; ``value`` float64[n], NaN only from a fill policy.
    """

    index: Int64s
    time: Int64s
    value: Float64s

    def __len__(self) -> int:
        return len(self.time)

    @classmethod
    def make_empty(cls) -> "SeriesColumns":
        """Build empty columns."""
        return cls(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float64))

    def filter(self, mask: "np.typing.NDArray[np.bool_]") -> "SeriesColumns":
        """Select points by a mask."""
        return SeriesColumns(self.index[mask], self.time[mask], self.value[mask])


def make_points_error() -> LimitExceededError:
    """Build the error for a sub query with more than ``MOST_POINTS`` points."""
    return LimitExceededError(
        f"a sub query may make {MOST_POINTS} points: take a shorter range, a longer interval or fewer series",
        "downsample",
    )
