"""Tests of leases: one owner at a time, and takeover after expiry."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.support.fakes import SetClock

from jobmeter.model.retention import Retention
from jobmeter.model.time import HOUR, MINUTE
from jobmeter.registry.base import Registry
from jobmeter.registry.database import POSTGRESQL
from jobmeter.registry.open import open_registry


def test_a_lease_has_one_owner_until_its_time_is_over(registry: Registry) -> None:
    assert registry.leases.take("roll-up", "a", 100, 200)
    assert not registry.leases.take("roll-up", "b", 199, 299)
    assert registry.leases.take("prune", "b", 199, 299)
    assert registry.leases.take("roll-up", "a", 199, 299)
    assert not registry.leases.take("roll-up", "b", 298, 398)
    assert registry.leases.take("roll-up", "b", 299, 399)
    assert not registry.leases.take("roll-up", "a", 300, 400)


def test_a_lease_that_is_given_back_is_free_at_once(registry: Registry) -> None:
    assert registry.leases.take("roll-up", "a", 100, 200)
    registry.leases.release("roll-up", "b")
    assert not registry.leases.take("roll-up", "b", 150, 250)
    registry.leases.release("roll-up", "a")
    registry.leases.release("roll-up", "a")
    assert registry.leases.take("roll-up", "b", 150, 250)


def test_a_lease_from_before_the_clock_was_set_back_does_not_outlast_its_owner(registry: Registry) -> None:
    assert registry.leases.take("roll-up", "a", HOUR, HOUR + 100)
    before = HOUR - 10 * MINUTE
    assert not registry.leases.take("roll-up", "b", before, before + 100)
    assert registry.leases.take("roll-up", "b", before - 1, before + 99)
    assert not registry.leases.take("roll-up", "a", before, before + 100)


def test_the_clocks_of_servers_may_differ_beside_postgresql(registry: Registry) -> None:
    if registry.database.kind != POSTGRESQL:
        pytest.skip("SQLite has one server")
    behind, ahead = SetClock(), SetClock()
    ahead.time_ms += HOUR
    first, second = (registry.leases.prepare("roll-up", clock) for clock in (behind, ahead))
    assert first.take()
    assert not second.take()
    behind.time_ms += 2 * HOUR
    assert first.take()
    assert not second.take()


def test_of_servers_that_try_at_once_one_gets_it(url: str) -> None:
    servers = [open_registry(url, Retention()) for _ in range(4)]
    together = threading.Barrier(len(servers))

    def take(number: int) -> list[bool]:
        taken = []
        for time in range(0, 1_000, 100):
            together.wait(60)
            taken.append(servers[number].leases.take("roll-up", f"server-{number}", time, time + 100))
        return taken

    with ThreadPoolExecutor(len(servers)) as pool:
        found = list(pool.map(take, range(len(servers))))
    # Exactly at expiry any server can be the next owner, including the last one.
    assert [sum(at) for at in zip(*found, strict=True)] == [1] * 10
    for server in servers:
        server.close()
