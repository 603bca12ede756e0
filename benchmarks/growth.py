"""``python -m benchmarks.growth``: the same questions to servers that store 10^6, 10^7 and 10^8 samples.

Each size has a server of its own. All run at once and are asked in turns, so that a machine that is slower for a while
is so for each of them. One job of 128 GPUs goes on all the time and is asked for; all other samples belong to jobs
beside it. ``flat`` says that the ratio of the largest to the smallest, the median over the rounds, is at most a fifth
above one: less is noise on a shared machine.
"""

import argparse
import contextlib
import json
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import results
from benchmarks.client import Latency, Request, answer, latency
from benchmarks.contestant import Asked
from benchmarks.data import HOUR_MS, Data, utilization
from benchmarks.ours import API, Jobmeter
from benchmarks.processes import leave_when_told, resident_megabytes
from benchmarks.questions import live, long

LIVE = "live"
JOB_HOURS = 6
PAGE = 50
SMALL_JOBS, SMALL_HOURS = 60, 0.1
"""Jobs that are there from the beginning, so that a page of the list is full at each size."""
ROUNDS = 9
SERIES = 128
SPREAD_DAYS = 14
"""The jobs beside it ended within this time."""
NOISE = 1.2
LATEST = Path(__file__).parent / "results" / "growth.json"


@dataclass(frozen=True)
class Grown:
    """A server that is full, and the job that it is asked for."""

    ours: Jobmeter
    asked: Data
    samples: int
    jobs: int


@dataclass(frozen=True)
class Size:
    """What was measured with so many samples stored: by question, what each round took."""

    samples: int
    jobs: int
    times: dict[str, list[Latency]]
    memory: float
    disk: int


def main() -> None:
    """Fill, ask, judge."""
    options = _options()
    leave_when_told()
    with contextlib.ExitStack() as running:
        grown = [grow(running.enter_context(Jobmeter()), size) for size in sorted(options.samples)]
        for one in grown:
            settle(one)
        sizes = measure(grown, options.seconds)
    for size in sizes:
        print(text(size))
    judged = flat(sizes)
    for question, ratio in judged.items():
        word = "flat" if ratio <= NOISE else "NOT flat"
        print(f"{question}: {ratio:.2f} times as long as with {sizes[0].samples:,} samples: {word}")
    LATEST.parent.mkdir(parents=True, exist_ok=True)
    body = {"machine": results.machine(), "sizes": [_plain(size) for size in sizes], "ratios": judged}
    LATEST.write_text(json.dumps(body, indent=1))
    if options.check and any(judged[name] > NOISE for name in ("live", "job list")):
        sys.exit(1)


def grow(ours: Jobmeter, size: int) -> Grown:
    """Fill a server up to a size."""
    now, begin = time.time_ns() // 1_000_000, time.perf_counter()
    asked = utilization(now, 25, LIVE)
    ours.load(asked)
    stored, jobs = asked.samples, 1
    while jobs <= SMALL_JOBS:
        stored, jobs = stored + _load(ours, _beside(now, jobs, SMALL_HOURS)), jobs + 1
    while stored < size:
        hours = min(JOB_HOURS, (size - stored) / SERIES / 240)
        stored, jobs = stored + _load(ours, _beside(now, jobs, max(hours, 1 / 240))), jobs + 1
    print(f"{stored:,} samples in {time.perf_counter() - begin:.0f} s", file=sys.stderr, flush=True)
    return Grown(ours, asked, stored, jobs)


def settle(grown: Grown) -> None:
    """Until roll-ups have caught up: their tables do not grow for longer than a round of them takes to come."""
    asked = grown.asked
    grown.ours.wait_for_roll_ups(Asked(asked.job, asked.end_ms, 24, 300, "replica"), "minute")
    last, since, deadline = -1, time.monotonic(), time.monotonic() + 900
    while time.monotonic() < min(since + 75, deadline):
        rows = grown.ours.status()["rows"]
        now = rows["minutes"] + rows["hours"]
        if now != last:
            last, since = now, time.monotonic()
        time.sleep(3)


def measure(grown: Sequence[Grown], seconds: float) -> list[Size]:
    """Ask all of them in turns; the order alternates."""
    all_questions = [_questions(one) for one in grown]
    rounds: list[dict[str, list[Latency]]] = [{} for _ in grown]
    for questions in all_questions:
        for requests in questions.values():
            answer(requests[0])  # the first answer may have to find things
    places = list(range(len(grown)))
    for turn in range(ROUNDS):
        for name in all_questions[0]:
            for place in places if turn % 2 == 0 else reversed(places):
                asked = latency(all_questions[place][name], seconds / ROUNDS)
                rounds[place].setdefault(name, []).append(asked)
    return [
        Size(one.samples, one.jobs, times, resident_megabytes(one.ours.pid), one.ours.disk())
        for one, times in zip(grown, rounds, strict=True)
    ]


def flat(sizes: Sequence[Size]) -> dict[str, float]:
    """By question: how many times as long the last size takes as the first, the median over the rounds."""
    first, last = sizes[0].times, sizes[-1].times
    return {
        question: statistics.median(after.p50 / before.p50 for before, after in zip(times, last[question], strict=True))
        for question, times in first.items()
    }


def text(size: Size) -> str:
    """A line of the table."""
    times = "  ".join(f"{name} {_middle(rounds)}" for name, rounds in size.times.items())
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


def _questions(grown: Grown) -> dict[str, list[Request]]:
    ours, end = grown.ours, grown.asked.end_ms
    return {
        "live": ours.requests(live(LIVE, end)),
        "job list": [ours.request(f"{API}/jobs?limit={PAGE}&offset={at}") for at in range(SMALL_JOBS - PAGE)],
        "day": ours.requests(long(LIVE, end, 24, 300, "replica")),
        "two weeks": ours.requests(long(LIVE, end, 24 * SPREAD_DAYS, 3600, "replica")),
    }


def _middle(rounds: Sequence[Latency]) -> str:
    """The medians of the rounds' medians and 99ths of 100."""
    p50, p99 = (statistics.median(found) for found in ([one.p50 for one in rounds], [one.p99 for one in rounds]))
    return f"{p50:.2f}/{p99:.2f}"


def _plain(size: Size) -> dict[str, object]:
    return {**vars(size), "times": {name: [vars(one) for one in rounds] for name, rounds in size.times.items()}}


def _sizes(given: str) -> list[int]:
    return [int(float(part)) for part in given.split(",")]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.growth", description=__doc__)
    add = parser.add_argument
    add("--samples", type=_sizes, default=[10**6, 10**7, 10**8], metavar="LIST", help="sizes (1e6,1e7,1e8)")
    add("--seconds", type=float, default=9.0, help="how long each question is asked (9)")
    add("--check", action="store_true", help="exit with 1 when the live question or the job list is not flat")
    return parser.parse_args()


if __name__ == "__main__":
    main()
