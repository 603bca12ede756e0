"""Columns in memory against plain Python: search, order, pages, and what a registry keeps of its jobs."""

import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.registries import settle

from jobmeter.model.job import Condition, JobFilter, JobState, Operator
from jobmeter.model.record import JobRecord, Records, ReplicaRecord
from jobmeter.model.retention import Retention
from jobmeter.model.time import TimeRange
from jobmeter.registry import changes, listing, listings, schema
from jobmeter.registry.base import Observation
from jobmeter.registry.columns import coded, fields, names, select, table
from jobmeter.registry.columns.coded import Coded
from jobmeter.registry.columns.heap import Heap
from jobmeter.registry.columns.names import Names
from jobmeter.registry.database import Database
from jobmeter.registry.sql import SqlRegistry

NOW = 1_790_000_000_000
texts = st.lists(st.one_of(st.text("ab-ßÄ1", max_size=6), st.text(max_size=4)).filter(str.isprintable), max_size=40)
parts = st.one_of(st.text("ab-ßÄ1", max_size=4), st.text(max_size=2).filter(str.isprintable))


@given(held=texts, part=parts)
@example(held=["ab", "c"], part="bc")
@example(held=["aaa"] * 40, part="a")
def test_a_heap_finds_the_texts_that_hold_a_part(held: list[str], part: str) -> None:
    heap = Heap()
    for text in held:
        heap.append(text.encode())
    assert heap.holding(part.encode()).tolist() == [part in text for text in held]
    assert [heap[number].decode() for number in range(len(heap))] == held


@settings(max_examples=60)
@given(batches=st.lists(texts, max_size=6), part=parts)
def test_names_stand_in_the_order_of_bytes_however_they_come(batches: list[list[str]], part: str) -> None:
    held = Names()
    rows: list[str] = []
    for number, batch in enumerate(batches):
        if number:
            numbers = held.add(batch)
        else:
            numbers = {text: held.take(text) for text in sorted(batch)}
            held.settle()
        for text in batch:
            held.set(len(rows), numbers[text])
            rows.append(text)
    count = len(rows)
    assert [held.of(row) for row in range(count)] == rows
    if count:
        ranks = held.ranks()[held.numbers(count)].tolist()
        places = {text: place for place, text in enumerate(sorted(set(rows)))}
        ordered = {rank: place for place, rank in enumerate(sorted(set(ranks)))}
        assert [ordered[rank] for rank in ranks] == [places[text] for text in rows]
        folded = part.casefold()
        assert held.holding([folded], count).tolist() == [folded in text.casefold() for text in rows]
        assert held.among([part], count).tolist() == [text == part for text in rows]


def test_ids_that_count_up_between_two_others_find_room(monkeypatch: pytest.MonkeyPatch) -> None:
    # Room for hardly any: all are spread anew, again and again.
    monkeypatch.setattr(names, "_STEP", 8)
    monkeypatch.setattr(names, "_TOP", 2**12)
    held = Names()
    for text in ("a", "z"):
        held.take(text)
    held.settle()
    counted = [f"job-{number:05}" for number in range(300)]
    for start in range(0, 300, 7):
        held.add(reversed(counted[start : start + 7]))
    ranks = [int(held.ranks()[held.number(text) or 0]) for text in ("a", *counted, "z")]
    assert ranks == sorted(set(ranks))


