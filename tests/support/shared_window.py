"""Stress test for torn reads: a writer at full speed, and readers in other processes that check every value.

`python -m tests.support.shared_window --seconds 600` prints the counts, and exits with 1 after a wrong value. Each
value encodes its series and its time, so a single sample proves its origin. A series has a sample at every step, so an
answer with a gap is wrong too.
"""

import argparse
import json
import mmap
import os
import random
import select
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from jobmeter.kernel.window import MEAN, WindowGrid
from jobmeter.model.batch import References, SampleBatch, SampleColumns, SeriesKeys
from jobmeter.model.series import Series
from jobmeter.model.time import TimeRange
from jobmeter.store.window.shared import SharedWindow
from jobmeter.store.window.window import Window

SERIES, JOBS, STEP, TOGETHER = 300, 10, 1_000, 10
LENGTH = 400 * STEP
BOUND = 1_500_000
"""Size of the window in bytes: at times less than all samples need, so that the window shrinks and grows."""
LATE = 3
"""Number of turns after which every sample of a turn is written."""
BEGIN = 10**6
KEYS = SeriesKeys(
    (np.arange(SERIES) % JOBS).astype(np.uint64),
    np.random.default_rng(7).integers(0, 2**64, SERIES, np.uint64),
)
_NAMES = [Series("cpu.usage", job=str(at)) for at in range(SERIES)]


def values_of(series, moments):
    """Compute sample values from series numbers and times in ms."""
    return series * 2.0**24 + moments // STEP


@dataclass
class Counts:
    """Number of right answers, number of unanswered questions, and a description of the first wrong answer."""

    right: int = 0
    absent: int = 0
    wrong: str = ""


