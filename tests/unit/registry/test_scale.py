"""Listings of many jobs read an index each: the plans of SQLite, over a table large enough to matter."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import sqlite

from jobmeter.model.job import JobFilter, JobState
from jobmeter.registry import listing, schema
from jobmeter.registry.database import Database
from jobmeter.registry.migrate import migrate

NOW = 1_790_000_000_000
COUNT = 100_000
STATES = (None, "Succeeded", "Failed", "Stopped", "Running")
DEFAULT = frozenset({"default"})


def rows(first: int) -> list[dict[str, object]]:
    return [
        {
            "project": "default" if number % 10 else "other",
            "id": f"dlc{number:08x}",
            "name": f"train-{number % 5000}",
            "type": ("PyTorchJob", "MPIJob", "RayJob")[number % 3],
            "state": STATES[number % 5] if number % 5 != 4 or number > COUNT - 1000 else "Succeeded",
            "user": f"u{number % 97}",
            "resource_group": f"g{number % 11}",
            "workspace": f"w{number % 7}",
            "start": NOW - (COUNT - number) * 1000,
            "recorded": True,
            "last_sample": NOW - (COUNT - number) * 900,
            "noticed": NOW,
            "search": f"train-{number % 5000}\ndlc{number:08x}",
        }
        for number in range(first, first + 10_000)
    ]


@pytest.fixture(scope="module")
def connection(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sa.Connection]:
    database = Database(f"sqlite:///{tmp_path_factory.mktemp('scale') / Path('registry.db')}")
    migrate(database)
    with database.write() as writing:
        writing.execute(sa.insert(schema.projects), [{"name": "default"}, {"name": "other"}])
        for first in range(0, COUNT, 10_000):
            writing.execute(sa.insert(schema.jobs), rows(first))
    with database.read() as reading:
        yield reading
    database.close()


def plan(connection: sa.Connection, select: sa.Select[Any]) -> list[str]:
    compiled = select.compile(dialect=sqlite.dialect(), compile_kwargs={"literal_binds": True})
    return [str(row[3]) for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {compiled}")]


QUESTIONS = [
    *(JobFilter(projects=DEFAULT, sort=sort) for sort in listing.SORTS if sort not in {"state", "duration"}),
    JobFilter(projects=DEFAULT, types=frozenset({"MPIJob"})),
    JobFilter(projects=DEFAULT, users=frozenset({"u7", "u8"})),
    JobFilter(projects=DEFAULT, resource_groups=frozenset({"g1"})),
    JobFilter(projects=DEFAULT, workspaces=frozenset({"w1"}), descending=False),
    JobFilter(projects=DEFAULT, created_from=NOW - 500_000, created_to=NOW),
    *(JobFilter(projects=DEFAULT, states=frozenset({state})) for state in JobState if state is not JobState.RUNNING),
    JobFilter(),
]


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.sort)
def test_a_page_walks_an_index_and_sorts_nothing_but_itself(connection: sa.Connection, question: JobFilter) -> None:
    branches = listing._branches(connection, question, NOW)
    for branch in branches:
        columns = listing._order(question, NOW)
        keys = listing._ordered(sa.select(*columns).where(*branch.page), columns, question).limit(100)
        steps = plan(connection, keys)
        assert [step for step in steps if "SCAN" in step or "TEMP B-TREE" in step] == [], steps
        assert any("INDEX" in step for step in steps)
        counted = plan(connection, sa.select(sa.func.count()).select_from(schema.jobs).where(*branch.counted))
        assert [step for step in counted if "SCAN" in step] == [], counted


def test_the_living_are_found_among_the_many(connection: sa.Connection) -> None:
    [_, living] = listing._branches(connection, JobFilter(projects=DEFAULT, states=frozenset({JobState.RUNNING})), NOW)
    steps = plan(connection, sa.select(schema.jobs.c.id).where(*living.page))
    assert any("jobs_sampled" in step for step in steps), steps


def test_totals_are_right_at_this_size(connection: sa.Connection) -> None:
    for question in (JobFilter(), JobFilter(projects=DEFAULT)):
        page = listing.list_jobs(connection, question, NOW)
        assert page.total == (COUNT if question.projects is None else COUNT * 9 // 10)
        assert len(page.jobs) == 100
    by_state = [listing.list_jobs(connection, JobFilter(states=frozenset({state})), NOW).total for state in JobState]
    assert sum(by_state) == COUNT
