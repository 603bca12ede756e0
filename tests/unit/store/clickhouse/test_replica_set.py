"""Tests of the replicas that count as complete, in random orders of failures, without servers."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast
from unittest.mock import patch

from clickhouse_connect.driver.exceptions import DatabaseError, OperationalError
from hypothesis import given, settings
from hypothesis import strategies as st

from jobmeter.errors import UnavailableError
from jobmeter.model.time import SystemClock
from jobmeter.store.clickhouse import replicas
from jobmeter.store.clickhouse.replica_state import RecordFile
from jobmeter.store.clickhouse.replicas import ReplicaSet
from jobmeter.store.clickhouse.target import Place, parse_dsn

PLACES = (("one", 1), ("two", 2), ("three", 3))
LOST, REFUSED, FINE = "lost", "refused", "fine"
Outcome = tuple[str, bool]
"""Reaction of a server to a statement: the failure or ``FINE``, and True if the server applies it despite a failure."""


class FakeServer:
    """Statements that a server applied."""

    def __init__(self) -> None:
        self.applied: set[int] = set()

    def run(self, statement: int, outcome: Outcome) -> int:
        failure, applies = outcome
        if applies or failure == FINE:
            self.applied.add(statement)
        if failure == LOST:
            raise OperationalError("the connection was lost")
        if failure == REFUSED:
            raise DatabaseError("the disk is full", code=243)
        return statement

    def command(self, *_: Any, **__: Any) -> None:
        """Accept a record."""


class FakeClient:
    def __init__(self, servers: dict[Place, FakeServer]) -> None:
        self.servers = servers

    def connect_to(self, place: Place) -> FakeServer:
        return self.servers[place]

    def drop(self, place: Place) -> None:
        """Close nothing."""

    def close(self) -> None:
        """Close nothing."""


class Replicas:
    """Set of three replicas, and the statements that it acknowledged."""

    def __init__(self, folder: Path) -> None:
        self.servers = {place: FakeServer() for place in PLACES}
        self.file = RecordFile(folder / "record")
        self.set = ReplicaSet(parse_dsn("clickhousedb://one:1,two:2,three:3/db"), SystemClock(), self.file)
        self.client = cast("Any", FakeClient(self.servers))
        for place in PLACES:
            self.include(place)
        self.acknowledged: set[int] = set()
        self.number = 0

    def include(self, place: Place) -> None:
        with patch.object(replicas, "NodesClient", lambda *_: self.client):
            self.set.include(place, place[0])

    def write(self, outcomes: Iterator[Outcome], meanwhile: Callable[[], None]) -> None:
        """Run a statement. Another one may run between two of its servers."""
        self.number += 1
        statement = self.number

        def call(server: Any) -> int:
            meanwhile()
            return cast("FakeServer", server).run(statement, next(outcomes))

        with suppress(UnavailableError, OperationalError, DatabaseError):
            self.set.write(self.client, "INSERT INTO samples", call)
            self.acknowledged.add(statement)

    def read(self) -> frozenset[int]:
        """Return the statements that a query finds."""
        found = self.set.read(self.client, lambda server: frozenset(cast("FakeServer", server).applied))
        return cast("frozenset[int]", found)

    def verify(self) -> None:
        record = self.file.read()
        assert record is not None
        assert record.complete
        # A start may read any complete replica, so that their contents must be equal.
        (content,) = {frozenset(self.servers[place].applied) for place in PLACES if place[0] in record.complete}
        assert self.acknowledged <= content
        assert self.acknowledged <= self.read()


OUTCOMES = st.tuples(st.sampled_from([FINE, FINE, LOST, REFUSED]), st.booleans())


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_each_complete_replica_has_each_acknowledged_statement(data):
    with TemporaryDirectory() as folder:
        house = Replicas(Path(folder))
        outcomes = iter(lambda: data.draw(OUTCOMES), None)
        for _ in range(data.draw(st.integers(1, 6))):
            match data.draw(st.sampled_from(["write", "two writes", "return", "repair"])):
                case "write":
                    house.write(outcomes, lambda: None)
                case "two writes":
                    house.write(outcomes, partial(house.write, outcomes, lambda: None))
                case "return":
                    house.set.note_answer(data.draw(st.sampled_from(PLACES)))
                case _:
                    for place in house.set.list_stale():
                        source = house.set.list_readable()[0]
                        house.servers[place].applied = set(house.servers[source].applied)
                        house.include(place)
            house.verify()
