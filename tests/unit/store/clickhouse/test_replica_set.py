"""Which replicas count as complete, in random orders of failures, without servers."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

from clickhouse_connect.driver.exceptions import DatabaseError, OperationalError
from hypothesis import given, settings
from hypothesis import strategies as st

from jobmeter.errors import UnavailableError
from jobmeter.model.time import SystemClock
from jobmeter.store.clickhouse.replica_state import RecordFile, ReplicaSetState
from jobmeter.store.clickhouse.replicas import ReplicaSet
from jobmeter.store.clickhouse.target import Place, parse_dsn

PLACES = (("one", 1), ("two", 2), ("three", 3))
LOST, REFUSED, FINE = "lost", "refused", "fine"
Outcome = tuple[str, bool]
"""Reaction of a server to a statement: an error or none, and whether the server applies the statement all the same."""


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

    def on(self, place: Place) -> FakeServer:
        return self.servers[place]

    def drop(self, place: Place) -> None:
        """Close nothing."""


class Replicas:
    """A set of three replicas, and the statements that it acknowledged."""

    def __init__(self, folder: Path) -> None:
        self.servers = {place: FakeServer() for place in PLACES}
        self.file = RecordFile(folder / "record")
        self.set = ReplicaSet(parse_dsn("clickhousedb://one:1,two:2,three:3/db"), SystemClock(), self.file)
        self.set._ids = {place: place[0] for place in PLACES}
        complete = {place[0]: place[0] for place in PLACES}
        self.set._record = ReplicaSetState(identity="i", owner="o", number=1, complete=complete)
        self.file.write(self.set.record)
        self.client = cast("Any", FakeClient(self.servers))
        self.acknowledged: set[int] = set()
        self.number = 0

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
        """Return the statements that a question finds."""
        found = self.set.read(self.client, lambda server: frozenset(cast("FakeServer", server).applied))
        return cast("frozenset[int]", found)

    def verify(self) -> None:
        record = self.file.read()
        assert record is not None
        assert record.complete
        # A start reads any of them.
        (content,) = {frozenset(self.servers[place].applied) for place in PLACES if place[0] in record.complete}
        assert self.acknowledged <= content
        assert self.acknowledged <= self.read()


OUTCOMES = st.tuples(st.sampled_from([FINE, FINE, LOST, REFUSED]), st.booleans())


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_each_complete_replica_has_each_acknowledged_statement(data):
    with TemporaryDirectory() as folder:
        replicas = Replicas(Path(folder))
        outcomes = iter(lambda: data.draw(OUTCOMES), None)
        for _ in range(data.draw(st.integers(1, 6))):
            match data.draw(st.sampled_from(["write", "two writes", "return", "repair"])):
                case "write":
                    replicas.write(outcomes, lambda: None)
                case "two writes":
                    replicas.write(outcomes, partial(replicas.write, outcomes, lambda: None))
                case "return":
                    replicas.set._find(data.draw(st.sampled_from(PLACES)))
                case _:
                    for place in replicas.set.stale():
                        source = replicas.set.readable()[0]
                        replicas.servers[place].applied = set(replicas.servers[source].applied)
                        complete = replicas.set.record.complete | {place[0]: place[0]}
                        with replicas.set._recording:
                            replicas.set._record = ReplicaSetState(
                                identity="i", owner="o", number=replicas.set.record.number + 1, complete=complete
                            )
                            replicas.set._save([], replicas.client)
            replicas.verify()