@given(held=st.lists(st.sampled_from(("", "Größe", "gross", "a", "B", "c")), max_size=30), part=parts)
def test_few_texts_and_many_are_searched_alike(held: list[str], part: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for few in (0, 5_000):
            patch.setattr(coded, "_FEW", few)
            column = Coded("")
            for row, text in enumerate(held):
                column.set(row, text)
            found = column.among(column.holding([part.casefold()]), len(held))
            assert found.tolist() == [part.casefold() in text.casefold() for text in held]


@settings(max_examples=80, deadline=None)
@given(data=st.data(), seed=st.integers(0, 99), spread=st.sampled_from((1, 3, 1000, 2**40)), descending=st.booleans())
def test_a_page_is_a_slice_of_what_is_sorted(data: st.DataObject, seed: int, spread: int, *, descending: bool) -> None:
    draw = np.random.default_rng(seed)
    count = data.draw(st.sampled_from((0, 1, 50, 3000)))
    first, second = draw.integers(0, spread, count), draw.integers(0, 4, count)
    rows = np.flatnonzero(draw.random(count) < 0.8).astype(np.int32)
    offset, limit = data.draw(st.integers(0, count + 2)), data.draw(st.integers(0, 200))
    keys = [lambda rows: first[rows], lambda rows: second[rows], lambda rows: rows.astype(np.int64)]
    wanted = sorted(rows.tolist(), key=lambda row: (first[row], second[row], row), reverse=descending)
    with pytest.MonkeyPatch.context() as patch:
        # As with many rows: by a sample, and without sorting all.
        patch.setattr(select, "_FEW", 8)
        patch.setattr(select, "_MANY", data.draw(st.sampled_from((100, 10**9))))
        patch.setattr(select, "_SAMPLE", 50)
        patch.setattr(select, "_MARGIN", 3)
        found = select.page(rows, keys, descending=descending, offset=offset, limit=limit)
    assert found.tolist() == wanted[offset : offset + limit]


def observation(job: str, last_ms: int, project: str = "p", replica: str = "") -> Observation:
    return Observation(
        project=project, job=job, replica=replica, attempt=0, cluster="", node="n" if replica else "", device="",
        first_ms=last_ms - 1000, last_ms=last_ms,
    )  # fmt: skip


@pytest.fixture
def two(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[SqlRegistry, SqlRegistry]]:
    """Two servers of one registry, both with columns of every job."""
    monkeypatch.setattr(listings, "LARGE", 0)
    first = SqlRegistry(Database(url), Retention())
    first.record("p", Records(jobs=[JobRecord(job_id="first")]), NOW)
    first.close()
    both = SqlRegistry(Database(url), Retention()), SqlRegistry(Database(url), Retention())
    for registry in both:
        settle(registry)
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
    two: tuple[SqlRegistry, SqlRegistry], steps: list[tuple[bool, tuple[str, object]]]
) -> None:
    plain = two[0]._listings
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
            for question in QUESTIONS:
                with plain._database.read() as connection:
                    wanted = listing.list_jobs(connection, question, NOW)
                assert [one.jobs(question, NOW) for one in two] == [wanted, wanted], question
    assert all(one.ready for one in two)


def test_the_jobs_of_a_group_are_found_by_their_life(two: tuple[SqlRegistry, SqlRegistry]) -> None:
    first, second = two
    life = {"over": (1000, 2000), "within": (3000, 4000), "on": (1500, None), "later": (9000, None)}
    jobs = [JobRecord(job_id=job, resource_group="g", start=start, end=end) for job, (start, end) in life.items()]
    first.record("p", Records(jobs=jobs), NOW)
    for asked, found in ((None, ["on", "within"]), ("p", ["on", "within"]), ("q", [])):
        projects = None if asked is None else frozenset(asked)
        views = second.group_jobs(projects, "g", TimeRange(2500, 5000), NOW)
        assert [view.job.id for view in views] == found


def test_who_missed_what_is_told_no_more_reads_everything_again(two: tuple[SqlRegistry, SqlRegistry]) -> None:
    first = two[0]
    first.record("p", Records(jobs=[JobRecord(job_id="x")]), NOW)
    assert first.jobs(JobFilter(), NOW).total == 2
    database = first._listings._database
    with database.write() as connection:
        changes.tell(connection, recorded=[("p", "x")])
        newest = sa.select(sa.func.max(schema.job_changes.c.id)).scalar_subquery()
        connection.execute(sa.delete(schema.job_changes).where(schema.job_changes.c.id < newest))
        connection.execute(sa.delete(schema.jobs).where(schema.jobs.c.id == "x"))
    for registry in two:
        assert registry.jobs(JobFilter(), NOW).total == 1
        settle(registry)
        assert registry.jobs(JobFilter(), NOW).total == 1


