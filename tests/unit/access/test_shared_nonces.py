"""Tests of signatures at several servers: each is accepted once, even if servers start, stop and die in between."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.unit.access.conftest import NOW_MS, FixedClock
from tests.unit.registry.conftest import module_postgresql_url, postgresql  # noqa: F401 - fixtures

from jobmeter.access.nonces import WINDOW_MS, SharedNonces
from jobmeter.errors import UnavailableError
from jobmeter.model.retention import Retention
from jobmeter.model.time import MINUTE
from jobmeter.registry.base import Registry
from jobmeter.registry.open import open_registry
from jobmeter.registry.signatures import Signature, SignatureTable


@pytest.fixture(scope="module")
def shared(module_postgresql_url: str) -> Iterator[Registry]:  # noqa: F811 - a fixture
    opened = open_registry(module_postgresql_url, Retention())
    yield opened
    opened.close()


@pytest.fixture
def table(shared: Registry) -> "Table":
    with shared.database.write() as connection:
        connection.exec_driver_sql("DELETE FROM accepted_signatures")
        connection.exec_driver_sql("UPDATE signature_owner SET owner = '', floor = 0")
    return Table(shared.database)


class Table(SignatureTable):
    """Nonce table that can become unreachable."""

    away = False

    def __getattribute__(self, name: str):
        if name in {"accept", "own", "disown", "take_over", "forget"} and self.away:
            raise UnavailableError("the registry is away")
        return super().__getattribute__(name)


class Servers:
    """Up to three servers, each informed by its engine if it is alone."""

    def __init__(self, folder: Path, table: Table, clock: FixedClock, most: int = 1000) -> None:
        self.folder, self.table, self.clock, self.most = folder, table, clock, most
        self.living: dict[int, SharedNonces] = {}

    def start(self, number: int) -> None:
        if number in self.living:
            return
        for other in self.living.values():
            other.use_alone(alone=False)
        file = self.folder / f"nonces-{number}"
        made = SharedNonces(self.clock, file, self.table, lambda: None, most=self.most)
        made.use_alone(alone=False)
        self.living[number] = made
        self._synchronize()

    def end(self, number: int, *, killed: bool) -> None:
        ended = self.living.pop(number, None)
        if ended is not None:
            if not killed:
                ended.close()
            self._synchronize()

    def _synchronize(self) -> None:
        if len(self.living) == 1:
            for last in self.living.values():
                last.use_alone(alone=True)

    def accept(self, number: int, nonce: str, date_ms: int) -> bool | None:
        """Return None if the server refuses to decide."""
        server = self.living[number]
        try:
            return server.is_fresh(date_ms) and server.remember("k", nonce, date_ms)
        except UnavailableError:
            return None


_servers = st.integers(0, 2)
_steps = st.lists(
    st.one_of(
        st.tuples(st.just("start"), _servers),
        st.tuples(st.just("stop"), _servers),
        st.tuples(st.just("kill"), _servers),
        st.tuples(st.just("away"), st.booleans()),
        st.tuples(st.just("wait"), st.integers(1, 20 * MINUTE)),
        st.tuples(st.just("sign"), st.tuples(_servers, st.integers(0, 3), st.integers(0, WINDOW_MS))),
    ),
    max_size=25,
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(_steps)
@example([("start", 0), ("sign", (0, 1, 0)), ("start", 1), ("sign", (1, 1, 0))])
@example([("start", 0), ("sign", (0, 1, 0)), ("kill", 0), ("start", 1), ("sign", (1, 1, 0))])
@example([("start", 0), ("start", 1), ("sign", (0, 1, 0)), ("kill", 0), ("sign", (1, 1, 0))])
@example([("start", 0), ("sign", (0, 1, 0)), ("away", True), ("start", 1), ("away", False), ("sign", (1, 1, 0))])
def test_no_server_accepts_what_another_accepted(tmp_path_factory, shared, steps) -> None:
    clock, table = FixedClock(), Table(shared.database)
    with shared.database.write() as connection:
        connection.exec_driver_sql("DELETE FROM accepted_signatures")
        connection.exec_driver_sql("UPDATE signature_owner SET owner = '', floor = 0")
    servers = Servers(tmp_path_factory.mktemp("servers"), table, clock)
    accepted: set[tuple[str, int]] = set()
    number = 0
    for what, argument in steps:
        clock.ms += 1
        if what == "start":
            servers.start(argument)
        elif what in {"stop", "kill"}:
            servers.end(argument, killed=what == "kill")
        elif what == "away":
            table.away = argument
        elif what == "wait":
            clock.ms += argument
        for one in servers.living:
            number += 1
            fresh = servers.accept(one, f"fresh-{number}", clock.ms)
            assert fresh is True or (fresh is None and table.away)
            accepted.add((f"fresh-{number}", clock.ms)) if fresh else None
            for nonce, date_ms in accepted:
                assert not servers.accept(one, nonce, date_ms)
        if what == "sign" and argument[0] in servers.living:
            signer, nonce, age = argument
            signed = (f"n{nonce}", clock.ms - age)
            if servers.accept(signer, *signed):
                assert signed not in accepted
                accepted.add(signed)


def test_of_calls_at_the_same_time_one_is_accepted(tmp_path, table) -> None:
    clock = FixedClock()
    servers = Servers(tmp_path, table, clock)
    for number in range(3):
        servers.start(number)
    calls = [(server, nonce) for nonce in range(20) for server in (0, 1, 2, 0, 1, 2)]
    with ThreadPoolExecutor(12) as threads:
        results = list(threads.map(lambda call: (call[1], servers.accept(call[0], f"n{call[1]}", NOW_MS)), calls))
    assert sorted(nonce for nonce, is_new in results if is_new) == list(range(20))


def test_a_server_that_is_alone_needs_no_registry(tmp_path, table) -> None:
    servers = Servers(tmp_path, table, FixedClock())
    servers.start(0)
    table.away = True
    assert servers.living[0].is_alone
    assert servers.accept(0, "n", NOW_MS) is True
    assert servers.accept(0, "n", NOW_MS) is False


def test_signatures_older_than_the_bounded_table_are_refused(tmp_path, table) -> None:
    clock = FixedClock()
    table.accept([Signature((NOW_MS - age * MINUTE) // MINUTE, age) for age in range(10)], "")
    table.forget((NOW_MS - WINDOW_MS) // MINUTE, most=4)
    servers = Servers(tmp_path, table, clock)
    servers.start(0)
    servers.start(1)
    assert servers.accept(0, "a", NOW_MS) is True
    assert servers.accept(0, "b", NOW_MS - 3 * MINUTE) is True
    assert servers.accept(0, "c", NOW_MS - 4 * MINUTE) is False
    assert not servers.living[0].is_fresh(NOW_MS - 4 * MINUTE)


def test_another_server_that_remembers_signatures_blocks_one_that_may_be_dead_to_it(tmp_path, table) -> None:
    def expelled() -> None:
        raise UnavailableError("others took this server for dead")

    clock = FixedClock()
    servers = Servers(tmp_path, table, clock)
    stale = SharedNonces(clock, tmp_path / "stale", table, expelled)
    stale.use_alone(alone=False)
    assert stale.remember("k", "before", NOW_MS)
    servers.start(0)
    assert servers.living[0].is_alone
    with pytest.raises(UnavailableError):
        stale.remember("k", "n", NOW_MS)
    assert servers.accept(0, "n", NOW_MS) is True
    assert servers.accept(0, "before", NOW_MS) is False
