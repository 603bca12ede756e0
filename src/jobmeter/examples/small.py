"""Small job on the standard library: estimates pi in steps, and needs more memory in each.

``python -m jobmeter.examples.small SECONDS``. Of several ranks, the last one is the slowest.
"""

import os
import random
import signal
import sys
import time

_DARTS = 100_000
_GROWTH_BYTES = 1 << 20
_MOST_BYTES = 64 << 20


def estimate(seconds: float, rank: int, ranks: int) -> float:
    """Estimate pi for some seconds, printing the estimate once a second; return the last estimate."""
    throw = random.Random(rank).random  # noqa: S311 - no secret depends on the numbers
    begin = printed = time.monotonic()
    hits = darts = 0
    ballast = bytearray()
    while time.monotonic() - begin < seconds or not darts:
        hits += sum(throw() ** 2 + throw() ** 2 < 1 for _ in range(_DARTS))
        darts += _DARTS
        if len(ballast) < _MOST_BYTES:
            ballast.extend(bytes(_GROWTH_BYTES))
        if time.monotonic() - printed >= 1:
            printed = time.monotonic()
            print(f"{darts:,} darts: pi is about {4 * hits / darts:.5f}", flush=True)  # noqa: T201 - output of a job
        if rank < ranks - 1:
            time.sleep(0.05)
    print(f"done: pi is about {4 * hits / darts:.5f}", flush=True)  # noqa: T201 - output of a job
    return 4 * hits / darts


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a Ctrl-C ends it without a traceback
    estimate(float(sys.argv[1]), int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1")))