def test_a_copy_that_is_brought_back_is_seen_by_every_server(
    two: tuple[SqlRegistry, SqlRegistry], tmp_path: Path
) -> None:
    two[0].backup(tmp_path / "copy")
    assert two[0].delete_job("p", "first")
    assert [one.jobs(JobFilter(), NOW).total for one in two] == [0, 0]
    two[1].restore(tmp_path / "copy")
    assert [one.jobs(JobFilter(), NOW).total for one in two] == [1, 1]


def test_old_words_of_changes_go(registry: SqlRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "KEEP_SECONDS", -10)
    for number in range(80):
        registry.record("p", Records(jobs=[JobRecord(job_id=f"j{number}")]), NOW)
    with registry._listings._database.read() as connection:
        left = connection.scalar(sa.select(sa.func.count()).select_from(schema.job_changes)) or 0
    assert 0 < left <= 33


def test_what_is_too_much_to_keep_is_asked_of_the_database(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listings, "LARGE", 0)
    monkeypatch.setattr(fields, "MOST_FIELDS", 2)
    monkeypatch.setattr(fields, "MOST_BYTES", 12)
    monkeypatch.setattr(table, "MOST_LONG_BYTES", 20)
    registry = SqlRegistry(Database(url), Retention())
    jobs = [
        JobRecord(
            job_id=f"j{number}",
            command=f"python {number}.py",
            labels={"few": str(number % 2), "long": "x" * number, f"other{number}": "y"},
        )
        for number in range(20)
    ]
    registry.record("p", Records(jobs=jobs), NOW)
    settle(registry)
    for field, operator, value, count in (
        ("labels.few", Operator.IN, "1", 10),
        ("labels.long", Operator.IN, "x" * 19, 1),
        ("labels.other7", Operator.IN, "y", 1),
        ("labels.other7", Operator.NOT_IN, "y", 19),
        ("command", Operator.CONTAINS, "PYTHON 1", 11),
    ):
        assert registry.jobs(JobFilter(conditions=(Condition(field, operator, (value,)),)), NOW).total == count, field
    assert registry.ready
    registry.close()


def test_a_small_registry_keeps_no_columns(tmp_path: Path) -> None:
    registry = SqlRegistry(Database(f"sqlite:///{tmp_path / 'registry.db'}"), Retention())
    registry.record("p", Records(jobs=[JobRecord(job_id="x")]), NOW)
    assert registry.jobs(JobFilter(), NOW).total == 1
    assert not registry.ready
    assert "registry-columns" not in {thread.name for thread in threading.enumerate()}
    registry.close()


def test_a_registry_that_grows_while_it_is_asked_for_little_gets_columns(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listings, "LARGE", 10)
    monkeypatch.setattr(listings, "LOOK_EVERY", 3)
    registry = SqlRegistry(Database(url), Retention())
    few = JobFilter(conditions=(Condition("user", Operator.IN, ("nobody",)),))
    registry.jobs(few, NOW)
    for number in range(12):
        registry.record("p", Records(jobs=[JobRecord(job_id=f"j{number}")]), NOW)
    assert registry.jobs(few, NOW).total == 0
    pause = threading.Event()
    for _ in range(1000):
        if registry.ready:
            break
        registry.jobs(few, NOW)
        pause.wait(0.01)
    assert registry.ready
    assert registry.jobs(JobFilter(), NOW).total == 12
    registry.close()


def test_texts_that_no_job_has_any_more_are_forgotten(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listings, "LARGE", 0)
    monkeypatch.setattr(table, "_SPARE", 5)
    registry = SqlRegistry(Database(url), Retention())
    registry.record("p", Records(jobs=[JobRecord(job_id="j")]), NOW)
    settle(registry)
    for number in range(60):
        registry.record("p", Records(jobs=[JobRecord(job_id="j", user=f"user-{number}")]), NOW)
        asked = JobFilter(users=frozenset({f"user-{number}"}))
        assert registry.jobs(asked, NOW).total == 1
    settle(registry)
    assert registry._listings._keeper is not None
    held = registry._listings._keeper._table
    assert held is not None
    assert len(held.texts["user"].values) < 30
    registry.close()
