"""Whether everybody answers the same: a fast answer to something else must not win."""

from collections.abc import Sequence

from benchmarks.client import answer
from benchmarks.contestant import Asked, Contestant


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
        # A peer's line may begin with a step that lies before the range; it moves the mean by no more than this.
        allowed = (max(first) - min(first)) * lines / len(first)
        if abs(len(points) - len(first)) > lines or abs(means[0] - means[1]) > allowed:
            raise RuntimeError(f"{one.name} answers {asked} with {len(points)} points, their mean is {means}")
