"""``python -m benchmarks.growth``: the same questions while the number of stored samples grows to 10^8.

One job of 128 GPUs goes on all the time and is asked for; all other samples belong to jobs beside it. ``flat`` says
that the median at the largest size is at most a fifth above that at the smallest: less is noise on a shared machine.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import results
from benchmarks.client import Latency, Request, answer, latency
from benchmarks.contestant import Asked
from benchmarks.data import HOUR_MS, Data, utilization
from benchmarks.ours import API, Jobmeter
from benchmarks.processes import folder_bytes, resident_megabytes
from benchmarks.questions import live, long

LIVE = "live"
JOB_HOURS = 6
PAGE = 50
SMALL_JOBS, SMALL_HOURS = 60, 0.1
"""Jobs that are there from the beginning, so that a page of the list is full at each size."""
ROUNDS = 5
SERIES = 128
SPREAD_DAYS = 14
"""The jobs beside it ended within this time."""
NOISE = 1.2
LATEST = Path(__file__).parent / "results" / "growth.json"


@dataclass(frozen=True)
class Size:
    """What was measured with so many samples stored: milliseconds by question."""

    samples: int
    jobs: int
    times: dict[str, Latency]
    memory: float
    disk: int


def main() -> None:
    """Grow and measure."""
    options = _options()
    sizes = list[Size]()
    with Jobmeter() as ours:
        for size in grow(ours, options.samples, options.seconds):
            sizes.append(size)
            print(text(size), flush=True)
    judged = flat(sizes)
    for question, ratio in judged.items():
        word = "flat" if ratio <= NOISE else "NOT flat"
        print(f"{question}: {ratio:.2f} times the median at {sizes[0].samples:,} samples: {word}")
    LATEST.parent.mkdir(parents=True, exist_ok=True)
    body = {"machine": results.machine(), "sizes": [_plain(size) for size in sizes], "ratios": judged}
    LATEST.write_text(json.dumps(body, indent=1))
    if options.check and any(judged[name] > NOISE for name in ("live", "job list")):
        sys.exit(1)


def grow(ours: Jobmeter, sizes: Sequence[int], seconds: float) -> Iterator[Size]:
    """Fill the server up to each size in turn and ask it."""
    now = time.time_ns() // 1_000_000
    asked = utilization(now, 25, LIVE)
    begin = time.perf_counter()
    ours.load(asked)
    stored, jobs = asked.samples, 1
    while jobs <= SMALL_JOBS:
        stored, jobs = stored + _load(ours, _beside(now, jobs, SMALL_HOURS)), jobs + 1
    for size in sorted(sizes):
        while stored < size:
            hours = min(JOB_HOURS, (size - stored) / SERIES / 240)
            stored, jobs = stored + _load(ours, _beside(now, jobs, max(hours, 1 / 240))), jobs + 1
        print(f"{stored:,} samples after {time.perf_counter() - begin:.0f} s", file=sys.stderr, flush=True)
        _settle(ours, asked)
        yield Size(stored, jobs, _times(ours, asked, seconds), resident_megabytes(ours.pid), _disk(ours))


def flat(sizes: Sequence[Size]) -> dict[str, float]:
    """By question: the median at the last size over that at the first."""
    first, last = sizes[0].times, sizes[-1].times
    return {question: last[question].p50 / first[question].p50 for question in first}


def text(size: Size) -> str:
    """A line of the table."""
    times = "  ".join(f"{name} {one.p50:.2f}/{one.p99:.2f}" for name, one in size.times.items())
    return (
        f"{size.samples:>13,} samples, {size.jobs:,} jobs: {times}  (ms, p50/p99); "
        f"{size.memory:,.0f} MiB, {size.disk / 2**20:,.0f} MiB on disk"
    )


def _beside(now_ms: int, number: int, hours: float) -> Data:
    """A job that ended some time ago."""
    ended = now_ms - HOUR_MS - number * 7_919_000 % (SPREAD_DAYS * 24 * HOUR_MS)
    return utilization(ended, hours, f"beside-{number:05}")


def _load(ours: Jobmeter, data: Data) -> int:
    ours.load(data)
    return data.samples


def _times(ours: Jobmeter, asked: Data, seconds: float) -> dict[str, Latency]:
    """Of the quietest of some rounds: what goes on beside it on the machine is not what is measured."""
    end = asked.end_ms
    questions: dict[str, list[Request]] = {
        "live": ours.requests(live(LIVE, end)),
        "job list": [ours.request(f"{API}/jobs?limit={PAGE}&offset={at}") for at in range(SMALL_JOBS - PAGE)],
        "day": ours.requests(long(LIVE, end, 24, 300, "replica")),
        "two weeks": ours.requests(long(LIVE, end, 24 * SPREAD_DAYS, 3600, "replica")),
    }
    for requests in questions.values():
        answer(requests[0])  # the first answer may have to find things
    rounds = [{name: latency(all_, seconds / ROUNDS) for name, all_ in questions.items()} for _ in range(ROUNDS)]
    return {name: min((one[name] for one in rounds), key=lambda found: found.p50) for name in questions}


def _settle(ours: Jobmeter, asked: Data) -> None:
    """Until roll-ups have caught up: their tables do not grow for a while longer than a round of them takes to come."""
    ours.wait_for_roll_ups(Asked(asked.job, asked.end_ms, 24, 300, "replica"), "minute")
    last, since, deadline = -1, time.monotonic(), time.monotonic() + 600
    while time.monotonic() < min(since + 75, deadline):
        rows = ours.status()["rows"]
        now = rows["minutes"] + rows["hours"]
        if now != last:
            last, since = now, time.monotonic()
        time.sleep(3)


def _disk(ours: Jobmeter) -> int:
    return folder_bytes(ours.data_folder)


def _plain(size: Size) -> dict[str, object]:
    return {**vars(size), "times": {name: vars(one) for name, one in size.times.items()}}


def _sizes(given: str) -> list[int]:
    return [int(float(part)) for part in given.split(",")]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.growth", description=__doc__)
    add = parser.add_argument
    add("--samples", type=_sizes, default=[10**6, 10**7, 10**8], metavar="LIST", help="sizes (1e6,1e7,1e8)")
    add("--seconds", type=float, default=5.0, help="how long each question is asked (5)")
    add("--check", action="store_true", help="exit with 1 when the live question or the job list is not flat")
    return parser.parse_args()


if __name__ == "__main__":
    main()
