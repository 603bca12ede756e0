"""Comparison of all answers, point by point: a fast answer to another question must not win."""

import math
from collections.abc import Sequence

from benchmarks.client import answer
from benchmarks.contestant import Contestant, Points
from benchmarks.questions import Asked, now_ms

FRESH_MS = 35_000
"""Buckets that ended later than this are not compared: VictoriaMetrics shows the last 30 seconds as they were before
them (``-search.latencyOffset``)."""
_TOLERANCE = 1e-9


def disagreement(everybody: Sequence[Contestant], asked: Asked, lines: int) -> str:
    """Return the faults in the answers to a question, empty for none: see ``difference``."""
    bodies = [answer(one.request(one.path(asked))) for one in everybody]
    return difference(everybody, bodies, asked, lines)


def difference(everybody: Sequence[Contestant], bodies: Sequence[bytes], asked: Asked, lines: int) -> str:
    """Empty when each body has so many lines, the same buckets within the range, and in them the same values as ours.

    The buckets at both ends, which the range may cut, are not compared.
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
    """The first point that differs, empty when there is none."""
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
