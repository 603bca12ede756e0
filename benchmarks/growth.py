"""``python -m benchmarks.growth``: latency of queries that never repeat, with 10^6, 10^7 and 10^8 stored samples.

Each size has a server of its own. All servers run at the same time and are measured in turns, so that a slow phase of
the machine affects all of them. Queries read one job of 128 GPUs, whose samples arrive meanwhile. All other samples
belong to other jobs. A query is flat when its latency with the most samples is at most 1.2 times that with the fewest,
in the median over the rounds.
"""

import argparse
import itertools
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks import results
from benchmarks.client import Latency, drive
from benchmarks.contestant import running
from benchmarks.data import HOUR_MS, Data, job_names, utilization
from benchmarks.ours import API, Jobmeter
from benchmarks.processes import exit_on_sigterm, resident_megabytes
from benchmarks.questions import REPLICAS, Asked, live, now_ms
from benchmarks.stream import Stream

LIVE = "live"
JOB_HOURS = 6
PAGE = 50
SMALL_JOBS, SMALL_HOURS = 60, 0.1
"""Number and hours of the jobs that every server stores first, so that a page of the job list is full at each size."""
ROUNDS = 9
SERIES = 128
SPREAD_DAYS = 14
"""Days before the run within which the other jobs ended."""
LIMIT = 1.2
JUDGED = ("live", "job list")
LATEST = Path(__file__).parent / "results" / "growth.json"


@dataclass
class Size:
    """Server of one size: stored samples and jobs, latencies of each round by query, memory in MiB, disk in bytes."""

    samples: int
    jobs: int
    times: dict[str, list[Latency]] = field(default_factory=dict)
    memory: float = 0.0
    disk: int = 0

    def __str__(self) -> str:
        times = "  ".join(f"{name} {_medians(rounds)}" for name, rounds in self.times.items())
        stored = f"{self.memory:,.0f} MiB, {self.disk / 2**20:,.0f} MiB on disk"
        return f"{self.samples:>13,} samples, {self.jobs:,} jobs: {times}  (ms, p50/p99); {stored}"


def main() -> None:
    """Fill the servers, measure the queries and print the ratios.

    With ``--check`` exit with 1 if the live query or the job list is not flat.
    """
    options = _options()
    exit_on_sigterm()
    servers = [Jobmeter() for _ in options.samples]
    with running(servers):
        sizes = [grow(ours, size) for ours, size in zip(servers, sorted(options.samples), strict=True)]
        for ours in servers:
            ours.wait_for_roll_ups(Asked(LIVE, now_ms(), 24, 300, "replica"), "minute", options.quiet)
        measure(servers, sizes, options.seconds)
    print(*sizes, sep="\n")
    ratios = growth(sizes)
    for question, ratio in ratios.items():
        word = "flat" if ratio <= LIMIT else "NOT flat"
        print(f"{question}: {ratio:.2f} times as long as with {sizes[0].samples:,} samples: {word}")
    results.write(LATEST, {"machine": results.machine(), "sizes": list(map(asdict, sizes)), "ratios": ratios})
    if options.check and any(ratios[name] > LIMIT for name in JUDGED):
        sys.exit(1)


def grow(ours: Jobmeter, size: int) -> Size:
    """Import jobs into a server until it stores ``size`` samples and more than ``SMALL_JOBS`` jobs."""
    now, begin = now_ms(), time.perf_counter()
    asked = utilization(now, 25, LIVE)
    ours.load(asked)
    grown = Size(asked.samples, 1)
    while grown.jobs <= SMALL_JOBS or grown.samples < size:
        missing = (size - grown.samples) / SERIES / 240
        hours = SMALL_HOURS if grown.jobs <= SMALL_JOBS else min(JOB_HOURS, max(missing, 1 / 240))
        data = _beside(now, grown.jobs, hours)
        ours.load(data)
        grown.samples, grown.jobs = grown.samples + data.samples, grown.jobs + 1
    print(f"{grown.samples:,} samples in {time.perf_counter() - begin:.0f} s", file=sys.stderr, flush=True)
    return grown


def measure(servers: Sequence[Jobmeter], sizes: Sequence[Size], seconds: float) -> None:
    """Measure every query on all servers in turns, in an order that alternates. Each query gets ``seconds`` in all."""
    questions = [_questions(ours) for ours in servers]
    names = [*questions[0]]
    places = list(range(len(servers)))
    series = job_names("gpu.utilization", LIVE, REPLICAS, SERIES // REPLICAS)
    with Stream(servers, series, REPLICAS) as stream:
        for turn, name in itertools.product(range(ROUNDS), names):
            for place in places if turn % 2 == 0 else reversed(places):
                with stream.to(place):
                    asked = drive(servers[place].port, [questions[place][name]], seconds / ROUNDS)
                sizes[place].times.setdefault(name, []).append(asked.latency)
    for ours, size in zip(servers, sizes, strict=True):
        size.memory, size.disk = resident_megabytes(ours.pid), ours.disk()


def growth(sizes: Sequence[Size]) -> dict[str, float]:
    """Return the ratio of the last size's latency to that of the first, by query: the median over the rounds."""
    first, last = sizes[0].times, sizes[-1].times
    return {
        question: statistics.median(after.p50 / before.p50 for before, after in zip(times, last[question], strict=True))
        for question, times in first.items()
    }


def _beside(now: int, number: int, hours: float) -> Data:
    """Return the samples of another job, which ended at least an hour ago."""
    ended = now - HOUR_MS - number * 7_919_000 % (SPREAD_DAYS * 24 * HOUR_MS)
    return utilization(ended, hours, f"beside-{number:05}")


def _questions(ours: Jobmeter) -> dict[str, Iterator[bytes]]:
    """Return endless requests by query. The first request of each is sent now to warm up caches."""
    pages = itertools.cycle(range(SMALL_JOBS - PAGE))
    found = {
        "live": ours.messages(live(LIVE)),
        "job list": (ours.request(f"{API}/jobs?limit={PAGE}&offset={at}").encode() for at in pages),
        "day": ours.messages([Asked(LIVE, 0, 24, 300, "replica")]),
        "two weeks": ours.messages([Asked(LIVE, 0, 24 * SPREAD_DAYS, 3600, "replica")]),
    }
    for messages in found.values():
        drive(ours.port, [itertools.islice(messages, 1)])
    return found


def _medians(rounds: Sequence[Latency]) -> str:
    p50, p99 = (statistics.median(found) for found in ([one.p50 for one in rounds], [one.p99 for one in rounds]))
    return f"{p50:.2f}/{p99:.2f}"


def _sizes(given: str) -> list[int]:
    return [int(float(part)) for part in given.split(",")]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.growth", description=__doc__)
    add = parser.add_argument
    add("--samples", type=_sizes, default=[10**6, 10**7, 10**8], metavar="LIST", help="sizes (1e6,1e7,1e8)")
    add("--seconds", type=float, default=9.0, help="how long each question is asked (9)")
    add("--quiet", type=float, default=75.0, help="seconds without new roll-ups after which asking begins (75)")
    add("--check", action="store_true", help="exit with 1 when the live question or the job list is not flat")
    return parser.parse_args()


if __name__ == "__main__":
    main()
