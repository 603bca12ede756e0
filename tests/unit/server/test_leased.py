"""Tests of servers on one registry and one engine: one rolls up, and none trusts its memory unless configured to."""

import logging
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import cast

import pytest
from tests.support.fakes import SetClock
from tests.support.memory_store import MemoryStore

from jobmeter.errors import UnavailableError
from jobmeter.model.retention import Retention
from jobmeter.model.time import HOUR, Clock
from jobmeter.registry.leases import LEASE_MS, LeaseTable, OwnedLease
from jobmeter.registry.open import open_registry
from jobmeter.server import app
from jobmeter.server.background import Leased
from jobmeter.settings import Settings, load
from jobmeter.store.window.store import WindowedStore


class Slow:
    """Work that runs until a test releases it."""

    name, interval = "roll-up", 60.0

    def __init__(self) -> None:
        self.begun, self.free = threading.Event(), threading.Event()
        self.rounds = 0

    def round(self) -> None:
        self.rounds += 1
        self.begun.set()
        assert self.free.wait(60)


class Counting:
    """Leases that signal each attempt to take one."""

    def __init__(self, leases: LeaseTable) -> None:
        self.leases = leases
        self.failing: Exception | None = None
        self.asked = threading.Semaphore(0)

    def take(self, name: str, owner: str, now_ms: int, until_ms: int) -> bool:
        try:
            if self.failing is not None:
                raise self.failing
            return self.leases.take(name, owner, now_ms, until_ms)
        finally:
            self.asked.release()

    def read_now_ms(self, clock: Clock) -> int:
        return self.leases.read_now_ms(clock)

    def prepare(self, name: str, clock: Clock, length_ms: int) -> OwnedLease:
        return OwnedLease(cast("LeaseTable", self), name, clock, length_ms)

    def release(self, name: str, owner: str) -> None:
        self.leases.release(name, owner)

    def asked_twice(self) -> None:
        while self.asked.acquire(blocking=False):
            pass
        for _ in range(2):
            assert self.asked.acquire(timeout=60)


@pytest.fixture
def servers(tmp_path: Path):
    """Yield the leases of two registries on one database, and the clock of both."""
    with ExitStack() as stack:
        both = [open_registry(f"sqlite:///{tmp_path / 'registry.db'}", Retention()) for _ in range(2)]
        for one in both:
            stack.callback(one.close)
        yield *(one.leases for one in both), SetClock()


def test_one_server_works_and_the_others_wait_for_the_end_of_its_round(servers) -> None:
    first, second, clock = servers
    work, other = Slow(), Slow()
    other.free.set()
    one, two = Leased(work, first, clock), Leased(other, second, clock)
    thread = threading.Thread(target=one.round)
    thread.start()
    assert work.begun.wait(60)
    two.round()
    assert other.rounds == 0
    work.free.set()
    thread.join()
    two.round()
    one.round()
    assert (work.rounds, other.rounds, one.name, one.interval) == (2, 1, "roll-up", 60.0)


def test_a_long_round_keeps_its_lease(servers) -> None:
    first, second, clock = servers
    work, other, counting = Slow(), Slow(), Counting(first)
    other.free.set()
    one, two = Leased(work, cast("LeaseTable", counting), clock, length_ms=20), Leased(other, second, clock)
    thread = threading.Thread(target=one.round)
    thread.start()
    for _ in range(10):
        clock.time_ms += 15
        counting.asked_twice()
        two.round()
    assert other.rounds == 0
    work.free.set()
    thread.join()


AWAY = UnavailableError("the registry is away")


@pytest.mark.parametrize("failure", [AWAY, ValueError("a bug")])
def test_a_server_that_does_not_renew_loses_its_lease_and_says_so(servers, caplog, failure) -> None:
    first, second, clock = servers
    work, other, counting = Slow(), Slow(), Counting(first)
    other.free.set()
    one, two = Leased(work, cast("LeaseTable", counting), clock, length_ms=20), Leased(other, second, clock)
    with caplog.at_level(logging.WARNING, "jobmeter"):
        thread = threading.Thread(target=one.round)
        thread.start()
        assert work.begun.wait(60)
        counting.failing = failure
        counting.asked_twice()
        clock.time_ms += 30
        two.round()
        assert other.rounds == 1
        second.take("roll-up", "a third one", clock.time_ms, clock.time_ms + 1_000)
        counting.failing = None
        counting.asked_twice()
        work.free.set()
        thread.join()
    logged = {record.getMessage() for record in caplog.records}
    said = "the lease for roll-up was not renewed"
    assert (f"{said}: the registry is away" if failure is AWAY else said) in logged
    assert "another server started roll-up while this server was still working on it" in logged
    assert not second.take("roll-up", "b", clock.time_ms, clock.time_ms + 1)


def test_a_server_that_died_is_followed_when_its_time_is_over(servers) -> None:
    first, second, clock = servers
    first.take("roll-up", "a server that is no more", clock.time_ms, clock.time_ms + 1_000)
    work = Slow()
    work.free.set()
    leased = Leased(work, second, clock)
    leased.round()
    assert work.rounds == 0
    assert LEASE_MS / 1_000 + leased.interval <= 15
    clock.time_ms += 1_000
    leased.round()
    assert (work.rounds, leased.interval) == (1, 60.0)


@pytest.mark.parametrize(
    ("store", "logged", "seconds", "said"),
    [
        ("", None, 7_200, ""),
        ("", "0", 0, ""),
        ("", "60", 60, ""),
        ("clickhousedb://u@h:8123/d", None, 0, "are not cached in memory because other servers may write"),
        ("clickhousedb://u@h:8123/d", "0", 0, ""),
        ("clickhousedb://u@h:8123/d", "3600", 3_600, "answers lack samples that other servers write"),
    ],
)
def test_memory_is_trusted_where_nobody_else_writes_or_the_operator_says_so(
    tmp_path: Path, monkeypatch, caplog, store: str, logged: str | None, seconds: int, said: str
) -> None:
    monkeypatch.setattr(app, "open_store", lambda *_, **__: MemoryStore())
    environment = {"JOBMETER_DATA": str(tmp_path), "JOBMETER_STORE": store} | (
        {} if logged is None else {"JOBMETER_WINDOW_SECONDS": logged}
    )
    with caplog.at_level(logging.INFO, "jobmeter.server"):
        made = app.build(load(environment), SetClock())
    window_store = made.services.store
    assert (window_store.window.length_ms // 1_000 if isinstance(window_store, WindowedStore) else 0) == seconds
    about_memory = [record.getMessage() for record in caplog.records if "memory" in record.getMessage()]
    assert [said in one for one in about_memory] == ([True] if said else [])
    assert any(isinstance(one.work, Leased) for one in made.background) == bool(store)
    made.close()


def test_the_window_is_two_hours_by_default(tmp_path: Path) -> None:
    assert Settings(data=tmp_path).window_seconds is None
    assert app.WINDOW_SECONDS * 1_000 == 2 * HOUR
