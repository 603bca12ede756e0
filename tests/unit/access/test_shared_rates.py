"""Tests of shared rates and budgets: several servers together grant what a single bucket grants."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.unit.registry.conftest import module_postgresql_url, postgresql  # noqa: F401 - fixtures

from jobmeter.access.limit import Allowance, Budget, Rate, RateLimiter
from jobmeter.access.shared_rates import SharedRates
from jobmeter.errors import ThrottledError, UnavailableError
from jobmeter.model.retention import Retention
from jobmeter.model.token_bucket import TokenBucket
from jobmeter.registry.base import Registry
from jobmeter.registry.open import open_registry
from jobmeter.registry.rates import Draw, RateTable
from jobmeter.server.admission import Admission

STEP = 1 / 8  # times and rates are binary fractions, so that levels are exact


class World:
    """Time of PostgreSQL, and the differing time of each server."""

    def __init__(self, offset: float = 0.0) -> None:
        self.seconds = 1024.0
        self.offset = offset

    def now_ms(self) -> int:
        return int((self.seconds + self.offset) * 1000)

    def monotonic(self) -> float:
        return self.seconds + self.offset


class Table(RateTable):
    """Rate table with a manual clock, which can become unreachable."""

    away = False

    def draw(self, draws):
        if self.away:
            raise UnavailableError("the registry is away")
        return super().draw(draws)

    def set_clock(self, seconds: float) -> None:
        self.now = f"CAST({seconds} AS float8)"


@pytest.fixture(scope="module")
def shared(module_postgresql_url: str) -> Iterator[Registry]:  # noqa: F811 - a fixture
    opened = open_registry(module_postgresql_url, Retention())
    yield opened
    opened.close()


def fresh(registry: Registry) -> Table:
    with registry.database.write() as connection:
        connection.exec_driver_sql("DELETE FROM rate_buckets")
    return Table(registry.database)


def granted(call, *arguments) -> bool:
    try:
        call(*arguments)
    except ThrottledError:
        return False
    return True


class Fleet:
    """Servers with their own clocks. A server that dies forgets its buckets."""

    def __init__(self, table: Table, offsets: list[float], budget: int = 0) -> None:
        self.table, self.budget = table, budget
        self.clocks = [World(offset) for offset in offsets]
        self.servers = [self._made(clock) for clock in self.clocks]
        table.set_clock(self.clocks[0].seconds)

    def start(self, number: int) -> None:
        self.servers[number] = self._made(self.clocks[number])

    def _made(self, clock: World) -> tuple[SharedRates, RateLimiter, Allowance]:
        made = SharedRates(clock, self.table)
        return made, RateLimiter(clock, shared=made), Allowance(clock, self.budget, "seconds", shared=made)

    def wait(self, seconds: float) -> None:
        for clock in self.clocks:
            clock.seconds += seconds
        self.table.set_clock(self.clocks[0].seconds)


_server = st.integers(0, 2)
_operations = st.lists(
    st.one_of(
        st.tuples(st.just("call"), _server),
        st.tuples(st.just("die"), _server),
        st.tuples(st.just("wait"), st.integers(1, 40)),
    ),
    max_size=40,
)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.integers(-80, 80), min_size=3, max_size=3),
    st.sampled_from([0.5, 1.0, 2.0, 4.0]),
    st.integers(1, 6),
    _operations,
)
@example([0, 0, 0], 1.0, 2, [("call", 0), ("call", 1), ("call", 2), ("die", 0), ("call", 0), ("wait", 8), ("call", 1)])
def test_servers_together_grant_the_calls_of_one_bucket(shared, offsets, per_second, burst, operations) -> None:
    fleet = Fleet(fresh(shared), [offset * STEP for offset in offsets])
    bucket = TokenBucket(per_second, burst, fleet.clocks[0].seconds)
    rate = Rate(per_second, burst)
    for what, argument in operations:
        if what == "call":
            expected = bucket.take(1, fleet.clocks[0].seconds) == 1
            assert granted(fleet.servers[argument][1].take, "k", "Op", rate) == expected
        elif what == "die":
            fleet.start(argument)
        else:
            fleet.wait(argument * STEP)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(_server, st.integers(0, 16), st.integers(0, 40)), max_size=25))
@example([(0, 16, 0), (1, 16, 0), (2, 16, 0), (0, 16, 0), (1, 1, 0), (2, 1, 40), (0, 1, 0)])
def test_costs_at_one_server_count_at_all(shared, questions) -> None:
    fleet = Fleet(fresh(shared), [0.0, 5.0, -5.0], budget=60)
    bucket = TokenBucket(1.0, 60, fleet.clocks[0].seconds)
    for server, cost, waited in questions:
        rates, _, allowance = fleet.servers[server]
        expected = bucket.fill(fleet.clocks[0].seconds) > 0
        assert granted(allowance.check, "k") == expected
        if expected:
            allowance.spend("k", cost)
            bucket.level -= cost
            rates.flush()
        fleet.wait(waited * STEP)


def test_calls_at_the_same_time_share_the_tokens(shared) -> None:
    fleet = Fleet(fresh(shared), [0.0, 0.0, 0.0])
    calls = [(server, key) for key in ("a", "b", "c") for server in (0, 1, 2) for _ in range(10)]

    def take(call: tuple[int, str]) -> str:
        server, key = call
        return key if granted(fleet.servers[server][1].take, key, "Op", Rate(1, 7)) else ""

    with ThreadPoolExecutor(12) as threads:
        results = list(threads.map(take, calls))
    assert {key: results.count(key) for key in ("a", "b", "c")} == {"a": 7, "b": 7, "c": 7}


def test_a_refused_call_takes_no_token_of_this_process(shared) -> None:
    table = fresh(shared)
    fleet = Fleet(table, [0.0, 0.0])
    rate = Rate(1, 4)
    assert all(granted(fleet.servers[0][1].take, "k", "Op", rate) for _ in range(4))
    assert not any(granted(fleet.servers[1][1].take, "k", "Op", rate) for _ in range(20))
    fleet.wait(4)
    assert [granted(fleet.servers[1][1].take, "k", "Op", rate) for _ in range(5)] == [True] * 4 + [False]


def test_without_the_registry_each_server_limits_its_own_calls(shared) -> None:
    table = fresh(shared)
    fleet = Fleet(table, [0.0, 0.0], budget=60)
    rate = Rate(1, 4)
    assert granted(fleet.servers[0][1].take, "k", "Op", rate)
    table.away = True
    assert [granted(fleet.servers[0][1].take, "k", "Op", rate) for _ in range(4)] == [True, True, True, False]
    fleet.servers[0][2].spend("k", 61)
    assert not granted(fleet.servers[0][2].check, "k")
    assert granted(fleet.servers[1][2].check, "k")
    table.away = False
    fleet.servers[0][0].flush()
    assert not granted(fleet.servers[1][2].check, "k")  # the cost was reported after the registry's return


def test_a_server_that_is_alone_needs_no_registry(shared) -> None:
    table = fresh(shared)
    fleet = Fleet(table, [0.0], budget=60)
    rates, limiter, allowance = fleet.servers[0]
    rates.use_alone(alone=True)
    table.away = True
    assert not limiter.must_wait("Op", Rate(1, 2))
    assert [granted(limiter.take, "k", "Op", Rate(1, 2)) for _ in range(3)] == [True, True, False]
    allowance.spend("k", 100)
    rates.work()
    assert not granted(allowance.check, "k")


def test_only_limited_calls_wait_for_the_registry(shared) -> None:
    clock = World()
    made = SharedRates(clock, fresh(shared))
    limiter = RateLimiter(clock, {"Op": Rate(1, 2)}, shared=made)
    assert limiter.must_wait("Op")
    assert not limiter.must_wait("Other")
    assert not Admission(clock, Budget(), shared=made).must_wait
    assert Admission(clock, Budget(rows=5), shared=made).must_wait


def test_a_clock_that_was_set_back_fills_again(shared) -> None:
    table = fresh(shared)
    table.set_clock(10_000)
    assert table.draw([Draw("b", 1, 2, 2)])["b"].granted == 2
    table.set_clock(100)
    assert table.draw([Draw("b", 1, 2, 1)])["b"].granted == 0
    table.set_clock(101)
    assert table.draw([Draw("b", 1, 2, 1)])["b"].granted == 1


def test_full_buckets_are_deleted(shared) -> None:
    table = fresh(shared)
    table.set_clock(100)
    table.draw([Draw("slow", 1, 20, 20), Draw("fast", 10, 20, 20)])
    table.set_clock(102)
    table.forget_full()
    with shared.database.read() as connection:
        assert connection.exec_driver_sql("SELECT name FROM rate_buckets").scalars().all() == ["slow"]