class Writer:
    """Writer that adds one sample per series and turn, some of them late, and drops old samples, series and jobs."""

    def __init__(self, seed):
        self.window = Window(LENGTH, BOUND)
        self.draw, self.numbers = random.Random(seed), np.random.default_rng(seed)
        self.turn = 0
        self.delays = np.zeros((LATE, SERIES), np.int64)
        self.window.adopt(KEYS, SampleColumns.make_empty(), BEGIN)

    def write(self):
        """Write one turn. Return the time up to which every sample is written."""
        now = BEGIN + self.turn * STEP
        self.delays[self.turn % LATE] = self.numbers.choice(LATE, SERIES, p=[0.9, 0.05, 0.05])
        for delay in range(LATE):
            if self.turn >= delay:
                self._append(np.flatnonzero(self.delays[(self.turn - delay) % LATE] == delay), now - delay * STEP, now)
        self._disturb(now)
        self.turn += 1
        return now - LATE * STEP

    def _append(self, series, moment, now):
        keys = KEYS.select(series)
        moments = np.full(len(series), moment, np.int64)
        names = [_NAMES[at] for at in series.tolist()]
        index = np.arange(len(series), dtype=np.uint32)
        self.window.write_all([SampleBatch(names, index, moments, values_of(series, moments), keys)], now)

    def _disturb(self, now):
        some = np.unique(self.numbers.integers(0, SERIES, 20))
        match self.draw.randrange(40):
            case 0:
                self.window.sweep(now)
            case 1:
                self.window.drop(KEYS.select(some))
            case 2:
                self.window.drop_job(self.draw.randrange(JOBS))
            case 3:
                # Too old for the window: the series are complete from its beginning on.
                self._append(some, max(BEGIN, now - 2 * LENGTH) // STEP * STEP, now)
            case 4 | 5 | 6 | 7:
                self._adopt(np.flatnonzero(self.window.find_missing(KEYS)), now)
            case _:
                pass

    def _adopt(self, series, now):
        """Add series with all of their written samples, like a restart."""
        since = max(BEGIN, now - self.draw.randrange(400) * STEP)
        moments = np.arange(since, now + 1, STEP)
        index, at = np.repeat(np.arange(len(series)), len(moments)), np.tile(moments, len(series))
        age = (now - at) // STEP
        turn = (at - BEGIN) // STEP
        there = (age >= LATE) | (self.delays[turn % LATE, series[index]] <= age)
        index, at = index[there], at[there]
        columns = SampleColumns(index.astype(np.uint32), at, values_of(series[index], at))
        self.window.adopt(KEYS.select(series), columns, since, now)


def check_once(window, until, draw):
    """Ask one random question. Return None without an answer, "" for a right answer, else an error description."""
    series = np.sort(draw.choice(SERIES, draw.integers(1, 40), replace=False))
    steps = TOGETHER * int(draw.integers(1, 16))
    end = (until // (TOGETHER * STEP)) * TOGETHER * STEP
    span, keys = TimeRange(end - steps * STEP, end), KEYS.select(series)
    times = np.arange(span.start_ms, span.end_ms, STEP)
    expected = values_of(series[:, None], times[None, :])
    kind = int(draw.integers(4))
    got: tuple[np.ndarray, ...] | None
    want: tuple[np.ndarray, ...]
    if kind == 0:
        found = window.read(keys, span)
        got = None if found is None else (found.time, found.value)
        want = np.tile(times, len(series)), expected.ravel()
    elif kind == 1:
        grid = WindowGrid(np.arange(len(series)), np.full(len(series), MEAN, np.uint8))
        lines = window.average_lines(keys, grid, span, STEP, 10**6)
        got = None if lines is None else (lines.time, lines.value)
        want = np.tile(times, len(series)), expected.ravel()
    elif kind == 2:
        gauges = np.zeros(len(series), np.bool_)
        made = window.read_buckets(keys, span, TOGETHER * STEP, gauges, References.make_empty(len(series)))
        got = None if made is None else (made.count, made.first, made.last, made.sum)
        each = expected.reshape(-1, TOGETHER)
        want = np.full(len(each), TOGETHER), each[:, 0], each[:, -1], each.sum(1)
    else:
        last = window.read_previous(keys, span.end_ms)
        got = None if last is None else (last.time, last.value)
        want = np.full(len(series), times[-1]), expected[:, -1]
    if got is None:
        return None
    same = all(len(one) == len(two) and (one == two).all() for one, two in zip(got, want, strict=True))
    return "" if same else f"kind {kind}, series {series.tolist()}, {span}: {got} instead of {want}"


def read_until_it_ends(descriptors, seed):
    """Ask until the writer has ended or an answer is wrong.

    The descriptors are, in this order: the window; eight bytes with the time up to which every sample is written; and a
    pipe that gets a byte with the first right answer.
    """
    window, counts = SharedWindow.open(descriptors[0]), Counts()
    until = memoryview(mmap.mmap(descriptors[1], 8)).cast("q")
    numbers = np.random.default_rng(seed)
    while not counts.wrong and not window.ended:
        if until[0] < BEGIN + 30 * TOGETHER * STEP:
            continue
        match check_once(window, until[0], numbers):
            case None:
                counts.absent += 1
            case "":
                counts.right += 1
                if counts.right == 1:
                    os.write(descriptors[2], b"1")
            case wrong:
                counts.wrong = wrong
    window.close()
    return counts


def stress(seconds, readers=2, seed=0, killed=0):
    """Write and read for some seconds, and at least until each reader had a right answer.

    Then kill ``killed`` readers and let the others read for the same time again. Return the number of turns and the
    counts of each surviving reader.
    """
    writer, progress = Writer(seed), os.memfd_create("progress")
    os.ftruncate(progress, 8)
    until = memoryview(mmap.mmap(progress, 8)).cast("q")
    receiving, sending = os.pipe()
    assert writer.window.descriptor is not None
    passed = writer.window.descriptor, progress, sending
    poll = select.poll()  # select fails in a test process with more than 1,023 open files
    poll.register(receiving, select.POLLIN)
    command = [sys.executable, "-m", "tests.support.shared_window", "--read", *map(str, passed), "--seed"]
    running = [
        subprocess.Popen([*command, str(seed + at)], stdout=subprocess.PIPE, pass_fds=passed) for at in range(readers)
    ]

    def write(waiting):
        end = time.monotonic() + seconds
        while time.monotonic() < end or waiting:
            until[0] = writer.write()
            if any(one.poll() is not None for one in running[killed:]):
                return
            if waiting and poll.poll(0):
                waiting -= len(os.read(receiving, waiting))

    try:
        write(readers)
        for one in running[:killed]:
            one.kill()
        if killed:
            write(0)
        writer.window.close()
        outputs = [one.communicate()[0] for one in running]
    finally:
        for one in running:
            with suppress(ProcessLookupError):
                one.kill()
            one.wait()
        for descriptor in (progress, receiving, sending):
            os.close(descriptor)
    return writer.turn, [Counts(**json.loads(output)) for output in outputs[killed:]]


def main():
    """Run the stress test. Return 1 if a reader had a wrong answer or no right answer."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.shared_window", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--readers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--read", nargs=3, type=int, help="read as one of the readers: three descriptors")
    options = parser.parse_args()
    if options.read:
        sys.stdout.write(json.dumps(vars(read_until_it_ends(options.read, options.seed))))
        return 0
    turns, counts = stress(options.seconds, options.readers, options.seed)
    sys.stdout.write(f"shared window: {turns} turns, " + ", ".join(map(str, counts)) + "\n")
    return int(any(one.wrong or not one.right for one in counts))


if __name__ == "__main__":
    sys.exit(main())
