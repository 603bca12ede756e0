"""The questions, as lists: the same question again and again would measure caches and nothing else."""

from benchmarks.contestant import Asked
from benchmarks.data import STEP_MS

REPLICAS = 16
SHIFTS = 21
"""Ends of the range: each a step of 15 s later than the one before, over five minutes."""


def live(job: str, end_ms: int, replicas: int = REPLICAS) -> list[Asked]:
    """The last hour of one replica with its devices at 5 minutes, as a dashboard that moves on asks for it.

    Each question is of another replica and ends a sample later than the one before; ``end_ms`` is the latest end.
    """
    count = replicas * SHIFTS
    ends = [end_ms - (SHIFTS - 1 - one % SHIFTS) * STEP_MS for one in range(count)]
    return [Asked(job, end, 1, 300, "device", f"worker-{one % replicas}") for one, end in enumerate(ends)]


def same(job: str, end_ms: int) -> list[Asked]:
    """One live question."""
    return [Asked(job, end_ms, 1, 300, "device", "worker-3")]


def long(job: str, end_ms: int, hours: float, step_s: int, by: str) -> list[Asked]:
    """The whole job over a long range that moves on by a sample from question to question."""
    ends = (end_ms - (SHIFTS - 1 - shift) * STEP_MS for shift in range(SHIFTS))
    return [Asked(job, end, hours, step_s, by) for end in ends]
