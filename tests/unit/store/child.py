"""Child process with an embedded store, because a process can have only one store, and a test may kill it.

``python -m tests.unit.store.child VERB FOLDER ...`` prints JSON lines.
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
from tests.store_contract.samples import FOREVER, batch_of, brute_buckets, read_all, stored_buckets

from jobmeter.errors import JobmeterError, UnavailableError
from jobmeter.model.batch import SampleBatch, SeriesKeys
from jobmeter.model.log import LogLine
from jobmeter.model.series import Series
from jobmeter.model.time import DAY, HOUR, SystemClock, TimeRange, parse_time
from jobmeter.store.base import LogSelector, ReadBudget, SeriesSelector, Store, Tier
from jobmeter.store.clickhouse import maintenance, migrate, parse_dsn, pool
from jobmeter.store.clickhouse.migrations import MIGRATIONS
from jobmeter.store.clickhouse.record import RecordWriter
from jobmeter.store.clickhouse.rows import DAYS
from jobmeter.store.registry import open_store
from jobmeter.store.window.store import WindowedStore

if TYPE_CHECKING:
    from jobmeter.store.clickhouse import ClickHouseStore

START = parse_time("2026-01-01")
SERIES = [Series("cpu.time", job=f"job-{number}", replica="worker-0") for number in range(20)]
SPAN = TimeRange(START, START + 1000 * HOUR)
LINES = [
    LogLine(time_ns=START * 1_000_000 + at, text=f"line {at}", job="logged", replica="worker-0") for at in range(500)
]
AS_BEFORE = Series("gpu.power", job="before", replica="worker-0")
AS_BEFORE_VALUES = [0.25, -0.0, 3.0, 2.0**40, 2.0**-10, 7.5, -1.25, 0.0] * 60
JOBS = tuple(one.job_key for one in SERIES)
LATE = Series("cpu.time", job="late", replica="worker-0")
"""Series whose first sample comes last."""


def say(**words: object) -> None:
    sys.stdout.write(json.dumps(words) + "\n")
    sys.stdout.flush()


def open_folder(folder: str) -> Store:
    return open_store(f"chdb://{folder}", SystemClock())


def rows_of(number: int) -> dict[tuple[Series, int], float]:
    """Return the samples of one batch: half of them repeat samples of the previous batch."""
    return {(one, START + (number + at) * 15_000): float(number + at) for one in SERIES for at in range(2)}


def write(folder: str, first: str) -> None:
    """Append batches until killed and print the acknowledged ones, while another thread rolls up."""
    store = open_folder(folder)
    number = int(first)

    def roll() -> None:
        while True:
            store.roll_up(START + number * 15_000)

    threading.Thread(target=roll, daemon=True).start()
    say(ready=True)
    while True:
        store.append_all((batch_of(rows_of(number)),), FOREVER)
        say(acknowledged=number)
        number += 1


STEPS = ("write", "kept", "insert", "inserted", "remove", "removed")


def die(folder: str, step: str) -> None:
    """Write samples, overwrite some of them, and die at one step on their way into the engine."""
    store = cast("ClickHouseStore", open_folder(folder))
    store.append_all((batch_of({(one, START): 1.0 for one in SERIES}),), FOREVER)
    store.roll_up(START + HOUR)
    store.append_all((batch_of({(one, START): 2.0 for one in [*SERIES, LATE]}),), FOREVER)
    log = cast("Any", store.commit_log)
    if step in {"write", "kept"}:
        _fall(os, "fdatasync", after=step == "kept")
        store.append_all((batch_of({(SERIES[0], START): 3.0}),), FOREVER)
    elif step in {"insert", "inserted"}:
        _fall(log, "_insert", after=step == "inserted")
        log.flush()
    else:
        _fall(log.segments, "remove", after=step == "removed")
        log.flush()


def _fall(owner: Any, name: str, *, after: bool) -> None:
    """Kill this process at the next call of a function: before its work, or after it."""
    original = getattr(owner, name)

    def fall(*arguments: Any) -> None:
        if name == "remove" and not arguments[0]:
            return
        if after:
            original(*arguments)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(owner, name, fall)


def risen(folder: str) -> None:
    """Print what the store has after ``die``, and check that a newer sample replaces an older one."""
    store = open_folder(folder)
    stored = store.lacks_descriptor(SeriesKeys.from_series([LATE])).tolist() == [False]
    described = store.find(SeriesSelector(jobs=(LATE.job_key,))) == [LATE] and stored
    found = read_all(store, SERIES, SPAN)
    span = TimeRange(START, START + HOUR)
    rolled = store.find_rolled_up_ranges(JOBS, span)
    store.append_all((batch_of({(SERIES[1], START): 9.0}),), FOREVER)
    store.roll_up(START + HOUR)
    expected = found | {(SERIES[1], START): 9.0}
    right = stored_buckets(store, SERIES, span, Tier.MINUTE) == brute_buckets(expected, SERIES, span, Tier.MINUTE)
    last = store.read_previous(SeriesKeys.from_series(SERIES[:2]), START + 1, ReadBudget()).value.tolist()
    values = [found[one, START] for one in SERIES]
    say(values=values, rows=len(found), trusted=bool(rolled), right=right, last=last, described=described)
    store.close()


def write_days(folder: str) -> None:
    """Write and roll up three days, each in its own part, and close the store in order."""
    store = cast("ClickHouseStore", open_folder(folder))
    for day in range(3):
        store.append_all((batch_of(samples_of_day(day)),), FOREVER)
        cast("Any", store.commit_log).flush()
    store.roll_up(START + 3 * DAY)
    store.close()


def samples_of_day(day: int) -> dict[tuple[Series, int], float]:
    return {(one, START + day * DAY + at * 60_000): float(at) for one in SERIES for at in range(100)}


def after_damage(folder: str) -> None:
    """Print the damaged parts of ``write_days``, and if its roll-ups are right and trusted before and after a round."""
    store = open_folder(folder)
    span = TimeRange(START, START + 3 * DAY)
    damaged = [(part.table, part.name, part.rows) for part in store.list_damaged()]
    trusted = store.find_rolled_up_ranges(JOBS, span) == [span]
    marked = len(cast("ClickHouseStore", store).rollup_state.take())
    store.roll_up(START + 3 * DAY)
    found = read_all(store, SERIES, SPAN)
    right = all(
        stored_buckets(store, SERIES, part, tier) == brute_buckets(found, SERIES, part, tier)
        for part in store.find_rolled_up_ranges(JOBS, span)
        for tier in Tier
    )
    whole = store.find_rolled_up_ranges(JOBS, span) == [span]
    say(damaged=damaged, trusted=trusted, marked=marked, right=right, whole=whole, found=len(found))
    store.close()


NAMELESS = SERIES[:3]


class _Then:
    """Clock that stands shortly after the samples."""

    def now_ms(self) -> int:
        return START + HOUR

    def monotonic(self) -> float:
        return 0.0


def die_apart(folder: str) -> None:
    """Write records that need the descriptors of the first three, and die."""
    store = cast("ClickHouseStore", open_store(f"chdb://{folder}", _Then()))
    cast("Any", store.commit_log).segments.writer = RecordWriter(apart=1)
    for number in range(6):
        store.append_all((batch_of({(one, START + number * 15_000): float(number) for one in NAMELESS}),), FOREVER)
    os.kill(os.getpid(), signal.SIGKILL)


def start_and_end(folder: str) -> None:
    """Open the store, print the known damage, and close it."""
    store = open_store(f"chdb://{folder}", _Then())
    say(damaged=[(part.table, part.rows, part.at_most) for part in store.list_damaged()])
    store.close()


def send_again(folder: str) -> None:
    """Send another sample of each series, and print what a window finds of them before and after."""
    engine = open_store(f"chdb://{folder}", _Then())
    store = WindowedStore(engine, _Then(), length_ms=2 * HOUR, bound=2**26)
    selector = SeriesSelector(jobs=tuple(one.job_key for one in NAMELESS))
    before = len(store.find(selector))
    store.append_all((batch_of({(one, START + 10 * 60_000): 9.0 for one in NAMELESS}),), FOREVER)
    named = sorted(store.find(selector), key=lambda one: one.job) == sorted(NAMELESS, key=lambda one: one.job)
    found = read_all(store, NAMELESS, SPAN)
    say(before=before, named=named, times=sorted({(at - START) // 15_000 for _, at in found}), rows=len(found))
    store.close()


def check(folder: str, until: str) -> None:
    """Print the faults in the data that batches below ``until`` left behind."""
    store = open_folder(folder)
    expected: dict[tuple[Series, int], float] = {}
    for number in range(int(until)):
        expected.update(rows_of(number))
    found = read_all(store, SERIES, SPAN)
    missing = [key for key in expected if found.get(key) != expected[key]]
    extra = {time for key in found if key not in expected for time in (key[1],)}
    original = set(store.find(SeriesSelector(jobs=JOBS)))
    wrong = 0
    for part in store.find_rolled_up_ranges(JOBS, SPAN):
        for tier in Tier:
            wrong += stored_buckets(store, SERIES, part, tier) != brute_buckets(found, SERIES, part, tier)
    say(
        missing=len(missing), extra_times=len(extra), unknown=len(set(SERIES) - original), wrong=wrong, found=len(found)
    )
    store.close()


def fill(folder: str) -> None:
    """Append until the disk is full, free space, and continue. The folder is on a small disk of its own."""
    ballast = Path(folder).with_name("ballast")
    ballast.write_bytes(os.urandom(24 << 20))
    store = open_folder(folder)
    generator = np.random.default_rng(1)
    expected: dict[int, float] = {}

    def batch(number: int) -> SampleBatch:
        times = START + (np.arange(50_000, dtype=np.int64) + number * 50_000) * 10
        return SampleBatch([SERIES[0]], np.zeros(50_000, np.uint32), times, generator.random(50_000))

    number, message, refused = 0, "", None
    while not message and number < 1000:
        refused = batch(number)
        try:
            store.append_all((refused,), FOREVER)
            expected.update(zip(refused.time.tolist(), refused.value.tolist(), strict=True))
            number += 1
        except UnavailableError as error:
            message = error.message
    still = {time: value for (_, time), value in read_all(store, SERIES[:1], SPAN).items() if time in expected}
    ballast.unlink()
    assert refused is not None
    store.append_all((refused,), FOREVER)
    expected.update(zip(refused.time.tolist(), refused.value.tolist(), strict=True))
    after = {time: value for (_, time), value in read_all(store, SERIES[:1], SPAN).items()}
    say(batches=number, message=message, readable=len(still) == number * 50_000, whole=after == expected)
    store.close()


def back_up(folder: str, target: str) -> None:
    """Back up while samples and roll-ups arrive."""
    store = open_folder(folder)
    for number in range(300):
        store.append_all((batch_of(rows_of(number)),), FOREVER)
    store.logs.append(LINES, FOREVER)
    store.roll_up(START + HOUR)
    stop = threading.Event()
    numbers = [299]

    def work() -> None:
        while not stop.is_set():
            numbers.append(numbers[-1] + 1)
            store.append_all((batch_of(rows_of(numbers[-1])),), FOREVER)
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
    """Back up like the programs before log lines."""
    maintenance._PARTS = tuple(  # type: ignore[assignment]
        (name, tuple(table for table in tables if table != "logs")) for name, tables in maintenance._PARTS
    )
    store = open_folder(folder)
    store.append_all((batch_of(rows_of(0)),), FOREVER)
    store.backup(Path(target))
    store.close()
    say()


def write_as_before(folder: str, target: str) -> None:
    """Leave a store and its backup of the program that kept samples and roll-ups as doubles only."""
    target_ = parse_dsn(f"chdb://{folder}")
    first = pool.connect(target_, None)
    migrate.create_database(first, target_)
    vars(migrate)["MIGRATIONS"] = MIGRATIONS[:2]
    client = pool.connect(target_, target_.database)
    migrate.migrate(client, target_, SystemClock())
    key, days = (AS_BEFORE.job_key, AS_BEFORE.id), (36_500,) * len(DAYS)
    rows = [(*key, START + at * 15_000, value, *days) for at, value in enumerate(AS_BEFORE_VALUES)]
    client.insert("samples", rows, ["job", "series", "time", "value", *DAYS])
    for table, step, day_columns in (("minutes", 60_000, DAYS[1:]), ("hours", HOUR, DAYS[2:])):
        client.command(
            f"INSERT INTO {table} (job, series, time, count, sum, minimum, maximum, first, first_time, last, last_time,"
            f" {', '.join(day_columns)}) SELECT job, series, intDiv(time, {step}) * {step} AS at, count(), sum(value),"
            " min(value), max(value), argMin(value, time), min(time), argMax(value, time), max(time),"
            f" {', '.join(f'max({name})' for name in day_columns)} FROM samples GROUP BY job, series, at"
        )
    client.command(f"INSERT INTO progress VALUES ('done', {START + 3 * HOUR}), ('intent', {START + 3 * HOUR})")
    for name, tables in maintenance._PARTS:
        old = [table for table in tables if table not in {"spans", "outbox"}]
        listed = ", ".join(f"TABLE {target_.database}.{table}" for table in old)
        client.command(f"BACKUP {listed} TO File('{target}/{name}')")
    say()
    os._exit(0)


def read_as_before(folder: str, source: str) -> None:
    """Open the store of ``write_as_before``, or restore its backup; read it, add samples, and roll it up again."""
    store = open_folder(folder)
    if source:
        store.restore(Path(source))
    expected = {(AS_BEFORE, START + at * 15_000): value for at, value in enumerate(AS_BEFORE_VALUES)}
    say(same=_same(store, expected), trusted=store.find_rolled_up_ranges((AS_BEFORE.job_key,), SPAN) != [])
    late = {(AS_BEFORE, START + 7): 0.125, (AS_BEFORE, START + 15_000): 12.5}
    store.append_all((batch_of(late),), FOREVER)
    store.roll_up(START + 3 * HOUR)
    say(same=_same(store, expected | late))
    store.close()


def _same(store: Store, expected: dict[tuple[Series, int], float]) -> bool:
    one = [AS_BEFORE]
    return read_all(store, one, SPAN) == expected and all(
        stored_buckets(store, one, SPAN, tier) == brute_buckets(expected, one, SPAN, tier) for tier in Tier
    )


def restore(folder: str, source: str) -> None:
    """Restore into an empty store, and then a second time."""
    store = open_folder(folder)
    store.restore(Path(source))
    try:
        store.restore(Path(source))
        again = ""
    except JobmeterError as error:
        again = type(error).__name__
    store.append_all((batch_of({(Series("gpu.power", job="new"), START): 1.0}),), FOREVER)
    rolled = store.roll_up(START + 3 * HOUR)
    lines = store.logs.read(LogSelector(project="default", job="logged", limit=1000), ReadBudget()).lines
    say(again=again, rolled=rolled, lines=lines == LINES, bare=not lines)
    store.close()


def restore_refused(folder: str, *sources: str) -> None:
    """Try to restore each source; print the result and the number of rows, which must stay 0."""
    store = open_folder(folder)
    for source in sources:
        try:
            store.restore(Path(source))
            error, message = "", ""
        except JobmeterError as problem:
            error, message = type(problem).__name__, problem.message
        say(error=error, message=message, rows=sum(store.read_statistics().rows.values()))
    store.close()


def attempt(folder: str) -> None:
    """Open the store and print the result."""
    try:
        open_folder(folder).close()
        say(error="")
    except JobmeterError as error:
        say(error=type(error).__name__, message=error.message)


def from_the_future(folder: str) -> None:
    """Open the store of a newer program."""
    store = open_folder(folder)
    with cast("ClickHouseStore", store).maintenance.pool.borrow_client() as client:
        client.command("INSERT INTO migrations SELECT 999, 'unknown', 0")
    store.close()
    attempt(folder)


VERBS: dict[str, Callable[..., None]] = {
    "from_the_future": from_the_future,
    "write": write,
    "die": die,
    "risen": risen,
    "write_days": write_days,
    "after_damage": after_damage,
    "die_apart": die_apart,
    "start_and_end": start_and_end,
    "send_again": send_again,
    "check": check,
    "fill": fill,
    "back_up": back_up,
    "back_up_as_before": back_up_as_before,
    "restore": restore,
    "restore_refused": restore_refused,
    "write_as_before": write_as_before,
    "read_as_before": read_as_before,
    "attempt": attempt,
}

if __name__ == "__main__":
    VERBS[sys.argv[1]](*sys.argv[2:])
