"""What a process of its own does with an embedded store: a process can have one only, and one that is killed is lost.

``python child.py VERB FOLDER ...`` prints JSON lines.
"""

import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from jobmeter.errors import JobmeterError, UnavailableError
from jobmeter.model.batch import SampleBatch, SeriesKeys
from jobmeter.model.log import LogLine
from jobmeter.model.series import Series
from jobmeter.model.time import HOUR, SystemClock, TimeRange, parse_time
from jobmeter.store.base import LogSelector, ReadBudget, Selector, Store, Tier
from jobmeter.store.clickhouse import maintenance
from jobmeter.store.registry import open_store
from jobmeter.testing.samples import FOREVER, batch_of, brute_buckets, read_all, stored_buckets

if TYPE_CHECKING:
    from jobmeter.store.clickhouse import ClickHouseStore

START = parse_time("2026-01-01")
SERIES = [Series("cpu.time", job=f"job-{number}", replica="worker-0") for number in range(20)]
SPAN = TimeRange(START, START + 1000 * HOUR)
LINES = [
    LogLine(time_ns=START * 1_000_000 + at, text=f"line {at}", job="logged", replica="worker-0") for at in range(500)
]
JOBS = tuple(one.job_key for one in SERIES)


def say(**words: object) -> None:
    sys.stdout.write(json.dumps(words) + "\n")
    sys.stdout.flush()


def open_folder(folder: str) -> Store:
    return open_store(f"chdb://{folder}", SystemClock())


def rows_of(number: int) -> dict[tuple[Series, int], float]:
    """The samples of one batch: half of them repeat those of the batch before."""
    return {(one, START + (number + at) * 15_000): float(number + at) for one in SERIES for at in range(2)}


def write(folder: str, first: str) -> None:
    """Append batch after batch, saying which are acknowledged, and roll up in between, until killed."""
    store = open_folder(folder)
    number = int(first)

    def roll() -> None:
        while True:
            store.roll_up(START + number * 15_000)

    threading.Thread(target=roll, daemon=True).start()
    say(ready=True)
    while True:
        store.append(batch_of(rows_of(number)), FOREVER)
        say(acknowledged=number)
        number += 1


STEPS = ("write", "kept", "insert", "inserted", "remove", "removed")


def die(folder: str, step: str) -> None:
    """Write samples, write some of them anew, and die at one step on their way into the engine."""
    store = cast("ClickHouseStore", open_folder(folder))
    store.append(batch_of({(one, START): 1.0 for one in SERIES}), FOREVER)
    store.roll_up(START + HOUR)
    store.append(batch_of({(one, START): 2.0 for one in SERIES}), FOREVER)
    keeper = cast("Any", store._keeper)
    if step in {"write", "kept"}:
        _fall(os, "fdatasync", after=step == "kept")
        store.append(batch_of({(SERIES[0], START): 3.0}), FOREVER)
    elif step in {"insert", "inserted"}:
        _fall(keeper, "_insert", after=step == "inserted")
        store.statistics()
    else:
        _fall(keeper._segments, "remove", after=step == "removed")
        store.statistics()


def _fall(owner: Any, name: str, *, after: bool) -> None:
    """Kill this process when that is called: before or after it did what it does."""
    known = getattr(owner, name)

    def fall(*arguments: Any) -> None:
        if name == "remove" and not arguments[0]:
            return
        if after:
            known(*arguments)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(owner, name, fall)


def risen(folder: str) -> None:
    """What is there after that; and that a newer sample stays the newer one."""
    store = open_folder(folder)
    found = read_all(store, SERIES, SPAN)
    span = TimeRange(START, START + HOUR)
    rolled = store.rolled(JOBS, span)
    store.append(batch_of({(SERIES[1], START): 9.0}), FOREVER)
    store.roll_up(START + HOUR)
    expected = found | {(SERIES[1], START): 9.0}
    right = stored_buckets(store, SERIES, span, Tier.MINUTE) == brute_buckets(expected, SERIES, span, Tier.MINUTE)
    last = store.previous(SeriesKeys.of(SERIES[:2]), START + 1, ReadBudget()).value.tolist()
    say(values=[found[one, START] for one in SERIES], rows=len(found), trusted=bool(rolled), right=right, last=last)
    store.close()


