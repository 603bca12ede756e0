"""Tests of columns in memory against plain Python: search, order, pages, and the registry's jobs."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.support.waiting import wait_until

from jobmeter.errors import UnavailableError
from jobmeter.model.job import Condition, JobFilter, JobState, Operator
from jobmeter.model.record import JobRecord, Records, ReplicaRecord
from jobmeter.model.retention import Retention
from jobmeter.model.time import TimeRange
from jobmeter.registry import changes, schema
from jobmeter.registry.base import Registry
from jobmeter.registry.columns import column_store, dictionary_column, fields, names, select, table
from jobmeter.registry.columns.dictionary_column import DictionaryColumn
from jobmeter.registry.columns.names import NameColumn
from jobmeter.registry.columns.text_arena import TextArena
from jobmeter.registry.database import Database
from jobmeter.registry.stored import Observation

NOW = 1_790_000_000_000
texts = st.lists(st.one_of(st.text("ab-ßÄ1", max_size=6), st.text(max_size=4)).filter(str.isprintable), max_size=40)
parts = st.one_of(st.text("ab-ßÄ1", max_size=4), st.text(max_size=2).filter(str.isprintable))


@given(stored=texts, part=parts)
@example(stored=["ab", "c"], part="bc")
@example(stored=["aaa"] * 40, part="a")
def test_a_heap_finds_the_texts_that_hold_a_part(stored: list[str], part: str) -> None:
    heap = TextArena()
    for text in stored:
        heap.append(text.encode())
    assert heap.mark_holding(part.encode()).tolist() == [part in text for text in stored]
    assert [heap[number].decode() for number in range(len(heap))] == stored
    assert heap.get_texts(np.arange(len(heap), dtype=np.int32)) == stored


@settings(max_examples=60)
@given(batches=st.lists(texts, max_size=6), part=parts)
def test_names_stand_in_the_order_of_bytes_however_they_come(batches: list[list[str]], part: str) -> None:
    stored = NameColumn()
    rows: list[str] = []
    for number, batch in enumerate(batches):
        if number:
            numbers = stored.add(batch)
        else:
            numbers = {text: stored.take(text) for text in batch}
            stored.end_load()
        for text in batch:
            stored.set(len(rows), numbers[text])
            rows.append(text)
    count = len(rows)
    assert stored.get_row_texts(np.arange(count, dtype=np.int32), count) == rows
    if count:
        ranks = stored.rank_numbers()[stored.get_numbers(count)].tolist()
        places = {text: place for place, text in enumerate(sorted(set(rows)))}
        ordered = {rank: place for place, rank in enumerate(sorted(set(ranks)))}
        assert [ordered[rank] for rank in ranks] == [places[text] for text in rows]
        folded = part.casefold()
        assert stored.mark_holding([folded], count).tolist() == [folded in text.casefold() for text in rows]
        assert stored.mark_among([part], count).tolist() == [text == part for text in rows]


def test_ids_that_count_up_between_two_others_find_room(monkeypatch: pytest.MonkeyPatch) -> None:
    # Leave room for few entries, so that all of them are redistributed repeatedly.
    monkeypatch.setattr(names, "_STEP", 8)
    monkeypatch.setattr(names, "_TOP", 2**12)
    stored = NameColumn()
    for text in ("a", "z"):
        stored.take(text)
    stored.end_load()
    counted = [f"job-{number:05}" for number in range(300)]
    for start in range(0, 300, 7):
        stored.add(reversed(counted[start : start + 7]))
    ranks = [int(stored.rank_numbers()[stored.find_number(text) or 0]) for text in ("a", *counted, "z")]
    assert ranks == sorted(set(ranks))


@given(stored=st.lists(st.sampled_from(("", "Größe", "gross", "a", "B", "c")), max_size=30), part=parts)
def test_few_texts_and_many_are_searched_alike(stored: list[str], part: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for few in (0, 5_000):
            patch.setattr(dictionary_column, "_FEW", few)
            column = DictionaryColumn("")
            for row, text in enumerate(stored):
                column.set(row, text)
            found = column.mark_holding([part.casefold()], len(stored))
            assert found.tolist() == [part.casefold() in text.casefold() for text in stored]


@settings(max_examples=80, deadline=None)
@given(data=st.data(), seed=st.integers(0, 99), spread=st.sampled_from((1, 3, 1000, 2**40)), descending=st.booleans())
def test_a_page_is_a_slice_of_what_is_sorted(data: st.DataObject, seed: int, spread: int, *, descending: bool) -> None:
    draw = np.random.default_rng(seed)
    count = data.draw(st.sampled_from((0, 1, 50, 3000)))
    first, second = draw.integers(0, spread, count), draw.integers(0, 4, count)
    rows = np.flatnonzero(draw.random(count) < 0.8).astype(np.int32)
    offset, limit = data.draw(st.integers(0, count + 2)), data.draw(st.integers(0, 200))
    keys = [lambda rows: first[rows], lambda rows: second[rows], lambda rows: rows.astype(np.int64)]
    expected = sorted(rows.tolist(), key=lambda row: (first[row], second[row], row), reverse=descending)
    with pytest.MonkeyPatch.context() as patch:
        # Use the paths for many rows: a sample, and no complete sort.
        patch.setattr(select, "_FEW", 8)
        patch.setattr(select, "_MANY", data.draw(st.sampled_from((100, 10**9))))
        patch.setattr(select, "_SAMPLE", 50)
        patch.setattr(select, "_MARGIN", 3)
        found = select.cut_page(rows, keys, descending=descending, offset=offset, limit=limit)
    assert found.tolist() == expected[offset : offset + limit]


def observation(job: str, last_ms: int, project: str = "p", replica: str = "") -> Observation:
    return Observation(
        project=project, job=job, replica=replica, attempt=0, cluster="", node="n" if replica else "", device="",
        first_ms=last_ms - 1000, last_ms=last_ms,
    )  # fmt: skip


@pytest.fixture
def two(url: str) -> Iterator[tuple[Registry, Registry]]:
    """Open two servers of one registry, both with columns of every job."""
    both = Registry(Database(url), Retention()), Registry(Database(url), Retention())
    both[0].record("p", Records(jobs=[JobRecord(job_id="first")]), NOW)
    for registry in both:
        assert registry.list_jobs(JobFilter(), NOW).total == 1
    yield both
    for registry in both:
        registry.close()


STEPS = st.one_of(
    st.tuples(
        st.just("record"),
        st.builds(
            JobRecord,
            job_id=st.sampled_from(("a", "B", "c1", "c2", "ä")),
            name=st.sampled_from((None, "", "Größe", "train")),
            user=st.sampled_from((None, "u1", "u2")),
            state=st.sampled_from((None, *JobState)),
            created=st.sampled_from((None, NOW - 50_000, NOW - 70_000)),
            labels=st.sampled_from((None, {}, {"team": "x"}, {"team": "y", "q": '"'})),
            extra=st.sampled_from((None, {"d": {"k": 1}}, {"d": {"k": ["1", "Zwei"]}}, {"d": {"k": None}})),
            replicas=st.sampled_from(([], [ReplicaRecord(name="w", node="n1")])),
        ),
    ),
    st.tuples(st.just("observe"), st.tuples(st.sampled_from(("a", "c1", "new")), st.integers(0, 10))),
    st.tuples(st.just("delete"), st.sampled_from(("a", "B", "c1", "first"))),
)
QUESTIONS = (
    JobFilter(),
    *(JobFilter(sort=sort, descending=False) for sort in ("state", "duration", "name", "end", "user", "updated")),
    JobFilter(states=frozenset({JobState.RUNNING, JobState.FAILED})),
    JobFilter(name_contains="GRÖSSE"),
    JobFilter(users=frozenset({"u1", "none"}), offset=1, limit=2),
    *(
        JobFilter(conditions=(Condition(field, operator, values),))
        for field, operator, values in (
            ("labels.team", Operator.IN, ("x",)),
            ("labels.team", Operator.NOT_IN, ("x", "none")),
            ("labels.q", Operator.CONTAINS, ('"',)),
            ("extra.d.k", Operator.IN, ("1",)),
            ("extra.d.k", Operator.CONTAINS, ("ZWEI",)),
            ("extra.d.k", Operator.BETWEEN, (0, None)),
            ("node", Operator.IN, ("n1",)),
            ("node", Operator.NOT_IN, ("n1",)),
            ("id", Operator.CONTAINS, ("C",)),
        )
    ),
)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(st.tuples(st.booleans(), STEPS), max_size=12))
def test_each_server_sees_what_both_write_at_once(
    two: tuple[Registry, Registry], url: str, steps: list[tuple[bool, tuple[str, object]]]
) -> None:
    for number, (side, (_verb, what)) in enumerate(steps):
        registry = two[side]
        project = "pq"[number % 2]
        if isinstance(what, JobRecord):
            registry.record(project, Records(jobs=[what]), NOW - number)
        elif isinstance(what, tuple):
            registry.observe([observation(what[0], NOW - what[1] * 60_000, project)], NOW)
        else:
            registry.delete_job(project, str(what))
        if number % 3 == 2 or number == len(steps) - 1:
            # A new server reads every job as stored.
            with closing(Registry(Database(url), Retention())) as fresh:
                for question in QUESTIONS:
                    expected = fresh.list_jobs(question, NOW)
                    assert [one.list_jobs(question, NOW) for one in two] == [expected, expected], question


def test_the_jobs_of_a_group_are_found_by_their_life(two: tuple[Registry, Registry]) -> None:
    first, second = two
    life = {"over": (1000, 2000), "within": (3000, 4000), "on": (1500, None), "later": (9000, None)}
    jobs = [JobRecord(job_id=job, resource_group="g", start=start, end=end) for job, (start, end) in life.items()]
    first.record("p", Records(jobs=jobs), NOW)
    for asked, found in ((None, ["on", "within"]), ("p", ["on", "within"]), ("q", [])):
        projects = None if asked is None else frozenset(asked)
        views = second.group_jobs(projects, "g", TimeRange(2500, 5000), NOW)
        assert [view.job.id for view in views] == found


def test_a_reader_behind_the_reported_changes_reads_every_job_again(two: tuple[Registry, Registry]) -> None:
    first = two[0]
    first.record("p", Records(jobs=[JobRecord(job_id="x")]), NOW)
    assert first.list_jobs(JobFilter(), NOW).total == 2
    database = first.database
    with database.write() as connection:
        changes.notify(connection, recorded=[("p", "x")])
        newest = sa.select(sa.func.max(schema.job_changes.c.id)).scalar_subquery()
        connection.execute(sa.delete(schema.job_changes).where(schema.job_changes.c.id < newest))
        connection.execute(sa.delete(schema.jobs).where(schema.jobs.c.id == "x"))
    for registry in two:
        assert registry.list_jobs(JobFilter(), NOW).total == 1


def test_a_copy_that_is_brought_back_is_read_by_every_server(two: tuple[Registry, Registry], tmp_path: Path) -> None:
    two[0].backup(tmp_path / "copy")
    assert two[0].delete_job("p", "first")
    assert [one.list_jobs(JobFilter(), NOW).total for one in two] == [0, 0]
    two[1].restore(tmp_path / "copy")
    assert [one.list_jobs(JobFilter(), NOW).total for one in two] == [1, 1]


def test_old_words_of_changes_go(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "KEEP_SECONDS", -10)
    for number in range(80):
        registry.record("p", Records(jobs=[JobRecord(job_id=f"j{number}")]), NOW)
    with registry.database.read() as connection:
        left = connection.scalar(sa.select(sa.func.count()).select_from(schema.job_changes)) or 0
    assert 0 < left <= 33


def test_what_columns_do_not_have_is_read_of_the_jobs_in_question(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fields, "MOST_FIELDS", 2)
    monkeypatch.setattr(fields, "MOST_BYTES", 12)
    monkeypatch.setattr(table, "MOST_LONG_BYTES", 20)
    registry = Registry(Database(url), Retention())
    jobs = [
        JobRecord(
            job_id=f"j{number}",
            command=f"python {number}.py",
            labels={"few": str(number % 2), "long": "x" * number, f"other{number}": "y"},
        )
        for number in range(20)
    ]
    registry.record("p", Records(jobs=jobs), NOW)
    for field, operator, value, count in (
        ("labels.few", Operator.IN, "1", 10),
        ("labels.long", Operator.IN, "x" * 19, 1),
        ("labels.other7", Operator.IN, "y", 1),
        ("labels.other7", Operator.NOT_IN, "y", 19),
        ("command", Operator.CONTAINS, "PYTHON 1", 11),
    ):
        assert registry.list_jobs(JobFilter(conditions=(Condition(field, operator, (value,)),)), NOW).total == count, (
            field
        )
    registry.close()


def test_a_part_of_a_name_may_have_a_line_break_and_goes_no_further(registry: Registry) -> None:
    registry.record("p", Records(jobs=[JobRecord(job_id="j", name="two\nLINES"), JobRecord(job_id="k")]), NOW)
    for part, total in (("O\nl", 1), ("lines\nj", 0), ("\nj", 0)):
        assert registry.list_jobs(JobFilter(name_contains=part), NOW).total == total


def test_texts_that_no_job_has_any_more_are_forgotten(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "_SPARE", 5)
    loaded, load = [], table.JobTable.load

    def note(own: table.JobTable, *arguments: Any) -> None:
        load(own, *arguments)
        loaded.append(own)

    monkeypatch.setattr(table.JobTable, "load", note)
    with closing(Registry(Database(url), Retention())) as registry:
        for number in range(60):
            registry.record("p", Records(jobs=[JobRecord(job_id="j", user=f"user-{number}")]), NOW)
            assert registry.list_jobs(JobFilter(users=frozenset({f"user-{number}"})), NOW).total == 1

        wait_until(lambda: len({id(one) for one in loaded}) > 1, "columns that were read anew")
        assert len(loaded[-1].texts["user"].values) < 30
        assert registry.list_jobs(JobFilter(users=frozenset({"user-59"})), NOW).total == 1


def test_a_bug_in_bringing_columns_up_to_date_is_reported_and_leaves_none_that_are_half_true(
    two: tuple[Registry, Registry], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(table.JobTable, "drop", lambda *_: 1 // 0)
        two[0].record("p", Records(jobs=[JobRecord(job_id="second", user="u")]), NOW)
        wait_until(lambda: "the columns of jobs are not up to date" in caplog.text, "a line in the log")
    two[0].delete_job("p", "second")
    assert [one.list_jobs(JobFilter(users=frozenset({"u"})), NOW).total for one in two] == [0, 0]
    assert [one.list_jobs(JobFilter(), NOW).total for one in two] == [1, 1]


def test_a_listing_does_not_wait_for_ever_while_every_job_is_read(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    reading, go_on = threading.Event(), threading.Event()
    load = table.JobTable.load

    def slow(*arguments: Any) -> None:
        reading.set()
        assert go_on.wait(60)
        load(*arguments)

    monkeypatch.setattr(table.JobTable, "load", slow)
    monkeypatch.setattr(column_store, "WAIT_SECONDS", 0.01)
    with closing(Registry(Database(url), Retention())) as registry, ThreadPoolExecutor(1) as pool:
        registry.record("p", Records(jobs=[JobRecord(job_id="j")]), NOW)
        first = pool.submit(registry.list_jobs, JobFilter(), NOW)
        assert reading.wait(60)
        with pytest.raises(UnavailableError, match="still being read"):
            registry.list_jobs(JobFilter(), NOW)
        go_on.set()
        assert first.result(60).total == 1
        monkeypatch.setattr(column_store, "WAIT_SECONDS", 60)
        assert registry.list_jobs(JobFilter(), NOW).total == 1


def test_a_server_that_starts_has_every_job_read_before_a_listing(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read, load = threading.Event(), table.JobTable.load

    def note(*arguments: Any) -> None:
        load(*arguments)
        read.set()

    monkeypatch.setattr(table.JobTable, "load", note)
    with closing(Registry(Database(url), Retention())) as registry:
        registry.record("p", Records(jobs=[JobRecord(job_id="j")]), NOW)
        registry.prepare()
        assert read.wait(60)
        assert registry.list_jobs(JobFilter(), NOW).total == 1


@pytest.mark.parametrize("field", ["node", "extra"])
def test_a_listing_that_has_to_look_something_up_holds_up_no_other_and_answers_as_of_its_own_moment(
    url: str, field: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looking, go_on = threading.Event(), threading.Event()
    slowed = "_find_related" if field == "node" else "_read_texts"
    original = getattr(column_store, slowed)

    def slow(*arguments: Any) -> Any:
        looking.set()
        assert go_on.wait(60)
        return original(*arguments)

    where = Condition("node", Operator.IN, ("n1",))
    if field == "extra":
        # A value that is too long for a column.
        where = Condition("extra.dialect.long", Operator.IN, ("x" * 1_000,))
        monkeypatch.setattr(fields, "MOST_BYTES", 100)
    question = JobFilter(conditions=(where,), sort="name", descending=False, limit=3)
    with closing(Registry(Database(url), Retention())) as registry, ThreadPoolExecutor(1) as pool:

        def record(job: str, name: str, node: str, value: str) -> None:
            replica = ReplicaRecord(name="worker-0", node=node)
            extra = {"dialect": {"long": value * 1_000}}
            registry.record("p", Records(jobs=[JobRecord(job_id=job, name=name, replicas=[replica], extra=extra)]), NOW)

        for number in range(6):
            record(f"j{number}", f"name-{number}", f"n{number % 2}", "xy"[1 - number % 2])
        expected = registry.list_jobs(question, NOW)
        assert ([job.id for job in expected.jobs], expected.total) == (["j1", "j3", "j5"], 3)
        monkeypatch.setattr(column_store, slowed, slow)
        waiting = pool.submit(registry.list_jobs, question, NOW)
        assert looking.wait(60)
        # Meanwhile rows pass to other jobs, and sort keys change.
        registry.delete_job("p", "j1")
        record("new", "name-0", "n1", "x")
        record("j5", "a", "n0", "y")
        assert registry.list_jobs(JobFilter(), NOW).total == 6
        go_on.set()
        assert waiting.result(60) == expected
        assert [job.id for job in registry.list_jobs(question, NOW).jobs] == ["new", "j3"]
