"""Tests of readers of a window in other processes: each answer is the writer's answer, or None."""

import os
import resource
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support import shared_window
from tests.support.waiting import SECONDS, wait_until

from jobmeter.kernel.window import MAX, MEAN, WindowGrid
from jobmeter.model.batch import References, SampleBatch, SampleColumns, SeriesKeys
from jobmeter.model.series import Series
from jobmeter.model.series_table import SeriesTable
from jobmeter.model.time import DAY, MINUTE, TimeRange
from jobmeter.store.window import arena as arenas
from jobmeter.store.window import shared
from jobmeter.store.window.arena import Arena, HeaderField
from jobmeter.store.window.pages import NO_PAGE, Pages, SeriesRows, count_pages, count_rows
from jobmeter.store.window.revisions import Revisions
from jobmeter.store.window.shared import SharedWindow
from jobmeter.store.window.window import Window

FD_SETSIZE = 1_024
"""First descriptor that ``select`` refuses."""
SERIES, LENGTH, BEGIN = 6, 2**33, 2**41
KEYS = SeriesKeys(np.arange(SERIES, dtype=np.uint64) // 2, np.arange(10, 10 + SERIES, dtype=np.uint64))
TIMES = st.one_of(st.integers(0, 300), st.sampled_from([-LENGTH - 5, -7, 2**31 + 1, 2**32 + 3]))
SOME = st.sets(st.integers(0, SERIES - 1), min_size=1).map(sorted)
EVENTS = st.one_of(
    st.tuples(st.just("write"), st.lists(st.tuples(st.integers(0, SERIES - 1), TIMES), min_size=1, max_size=150)),
    st.tuples(st.just("adopt"), SOME),
    st.tuples(st.just("drop"), SOME),
    st.tuples(st.just("drop_job"), st.integers(0, 2)),
    st.tuples(st.just("sweep"), st.sampled_from([0, LENGTH, 2**31, LENGTH + DAY])),
)
"""Changes of a window: the kind and its argument. Times are ms from ``BEGIN`` on."""


def change(window, turn, kind, what):
    """Apply one of ``EVENTS``. Values differ from turn to turn."""
    match kind:
        case "write":
            index = np.array([at for at, _ in what], np.uint32)
            time = np.array([BEGIN + at for _, at in what], np.int64)
            series = [Series("cpu.usage", job=str(at)) for at in range(SERIES)]
            window.write_all([SampleBatch(series, index, time, np.arange(len(what)) + 1000.0 * turn, KEYS)], BEGIN)
        case "adopt":
            index = np.repeat(np.arange(len(what), dtype=np.uint32), 3)
            columns = SampleColumns(index, np.tile(BEGIN - np.array([9, 6, 3]), len(what)), index + 1000.0 * turn)
            window.adopt(KEYS.select(np.array(what)), columns, BEGIN - 9, BEGIN)
        case "drop":
            window.drop(KEYS.select(np.array(what)))
        case "drop_job":
            window.drop_job(what)
        case _:
            window.sweep(BEGIN + what)


def values(columns):
    """Return the values of an answer, which must not be None."""
    assert columns is not None
    return columns.value.tolist()


def opened(window):
    """Open the window as another process does."""
    assert window.descriptor is not None
    return SharedWindow.open(window.descriptor)


def answers(window, keys, start, length, step):
    """Return a window's answers to every kind of query about some series, as texts to compare."""
    span, count = TimeRange(BEGIN + start, BEGIN + start + length), len(keys)
    references = References.make_empty(count)
    counters = np.arange(count) % 2 == 0
    grid = WindowGrid(np.arange(count) // 2, np.array([MEAN, MAX, MEAN], np.uint8))
    found = [
        window.read(keys, span),
        window.read(keys, span, first=count // 2, first_ms=span.start_ms + 5, most=20),
        window.read_buckets(keys, span, step, counters, references),
        window.read_buckets(keys, span, step, counters, References.make_empty(count), most=20),
        window.average_lines(keys, grid, span, step, 100_000) if length < 1_000 else None,
        window.read_previous(keys, span.start_ms),
    ]
    columns = [None if one is None else [str(getattr(one, name)) for name in one.__struct_fields__] for one in found]
    return [*columns, str(references.time), window.write_revision(keys)]


@pytest.fixture
def window():
    made = Window(LENGTH, 2**20)
    made.adopt(KEYS, SampleColumns.make_empty(), BEGIN)
    return made


@given(
    st.lists(EVENTS, max_size=12),
    st.sampled_from([2**20, 9_000]),
    SOME,
    st.sampled_from([-LENGTH, -9, -7, 0, 100]),
    st.sampled_from([0, 1, 50, 400, 2**34]),
    st.sampled_from([1, 7, 60]),
)
def test_a_reader_answers_as_the_writer_does(events, bound, some, start, length, step):
    KEYS.derived.clear()  # the cache holds the windows of earlier examples, and their files, open
    window = Window(LENGTH, bound)
    reader, keys = opened(window), KEYS.select(np.array(some))
    step = step if length < 1_000 else 2**31
    for turn, event in enumerate([("adopt", range(SERIES)), *events]):
        change(window, turn, *event)
        assert answers(reader, keys, start, length, step) == answers(window, keys, start, length, step)
    reader.close()


def test_readers_have_right_values_during_writes_also_after_another_reader_was_killed():
    _, counts = shared_window.stress(2.0, readers=3, killed=1)
    assert len(counts) == 2
    assert [one.wrong for one in counts] == ["", ""]
    assert all(one.right for one in counts)


@settings(deadline=None, max_examples=3)
@given(st.integers(0, 2**32))
def test_one_reader_has_right_values_during_random_writes(seed):
    _, counts = shared_window.stress(0.5, readers=1, seed=seed)
    assert [one.wrong for one in counts] == [""]


def rows_of(arena):
    """Lay out a window in the arena. Return its pages and rows, for a test that writes to them directly."""
    Revisions(arena.take)
    bound = int(arena.header[HeaderField.BOUND])
    return Pages(count_pages(bound), arena.take), SeriesRows(SeriesTable(count_rows(bound), arena.take))


def test_a_reader_has_no_answer_while_a_write_to_one_of_its_rows_is_under_way():
    arena = Arena.create(2**20)
    _, rows = rows_of(arena)
    row = rows.add_all(KEYS, BEGIN)
    reader, span = opened(arena), TimeRange(BEGIN, BEGIN + MINUTE)
    for number in range(SERIES):
        with rows.marks.mark_writing(row[number : number + 1]):
            assert answers(reader, KEYS, 0, 50, 10)[:6] == [None] * 6
            assert reader.write_revision(KEYS) is None
    assert values(reader.read(KEYS, span)) == []
    reader.close()


@pytest.mark.parametrize(
    "ask",
    [
        lambda reader, keys: reader.read(keys, TimeRange(BEGIN + 2, BEGIN + 10)),
        lambda reader, keys: reader.read_previous(keys, BEGIN + 10),
    ],
    ids=["read", "previous"],
)
def test_a_walk_along_pages_in_a_circle_ends_when_the_mark_of_the_row_changes(ask, monkeypatch):
    monkeypatch.setattr(shared, "_SETTLED_SECONDS", SECONDS)
    arena = Arena.create(2**20)
    pages, rows = rows_of(arena)
    (row,) = rows.add_all(KEYS.select(slice(1)), BEGIN)
    circle, new = np.split(pages.take(3), [2])
    pages.store(circle, np.array([0, 1]), np.array([BEGIN, BEGIN + 1]), np.array([1.0, 2.0]))
    pages.store(new, np.array([0]), np.array([BEGIN + 2]), np.array([3.0]))
    pages.following[circle] = circle[::-1]
    rows.first_page[row] = circle[0]
    reader = opened(arena)
    with ThreadPoolExecutor(1) as pool:
        clock = time.pthread_getcpuclockid(pool.submit(threading.get_ident).result())
        started = time.clock_gettime(clock)
        found = pool.submit(ask, reader, KEYS.select(slice(1)))
        try:
            # A query takes microseconds: a thread that has computed this long is in an endless loop.
            wait_until(lambda: found.done() or time.clock_gettime(clock) > started + 0.1)
            assert not found.done()
            with rows.marks.mark_writing(np.array([row])):
                rows.first_page[row] = new[0]
            assert values(found.result(SECONDS)) == [3.0]
        finally:
            pages.following[circle] = NO_PAGE  # ends a walk that does not check the mark
    reader.close()


def test_a_row_that_passed_to_another_series_is_no_answer_about_the_first_series(window):
    reader, span = opened(window), TimeRange(BEGIN, BEGIN + 10)
    own, other = KEYS.select(slice(1)), SeriesKeys(np.array([9], np.uint64), np.array([99], np.uint64))
    assert values(reader.read(own, span)) == []
    window.drop(own)
    window.adopt(other, SampleColumns(np.zeros(1, np.uint32), np.array([BEGIN]), np.ones(1)), BEGIN)
    assert reader.read(own, span) is None
    assert values(reader.read(other, span)) == [1.0]
    reader.close()


def test_a_closed_window_has_no_answer(window):
    reader = opened(window)
    before = reader.ended, reader.write_revision(KEYS)
    window.close()
    assert (before, reader.ended, reader.write_revision(KEYS)) == ((False, 1), True, None)
    reader.close()


def test_a_reader_sees_revisions(window):
    reader = opened(window)
    before, other = reader.revisions.get_revision([5]), reader.revisions.get_revision([6])
    window.revisions.raise_some([5])
    assert reader.revisions.get_revision([5]) == window.revisions.get_revision([5]) != before
    assert reader.revisions.get_revision([6]) == other
    window.revisions.raise_all()
    assert reader.revisions.get_revision([6]) == window.revisions.get_revision([6]) != other
    reader.close()


WRITER = """
import signal, sys
import numpy as np
from jobmeter.model.batch import SampleColumns, SeriesKeys
from jobmeter.store.window.window import Window
window = Window(10**6, 2**20)
keys = SeriesKeys(np.arange(2, dtype=np.uint64), np.arange(2, dtype=np.uint64))
window.adopt(keys, SampleColumns(np.arange(2, dtype=np.uint32), np.array([5, 5]), np.array([1.0, 2.0])), 0)
print(window.descriptor, flush=True)
signal.pause()
"""


def test_a_reader_notices_that_the_writer_was_killed_and_still_has_its_samples():
    keys = SeriesKeys(np.arange(2, dtype=np.uint64), np.arange(2, dtype=np.uint64))
    with subprocess.Popen([sys.executable, "-c", WRITER], stdout=subprocess.PIPE, text=True) as writer:
        number = "" if writer.stdout is None else writer.stdout.readline()
        file = os.open(f"/proc/{writer.pid}/fd/{number.strip()}", os.O_RDONLY)
        reader = SharedWindow.open(file)
        assert values(reader.read(keys, TimeRange(0, 10))) == [1.0, 2.0]
        assert not reader.ended
        writer.send_signal(signal.SIGKILL)
        wait_until(lambda: reader.ended)
        assert values(reader.read(keys, TimeRange(0, 10))) == [1.0, 2.0]
        reader.close()
    with pytest.raises(ProcessLookupError):
        SharedWindow.open(file)
    os.close(file)


def test_a_process_with_thousands_of_open_files_reads_the_window(window):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2 * FD_SETSIZE:
        pytest.skip(f"a process may open {hard} files here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2 * FD_SETSIZE), hard))
    others: list[int] = []
    try:
        others += [os.open(os.devnull, os.O_RDONLY) for _ in range(FD_SETSIZE)]
        reader = opened(window)
    finally:
        for file in others:
            os.close(file)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert reader.owner >= FD_SETSIZE
    assert not reader.ended
    window.close()
    assert reader.ended
    reader.close()


def test_the_window_of_another_version_is_refused(window, monkeypatch):
    monkeypatch.setattr(arenas, "read_interface", lambda: 1)
    with pytest.raises(ValueError, match="another version"):
        opened(window)


def test_a_reader_cannot_write_the_memory_and_no_process_can_truncate_it(window):
    reader = Arena.open(window.descriptor)
    with pytest.raises(ValueError, match="read-only"):
        reader.header[0] = 1
    with pytest.raises(PermissionError):
        os.ftruncate(window.descriptor, 4096)


@pytest.mark.parametrize("broken", ["memfd_create", "ftruncate"])
def test_a_system_without_shared_files_has_a_window_without_readers(monkeypatch, broken):
    def refuse(*_):
        raise OSError

    monkeypatch.setattr(os, broken, refuse)
    window = Window(LENGTH, 2**20)
    window.adopt(KEYS, SampleColumns.make_empty(), BEGIN)
    assert window.descriptor is None
    assert values(window.read(KEYS, TimeRange(BEGIN, BEGIN + 1))) == []


def test_an_empty_window_takes_little_memory_however_large_its_bound():
    window = Window(LENGTH, 2**31)
    window.adopt(KEYS, SampleColumns.make_empty(), BEGIN)
    assert window.descriptor is not None
    assert os.fstat(window.descriptor).st_blocks * 512 < 400_000
