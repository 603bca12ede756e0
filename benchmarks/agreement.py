"""Comparison of all answers point by point: a contestant must not be fast because its answer differs."""

import math
from collections.abc import Sequence

from benchmarks.client import answer
from benchmarks.contestant import Contestant, Points
from benchmarks.questions import Asked, now_ms

FRESH_MS = 35_000
"""Time in ms since the end of the newest bucket whose values are compared.

VictoriaMetrics answers the last 30 seconds with older values (``-search.latencyOffset``).
"""
_TOLERANCE = 1e-9


def disagreement(everybody: Sequence[Contestant], asked: Asked, lines: int) -> str:
    """Send a query to every contestant and return how the answers disagree; see ``difference``."""
    bodies = [answer(one.request(one.path(asked))) for one in everybody]
    return difference(everybody, bodies, asked, lines)


def difference(everybody: Sequence[Contestant], bodies: Sequence[bytes], asked: Asked, lines: int) -> str:
    """Return how the answers of the contestants disagree, empty if they agree.

    Answers agree if each has ``lines`` lines with the same buckets within the range, and the same values in them, as
    the first contestant's answer. Buckets that the range may cut at its ends are not compared.
    """
    step = asked.step_s * 1000
    first, last = asked.start_ms, min(asked.end_ms, now_ms() - FRESH_MS) - step
    answers = [one.points(body, asked.step_s) for one, body in zip(everybody, bodies, strict=True)]
    found = [
        {line: {at: value for at, value in points.items() if first <= at <= last} for line, points in one.items()}
        for one in answers
    ]
    for one, points in zip(everybody, found, strict=True):
        if len(points) != lines or not all(points.values()):
            return f"{one.name} answers {len(points)} lines instead of {lines}, or empty ones, to {asked}"
        if reason := differing(found[0], points):
            return f"{one.name} disagrees: {reason} of {asked}"
    return ""


def differing(ours: Points, theirs: Points) -> str:
    """Return a description of the first difference between two answers, empty without a difference."""
    if ours.keys() != theirs.keys():
        return f"lines {sorted(ours.keys() ^ theirs.keys())[:3]}"
    for line, points in ours.items():
        others = theirs[line]
        if points.keys() != others.keys():
            return f"line {line} has other times: {sorted(points.keys() ^ others.keys())[:3]}"
        for at, value in points.items():
            if not math.isclose(value, others[at], rel_tol=_TOLERANCE, abs_tol=_TOLERANCE):
                return f"{value!r} is {others[at]!r} at {at} in line {line}"
    return ""