def check(folder: str, until: str) -> None:
    """Say what is wrong with what batches below ``until`` left behind."""
    store = open_folder(folder)
    expected: dict[tuple[Series, int], float] = {}
    for number in range(int(until)):
        expected.update(rows_of(number))
    found = read_all(store, SERIES, SPAN)
    missing = [key for key in expected if found.get(key) != expected[key]]
    extra = {time for key in found if key not in expected for time in (key[1],)}
    known = set(store.find(Selector(jobs=JOBS)))
    wrong = 0
    for part in store.rolled(JOBS, SPAN):
        for tier in Tier:
            wrong += stored_buckets(store, SERIES, part, tier) != brute_buckets(found, SERIES, part, tier)
    say(missing=len(missing), extra_times=len(extra), unknown=len(set(SERIES) - known), wrong=wrong, found=len(found))
    store.close()


def fill(folder: str) -> None:
    """Append until the disk is full, make room, go on. The folder is on a small disk of its own."""
    ballast = Path(folder).with_name("ballast")
    ballast.write_bytes(os.urandom(24 << 20))
    store = open_folder(folder)
    generator = np.random.default_rng(1)
    kept: dict[int, float] = {}

    def batch(number: int) -> SampleBatch:
        times = START + (np.arange(50_000, dtype=np.int64) + number * 50_000) * 10
        return SampleBatch([SERIES[0]], np.zeros(50_000, np.uint32), times, generator.random(50_000))

    number, message, refused = 0, "", None
    while not message and number < 1000:
        refused = batch(number)
        try:
            store.append(refused, FOREVER)
            kept.update(zip(refused.time.tolist(), refused.value.tolist(), strict=True))
            number += 1
        except UnavailableError as error:
            message = error.message
    still = {time: value for (_, time), value in read_all(store, SERIES[:1], SPAN).items() if time in kept}
    ballast.unlink()
    assert refused is not None
    store.append(refused, FOREVER)
    kept.update(zip(refused.time.tolist(), refused.value.tolist(), strict=True))
    after = {time: value for (_, time), value in read_all(store, SERIES[:1], SPAN).items()}
    say(batches=number, message=message, readable=len(still) == number * 50_000, whole=after == kept)
    store.close()


def back_up(folder: str, target: str) -> None:
    """Back up while samples and roll-ups come in."""
    store = open_folder(folder)
    for number in range(300):
        store.append(batch_of(rows_of(number)), FOREVER)
    store.append_logs(LINES, FOREVER)
    store.roll_up(START + HOUR)
    stop = threading.Event()
    numbers = [299]

    def work() -> None:
        while not stop.is_set():
            numbers.append(numbers[-1] + 1)
            store.append(batch_of(rows_of(numbers[-1])), FOREVER)
            store.roll_up(START + HOUR)

    worker = threading.Thread(target=work)
    worker.start()
    try:
        store.backup(Path(target))
    finally:
        stop.set()
        worker.join()
    say(begun=300, ended=numbers[-1])
    store.close()


def back_up_as_before(folder: str, target: str) -> None:
    """Back up what there was when there were no log lines."""
    maintenance._PARTS = tuple(  # type: ignore[assignment]
        (name, tuple(table for table in tables if table != "logs")) for name, tables in maintenance._PARTS
    )
    store = open_folder(folder)
    store.append(batch_of(rows_of(0)), FOREVER)
    store.backup(Path(target))
    store.close()
    say()


def restore(folder: str, source: str) -> None:
    """Restore into an empty store, and try to again."""
    store = open_folder(folder)
    store.restore(Path(source))
    try:
        store.restore(Path(source))
        again = ""
    except JobmeterError as error:
        again = type(error).__name__
    store.append(batch_of({(Series("gpu.power", job="new"), START): 1.0}), FOREVER)
    rolled = store.roll_up(START + 3 * HOUR)
    lines = store.read_logs(LogSelector(project="default", job="logged", limit=1000), ReadBudget()).lines
    say(again=again, rolled=rolled, lines=lines == LINES, bare=not lines)
    store.close()


def attempt(folder: str) -> None:
    """Open it; say how that ends."""
    try:
        open_folder(folder).close()
        say(error="")
    except JobmeterError as error:
        say(error=type(error).__name__, message=error.message)


def from_the_future(folder: str) -> None:
    """Open what a newer program left behind."""
    store = open_folder(folder)
    with cast("ClickHouseStore", store)._maintenance._pool.client() as client:
        client.command("INSERT INTO migrations SELECT 999, 'unknown', 0")
    store.close()
    attempt(folder)


VERBS: dict[str, Callable[..., None]] = {
    "from_the_future": from_the_future,
    "write": write,
    "die": die,
    "risen": risen,
    "check": check,
    "fill": fill,
    "back_up": back_up,
    "back_up_as_before": back_up_as_before,
    "restore": restore,
    "attempt": attempt,
}

if __name__ == "__main__":
    VERBS[sys.argv[1]](*sys.argv[2:])
