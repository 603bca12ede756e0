"""Tests of the journal alone: an engine that is a dictionary, disks that fail, processes that die."""

import errno
import os
import shutil
import threading
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.unit.store.rows import LONG, in_table, rows_of

from jobmeter.errors import ThrottledError, UnavailableError
from jobmeter.model.batch import SeriesKeys
from jobmeter.model.series import Series
from jobmeter.model.time import TimeRange
from jobmeter.store.clickhouse.descriptors import Descriptors
from jobmeter.store.clickhouse.journal import Journal, JournalLimits
from jobmeter.store.clickhouse.record import RecordWriter
from jobmeter.store.clickhouse.rows import SampleRuns, list_descriptors
from jobmeter.store.clickhouse.segments import parse_lost_rows
from jobmeter.store.clickhouse.sort_dedupe import sort_dedupe

LAZY = JournalLimits(flush_rows=10**9, flush_seconds=10**6, retry_seconds=0.01)
SERIES = np.arange(1, 5, dtype=np.uint64)
KEYS = SeriesKeys(SERIES // 3, SERIES)
SPAN = TimeRange(0, 100)


class Engine:
    """Engine as a dictionary: the last insert of a sample wins."""

    def __init__(self):
        self.stored = {}
        self.inserts = []
        self.fails = None
        self.on_insert = lambda: None

    def __call__(self, group):
        rows = in_table(sort_dedupe(group))
        if self.fails is not None:
            # A failed insert may still store a part of its rows.
            self.stored.update({(series, time): value for _, series, time, value, _ in rows[: len(rows) // 2]})
            raise self.fails
        self.inserts.append(len(rows))
        self.stored.update({(series, time): value for _, series, time, value, _ in rows})
        self.on_insert()


class Names:
    """Catalog of an engine that can name all series except some."""

    def __init__(self, nameless=()):
        self._nameless = nameless
        self.until_ms = 0

    def find_nameless(self, ids):
        return np.isin(ids, np.array(self._nameless, np.uint64))

    def note_nameless(self, until_ms):
        self.until_ms = until_ms


class MortalJournal(Journal):
    """Journal whose process can be killed: its folder stays as it is at that moment."""

    def __init__(self, folder, engine, limits):
        self.folder, self.alive = folder, True
        super().__init__(folder, lambda group: engine(group) if self.alive else None, limits)

    def die(self):
        left = {path: path.read_bytes() for path in self.folder.iterdir()}
        self.alive = False
        self.close()
        for path, content in left.items():
            path.write_bytes(content)


def open_journal(folder, engine, limits=LAZY, prepare=lambda rows: None, names=None):
    journal = MortalJournal(folder / "journal", engine, limits)
    journal.recover(prepare, names or Names())
    return journal


def visible(journal, engine):
    """Return the samples that a reader finds in the journal and the engine."""
    found = journal.get_pending().select_samples(KEYS, SPAN)
    waiting = zip(found.index.tolist(), found.time.tolist(), found.value.tolist(), strict=True)
    return {**engine.stored, **{(int(SERIES[index]), time): value for index, time, value in waiting}}


def files(folder):
    return sorted(path.name for path in (folder / "journal").iterdir())


def segments(folder):
    """Return the segments of a folder, oldest first."""
    return sorted((folder / "journal").glob("*.journal"))


@pytest.fixture
def engine():
    return Engine()


def test_what_is_stored_waits_and_is_inserted_at_once(tmp_path, engine):
    journal = open_journal(tmp_path, engine)
    journal.append([rows_of([(1, 10, 1.0), (2, 10, 2.0)])])
    journal.append([rows_of([(1, 10, 3.0)])])
    assert engine.inserts == []
    assert visible(journal, engine) == {(1, 10): 3.0, (2, 10): 2.0}
    disk = sum(path.stat().st_size for path in segments(tmp_path))
    waiting = {"rows": 3, "bytes": 3 * 16 + 3 * 24, "series": 0, "disk": disk}
    assert journal.read_statistics() == {**waiting, "flushes": 0, "failures": 0}
    journal.flush(10)
    assert engine.inserts == []
    journal.flush(11)
    assert engine.inserts == [2]
    assert engine.stored == visible(journal, engine) == {(1, 10): 3.0, (2, 10): 2.0}
    assert files(tmp_path) == []
    journal.flush()
    assert journal.read_statistics() == {**dict.fromkeys(waiting, 0), "flushes": 1, "failures": 0}
    journal.append([rows_of([(3, 1, 1.0)])])
    journal.close()
    assert engine.stored[3, 1] == 1.0
    assert files(tmp_path) == []
    journal.close()
    with pytest.raises(UnavailableError, match="closed"):
        journal.append([rows_of([(3, 1, 1.0)])])


@pytest.mark.parametrize("limits", [{"flush_rows": 2}, {"flush_seconds": 0.05}])
def test_rows_go_to_the_engine_by_themselves(tmp_path, engine, limits):
    arrived = threading.Event()

    def insert(group):
        engine(group)
        arrived.set()

    journal = open_journal(tmp_path, insert, JournalLimits(**{"flush_rows": 10**9, "flush_seconds": 10**6} | limits))
    journal.append([rows_of([(1, 10, 1.0), (2, 10, 2.0)])])
    assert arrived.wait(30)
    journal.close()
    assert engine.inserts == [2]


def test_a_group_is_one_record_and_one_sync(tmp_path, engine, monkeypatch):
    journal = open_journal(tmp_path, engine)
    syncs: list[int] = []
    monkeypatch.setattr(os, "fdatasync", syncs.append)
    journal.append([rows_of([(1, at, 1.0)]) for at in range(9)])
    assert len(syncs) == 1
    assert len(visible(journal, engine)) == 9
    journal.die()


def test_a_process_that_dies_loses_nothing(tmp_path, engine):
    journal = open_journal(tmp_path, engine)
    journal.append([rows_of([(1, 10, 1.0)])])
    journal.append([rows_of([(1, 10, 2.0), (2, 5, 1.0)])])
    journal.die()
    assert engine.stored == {}
    prepared = []
    again = open_journal(tmp_path, engine, prepare=lambda rows: prepared.append(len(rows)))
    assert prepared == [1, 2]
    assert engine.stored == {(1, 10): 2.0, (2, 5): 1.0}
    assert engine.inserts == [2]
    assert files(tmp_path) == []
    again.die()


def test_rows_that_are_inserted_again_replace_nothing_newer(tmp_path, engine):
    """The process dies between the insert and the end of its segment."""
    left = tmp_path / "left"

    def insert(group):
        engine(group)
        shutil.copytree(tmp_path / "journal", left / "journal")

    journal = open_journal(tmp_path, insert)
    journal.append([rows_of([(1, 10, 1.0)])])
    journal.flush()
    journal.append([rows_of([(1, 10, 2.0)])])
    journal.die()
    shutil.copytree(tmp_path / "journal", left / "journal", dirs_exist_ok=True)
    again = open_journal(left, engine)
    assert engine.stored == {(1, 10): 2.0}
    again.die()


def test_nothing_newer_is_inserted_while_a_segment_cannot_be_taken_away(tmp_path, engine, monkeypatch):
    journal = open_journal(tmp_path, engine)
    journal.append([rows_of([(1, 10, 1.0)])])

    def refuse(path, **_):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(UnavailableError, match="read-only"):
        journal.flush()
    assert engine.stored == {(1, 10): 1.0}
    assert len(segments(tmp_path)) == 1
    journal.append([rows_of([(1, 10, 2.0)])])
    with pytest.raises(UnavailableError, match="read-only"):
        journal.flush()
    assert engine.stored == {(1, 10): 1.0}
    assert visible(journal, engine) == {(1, 10): 2.0}
    monkeypatch.undo()
    journal.flush()
    assert engine.stored == {(1, 10): 2.0}
    assert files(tmp_path) == []
    journal.die()


def test_a_torn_end_was_never_acknowledged(tmp_path, engine, caplog):
    journal = open_journal(tmp_path, engine)
    journal.append([rows_of([(1, 10, 1.0)])])
    (segment,) = segments(tmp_path)
    end = segment.with_suffix(".end").read_bytes()
    journal.append([rows_of([(1, 11, 1.0)])])
    journal.die()
    segment.write_bytes(segment.read_bytes()[:-100])
    segment.with_suffix(".end").write_bytes(end)
    again = open_journal(tmp_path, engine)
    assert engine.stored == {(1, 10): 1.0}
    assert "a write was cut off before it was acknowledged" in caplog.text
    assert files(tmp_path) == []
    again.append([rows_of([(2, 1, 1.0)])])
    again.die()
    assert [path.name[:16] for path in segments(tmp_path)] == [f"{2:016d}"]


def test_acknowledged_samples_that_a_disk_cut_off_are_counted(tmp_path, engine, caplog):
    journal = open_journal(tmp_path, engine)
    for at in range(6):
        journal.append([rows_of([(1, 10 * at + more, 1.0) for more in range(10)])])
    journal.die()
    (segment,) = segments(tmp_path)
    segment.write_bytes(segment.read_bytes()[: segment.stat().st_size // 2 - 100])
    open_journal(tmp_path, engine).die()
    assert sorted(engine.stored) == [(1, at) for at in range(20)]
    assert "40 samples that were acknowledged are lost" in caplog.text
    assert [parse_lost_rows(name) for name in files(tmp_path)] == [(40, False)]


def test_a_segment_that_is_gone_is_counted(tmp_path, engine, caplog):
    journal = open_journal(tmp_path, engine)
    journal.append([rows_of([(1, at, 1.0) for at in range(7)])])
    journal.die()
    segments(tmp_path)[0].unlink()
    open_journal(tmp_path, engine).die()
    assert "7 samples that were acknowledged are lost" in caplog.text
    assert [parse_lost_rows(name) for name in files(tmp_path)] == [(7, False)]
    caplog.clear()
    open_journal(tmp_path, engine).die()
    assert caplog.text == ""


def test_damage_is_said_in_samples_and_the_file_stays(tmp_path, engine, caplog):
    journal = open_journal(tmp_path, engine)
    for at in (10, 11, 12):
        journal.append([rows_of([(1, at, 1.0)])])
    journal.die()
    (segment,) = segments(tmp_path)
    text = bytearray(segment.read_bytes())
    text[len(text) // 2] ^= 1
    segment.write_bytes(text)
    again = open_journal(tmp_path, engine)
    assert engine.stored == {(1, 10): 1.0, (1, 12): 1.0}
    assert "1 samples that were acknowledged are lost" in caplog.text
    (stored,) = (tmp_path / "journal").iterdir()
    assert stored.name == f"{segment.stem}.lost-1.damaged"
    assert parse_lost_rows(stored.name) == (1, False)
    assert stored.read_bytes() == bytes(text)
    again.die()
    open_journal(tmp_path, engine).die()


def test_damage_that_costs_nothing_is_logged_alone(tmp_path, engine, caplog):
    journal = open_journal(tmp_path, engine)
    journal.append([rows_of([(1, 10, 1.0)])])
    journal.die()
    (segment,) = segments(tmp_path)
    text = bytearray(segment.read_bytes())
    text[20] ^= 1
    segment.write_bytes(text)
    open_journal(tmp_path, engine).die()
    assert engine.stored == {(1, 10): 1.0}
    assert "every sample in it was recovered" in caplog.text
    assert files(tmp_path) == []


def test_samples_whose_series_lost_their_names_are_counted_and_remembered(tmp_path, engine, caplog):
    journal = open_journal(tmp_path, engine)
    journal.append([rows_of([(1, 10, 1.0), (2, 10, 1.0)])])
    journal.append([rows_of([(3, 11, 1.0), (3, 12, 1.0), (4, 13, 1.0)])])
    journal.die()
    (segment,) = segments(tmp_path)
    text = bytearray(segment.read_bytes())
    text[100] ^= 1
    segment.write_bytes(text)
    names = Names(nameless=[2, 3])
    open_journal(tmp_path, engine, names=names).die()
    assert sorted(engine.stored) == [(3, 11), (3, 12), (4, 13)]
    assert [parse_lost_rows(name) for name in files(tmp_path)] == [(4, True)]
    assert names.until_ms == 13
    assert "2 of these samples are stored, but the names of their series are lost" in caplog.text


SENDERS = [np.array(own, np.uint64) for own in ([1, 2], [3], [2, 4], [5, 6, 7, 8], [9])]
"""Series of each sender; a series may be in several lists."""
COMMITS = st.lists(
    st.lists(st.tuples(st.integers(0, 4), st.integers(1, 12), st.booleans()), min_size=1, max_size=3),
    min_size=1,
    max_size=12,
)
"""Commits of some senders: samples per series, and True for a sender's list that comes as a new object."""
DAMAGES = st.lists(
    st.tuples(
        st.sampled_from(["flip", "zero", "cut", "overwrite", "insert", "remove", "end"]),
        st.integers(0, 2**20),
        st.integers(0, 2**20),
        st.integers(1, 256),
    ),
    max_size=3,
)


def damaged(content, kind, place, other, size):
    """Return a file's content after damage of that kind."""
    place, other = place % max(1, len(content)), other % max(1, len(content))
    block = content[other : other + size]
    rest = {
        "flip": bytes(byte ^ 1 << size % 8 for byte in content[place : place + 1]) + content[place + 1 :],
        "zero": bytes(len(content[place : place + size])) + content[place + size :],
        "cut": b"",
        "overwrite": block + content[place + len(block) :],
        "insert": block + content[place:],
        "remove": content[place + size :],
    }
    return content[:place] + rest[kind]


@settings(max_examples=60, deadline=None)
@given(commits=COMMITS, damages=DAMAGES, apart=st.sampled_from([256, 2**16]), seals=st.sets(st.integers(0, 11)))
def test_whatever_happens_to_the_files_all_else_is_found_and_what_is_lost_is_counted(commits, damages, apart, seals):
    with TemporaryDirectory() as name:
        folder, engine = Path(name), Engine()
        journal = open_journal(folder, engine)
        journal.segments.writer = RecordWriter(apart)
        keys = [SeriesKeys(own // 3, own) for own in SENDERS]
        described, clock = set[int](), 0
        records = list[tuple[Path, int, list[tuple[int, int]]]]()  # segment, its end, its samples
        for number, commit in enumerate(commits):
            if number in seals:
                journal.segments.seal()  # the first step of a flush, which the engine does not finish
            group, samples = [], []
            for sender, count, fresh in commit:
                own = SeriesKeys(*(column.copy() for column in (keys[sender].job, keys[sender].series)))
                own = own if fresh else keys[sender]
                time = np.tile(np.arange(clock, clock + count), len(own))
                clock += count
                new = [one for one in own.series.tolist() if one not in described]
                described.update(new)
                rows = SampleRuns(
                    own, np.full(len(own), count), time, time / 4, LONG, None, names_of(new) if new else None
                )
                group.append(rows)
                samples += [(one, at) for one in own.series.tolist() for at in range(clock - count, clock)]
            journal.append(group)
            segment = segments(folder)[-1]
            records.append((segment, segment.stat().st_size, samples))
        journal.die()

        originals = {path: path.read_bytes() for path in segments(folder)}
        for kind, place, other, size in damages:
            path = segments(folder)[place % len(originals)]
            if kind == "end":
                path.with_suffix(".end").write_bytes(b"damaged")
            else:
                path.write_bytes(damaged(path.read_bytes(), kind, place, other, size))
        left = {path: path.read_bytes() for path in originals}

        inserted = []

        def insert(group):
            inserted.extend(group)
            engine(group)

        open_journal(folder, insert).die()
        every = {sample for _, _, samples in records for sample in samples}
        missing = every - set(engine.stored)
        assert all(value == time / 4 for (_, time), value in engine.stored.items())
        assert set(engine.stored) <= every
        # Small records are self-contained. Large ones depend on others, but copies survive damage to one place.
        if apart == 2**16 or sum(kind != "end" for kind, *_ in damages) <= 1:
            begins = dict.fromkeys(originals, 0)
            whole = set[tuple[int, int]]()
            for path, end, samples in records:
                whole.update(samples if originals[path][begins[path] : end] in left[path] else ())
                begins[path] = end
            assert whole <= set(engine.stored)
            named = {one for rows in list_descriptors(inserted) for one in rows.ids.tolist()}
            assert {series for series, _ in engine.stored} <= named
        told = [lost for name in files(folder) if (lost := parse_lost_rows(name)) is not None]
        # Without its end file a truncated segment looks like one whose last write was truncated.
        if not any(kind == "end" for kind, *_ in damages):
            assert not any(one.at_most for one in told)
            assert len(missing) == sum(one.rows for one in told)


def names_of(series):
    ids = np.array(series, np.uint64)
    own = [Series("app.number", job=f"job-{one}") for one in series]
    return Descriptors.from_series(own, SeriesKeys(ids // 3, ids), np.zeros(len(ids), np.int64), 30)


def test_a_disk_that_fails_keeps_nothing_and_promises_nothing(tmp_path, engine, monkeypatch):
    journal = open_journal(tmp_path, engine)
    journal.append([rows_of([(1, 10, 1.0)])])
    write = os.write

    def half(file, text):
        if len(text) > 40:
            return write(file, text[:40])
        raise OSError(errno.ENOSPC, "No space left on device")

    def no_sync(file):
        raise OSError(errno.EIO, "Input/output error")

    for name, failure in (("write", half), ("fdatasync", no_sync)):
        with monkeypatch.context() as patch:
            patch.setattr(os, name, failure)
            for _ in range(2):
                with pytest.raises(UnavailableError, match="cannot store samples now"):
                    journal.append([rows_of([(1, 10, 2.0)])])
        assert visible(journal, engine)[1, 10] == 1.0
        journal.append([rows_of([(2, 10, 1.0)])])
    journal.die()
    again = open_journal(tmp_path, engine)
    assert engine.stored == {(1, 10): 1.0, (2, 10): 1.0}
    again.die()


def test_an_engine_that_fails_is_tried_again(tmp_path, engine, caplog):
    engine.fails = UnavailableError("the telemetry engine cannot store samples now: the disk is full")
    limits = JournalLimits(flush_rows=1, most_rows=3, retry_seconds=0.01, wait_seconds=60)
    journal = open_journal(tmp_path, engine, limits)
    journal.append([rows_of([(1, 10, 1.0), (1, 11, 1.0)])])
    with pytest.raises(UnavailableError, match="the disk is full"):
        journal.flush()
    assert visible(journal, engine) == {(1, 10): 1.0, (1, 11): 1.0}
    with pytest.raises(UnavailableError, match="the disk is full"):
        journal.append([rows_of([(2, 1, 1.0), (2, 2, 1.0)])])
    assert journal.read_statistics()["rows"] == 2
    assert journal.read_statistics()["failures"] >= 1
    engine.fails = None
    journal.flush()
    journal.append([rows_of([(2, 1, 1.0), (2, 2, 1.0)])])
    journal.close()
    assert len(engine.stored) == 4


def test_a_journal_begins_without_its_engine(tmp_path, engine):
    journal = open_journal(tmp_path, engine)
    journal.append([rows_of([(1, 10, 1.0)])])
    journal.die()
    engine.fails = UnavailableError("no")
    again = open_journal(tmp_path, engine)
    assert visible(again, engine)[1, 10] == 1.0
    again.append([rows_of([(1, 10, 2.0)])])
    engine.fails = None
    again.close()
    assert engine.stored == {(1, 10): 2.0}


@pytest.mark.parametrize("bound", [{"most_rows": 3}, {"most_bytes": 100}])
@pytest.mark.parametrize("wait_seconds", [0.05, 60])
def test_a_slow_engine_makes_writers_wait_and_then_turns_them_away(tmp_path, engine, bound, wait_seconds):
    going_on, go = threading.Event(), threading.Event()

    def slow(group):
        going_on.set()
        go.wait(60)
        engine(group)

    journal = open_journal(tmp_path, slow, JournalLimits(flush_rows=1, **bound, wait_seconds=wait_seconds))
    journal.append([rows_of([(1, 10, 1.0), (1, 11, 1.0)])])
    assert going_on.wait(30)
    refusals = []

    def write():
        try:
            journal.append([rows_of([(2, 1, 1.0), (2, 2, 1.0)])])
        except ThrottledError as refused:
            refusals.append(refused.retry_after_ms > 0)

    waiting = threading.Thread(target=write)
    waiting.start()
    if wait_seconds < 1:
        waiting.join(60)
    go.set()
    waiting.join(60)
    journal.close()
    assert (len(engine.stored), refusals) == ((2, [True]) if wait_seconds < 1 else (4, []))


class Lives(RuleBasedStateMachine):
    """Any order of commits, flushes, failures and deaths: acknowledged samples are exactly those that readers find."""

    def __init__(self):
        super().__init__()
        self.folder = Path(mkdtemp())
        self.engine = Engine()
        self.stored = {}
        self.journal = open_journal(self.folder, self.engine)

    @rule(rows=st.lists(st.tuples(st.integers(1, 4), st.integers(0, 5), st.integers(0, 99).map(float)), min_size=1))
    def commit(self, rows):
        self.journal.append([rows_of(rows)])
        self.stored.update({(series, time): value for series, time, value in rows})

    @rule(time=st.integers(0, 5), values=st.lists(st.integers(0, 99).map(float), min_size=4, max_size=4))
    def commit_the_same_series_again(self, time, values):
        self.journal.append([SampleRuns(KEYS, np.ones(4, np.int64), np.full(4, time), np.array(values), LONG)])
        self.stored.update({(series, time): value for series, value in zip(SERIES.tolist(), values, strict=True)})

    @rule(rows=st.lists(st.tuples(st.integers(1, 4), st.integers(0, 5), st.just(-1.0)), min_size=1), sync=st.booleans())
    def commit_to_a_full_disk(self, rows, sync):
        def refuse(*_):
            raise OSError(errno.ENOSPC, "No space left on device")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "fdatasync" if sync else "write", refuse)
            for group in (
                rows_of(rows),
                SampleRuns(KEYS, np.ones(4, np.int64), np.zeros(4, np.int64), np.full(4, -1.0), LONG),
            ):
                with pytest.raises(UnavailableError):
                    self.journal.append([group])

    @rule()
    def flush(self):
        self.engine.fails = None
        self.journal.flush()
        assert self.engine.stored == self.stored

    @rule()
    def fail(self):
        self.engine.fails = UnavailableError("no")

    @rule()
    def flush_and_leave_the_segment(self):
        def refuse(path, **_):
            raise OSError(errno.EROFS, "Read-only file system")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Path, "unlink", refuse)
            with suppress(UnavailableError):
                self.journal.flush()

    @precondition(lambda self: self.engine.fails is not None)
    @rule()
    def try_to_flush(self):
        if self.journal.read_statistics()["rows"]:
            with pytest.raises(UnavailableError):
                self.journal.flush()

    @rule(torn=st.binary(max_size=30))
    def die(self, torn):
        self.journal.die()
        left = segments(self.folder)
        if left:
            with left[-1].open("ab") as file:
                file.write(torn)
        self.journal = open_journal(self.folder, self.engine)

    @invariant()
    def acknowledged_samples_are_visible(self):
        assert visible(self.journal, self.engine) == self.stored

    def teardown(self):
        self.engine.fails = None
        self.journal.close()
        assert self.engine.stored == self.stored
        assert files(self.folder) == []
        shutil.rmtree(self.folder)


TestLives = Lives.TestCase
TestLives.settings = settings(max_examples=60, stateful_step_count=25)
