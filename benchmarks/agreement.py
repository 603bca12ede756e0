"""Whether everybody answers the same: a fast answer to something else must not win."""

from collections.abc import Sequence

from benchmarks.client import answer
from benchmarks.contestant import Asked, Contestant

TOLERANCE = 0.01
"""Between the means over all points: a peer's step ends with a sample that is the first of our next step."""


def compare(everybody: Sequence[Contestant], asked: Asked, lines: int) -> None:
    """Raises RuntimeError unless each answer has so many lines, about as many points, and about the same mean."""
    first: list[float] | None = None
    for one in everybody:
        found = one.values(answer(one.requests([asked])[0]))
        points = [value for line in found for value in line]
        if len(found) != lines or not points:
            raise RuntimeError(f"{one.name} answers {len(found)} lines with {len(points)} points to {asked}")
        first = first or points
        means = sum(points) / len(points), sum(first) / len(first)
        # One step more or less in a line: half-open ranges here, closed ones there.
        if abs(len(points) - len(first)) > lines or abs(means[0] - means[1]) > TOLERANCE * max(means):
            raise RuntimeError(f"{one.name} answers {asked} with {len(points)} points, their mean is {means}")
