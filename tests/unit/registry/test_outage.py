"""Tests of a frozen or stopped PostgreSQL: calls fail instead of waiting, and work again after its return."""

import threading
from collections.abc import Iterator

import pytest
from tests.support.postgresql import PostgreSQL, own_server
from tests.support.registries import observation

from jobmeter.errors import UnavailableError
from jobmeter.model.job import JobFilter
from jobmeter.model.retention import Retention
from jobmeter.registry import breaker
from jobmeter.registry.base import Registry
from jobmeter.registry.open import open_registry

NOW = 1_790_000_000_000


@pytest.fixture
def server() -> Iterator[PostgreSQL]:
    with own_server() as started:
        yield started


@pytest.fixture
def registry(server: PostgreSQL, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    for name in ("SHORT_SECONDS", "PROBE_SECONDS"):
        monkeypatch.setattr(breaker, name, 0.2)
    opened = open_registry(f"{server.url}/postgres", Retention())
    yield opened
    opened.close()


def fails(registry: Registry) -> str:
    with pytest.raises(UnavailableError) as failed:
        registry.keys.find_by_token(b"")
    return failed.value.message


def answers_again(registry: Registry) -> None:
    pause = threading.Event()
    for _ in range(600):
        try:
            registry.keys.find_by_token(b"")
        except UnavailableError:
            pause.wait(0.1)
        else:
            return
    raise AssertionError("the registry did not answer again within a minute")


def test_a_frozen_server_holds_nobody_up(server: PostgreSQL, registry: Registry) -> None:
    registry.observe([observation(NOW, NOW)], NOW)
    server.freeze()
    try:
        first = fails(registry)
        # The other calls skip the query, so all of them together take no longer than one timeout.
        later = {fails(registry) for _ in range(2_000)}
        with pytest.raises(UnavailableError):
            registry.list_jobs(JobFilter(), NOW)
    finally:
        server.thaw()
    assert later == {"the registry does not work now: its database does not answer"}
    assert "127.0.0.1" not in first
    answers_again(registry)
    assert registry.list_jobs(JobFilter(), NOW).total == 1


def test_a_killed_server_is_reported_without_its_address(
    server: PostgreSQL, registry: Registry, caplog: pytest.LogCaptureFixture
) -> None:
    registry.observe([observation(NOW, NOW)], NOW)
    server.kill()
    said = {fails(registry) for _ in range(20)}
    assert not any("127.0.0.1" in text or "port" in text for text in said)
    assert "the registry does not work now: " in caplog.text
    server.start()
    answers_again(registry)
    assert registry.list_jobs(JobFilter(), NOW).total == 1
