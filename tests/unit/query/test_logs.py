"""Tests of questions about log lines: their owners, refusals, and whole selections in pages."""

import random

import pytest
from msgspec.structs import replace
from tests.support.fakes import NOW, FakeRegistry, SetClock, running_job
from tests.support.memory_store import MemoryStore

from jobmeter.access.principal import Scope
from jobmeter.errors import InvalidRequestError, LimitExceededError, NotFoundError
from jobmeter.model.log import LogLine
from jobmeter.query import logs
from jobmeter.query.execute import Executor
from jobmeter.query.logs import LogLinesQuestion
from jobmeter.query.request import JobRef, LogQuestion
from jobmeter.settings import Limits

ASK = LogQuestion(ref=JobRef("j1"))


@pytest.fixture
def store():
    return MemoryStore()


@pytest.fixture
def executor(store):
    registry = FakeRegistry()
    for project in ("default", "team"):
        registry.add_job(running_job("j1", project))
    registry.add_job(running_job("j2"))
    return Executor(store, registry, SetClock(), Limits())


def put(store, count, project="default", job="j1", step=1):
    lines = [LogLine(time_ns=NOW + at // step, text=f"{at:06}", job=job, project=project) for at in range(count)]
    store.logs.append(lines)
    return lines


def test_a_job_is_found_in_the_scope_alone(store, executor):
    mine, theirs = put(store, 3), put(store, 2, "team")
    with pytest.raises(InvalidRequestError) as caught:
        executor.run(ASK, Scope(None))
    assert caught.value.field == "project"
    assert executor.run(ASK, Scope(frozenset({"default"}))).lines == mine
    assert executor.run(replace(ASK, ref=JobRef("j1", "team")), Scope(None)).lines == theirs
    for scope in (Scope(frozenset({"other"})), Scope(frozenset()), Scope(frozenset({"default"}), "j2")):
        for question in (ASK, LogLinesQuestion(ASK)):
            with pytest.raises(NotFoundError):
                executor.run(question, scope)
    assert executor.run(ASK, Scope(frozenset({"default"}), "j1")).lines == mine
    assert executor.run(replace(ASK, ref=JobRef("j2")), Scope(None)).lines == []


@pytest.mark.parametrize(
    ("wrong", "error", "field"),
    [
        ({"limit": 10_001}, LimitExceededError, "limit"),
        ({"limit": -1}, InvalidRequestError, "limit"),
        ({"offset": -1}, InvalidRequestError, "offset"),
        ({"attempt": -1}, InvalidRequestError, "attempt"),
    ],
)
def test_what_cannot_be_queried_is_named(executor, wrong, error, field):
    with pytest.raises(error) as caught:
        executor.run(replace(ASK, **wrong), Scope(frozenset({"default"})))
    assert caught.value.field == field


def test_times_beyond_64_bits_are_no_trouble(store, executor):
    lines = put(store, 3)
    found = executor.run(replace(ASK, start_ns=-(10**30), end_ns=10**30), Scope(frozenset({"default"})))
    assert found.lines == lines


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("descending", [False, True])
def test_pages_hold_every_line_once_in_order(store, executor, monkeypatch, seed, descending):
    generator = random.Random(seed)
    monkeypatch.setattr(logs, "_FIRST", generator.randint(1, 9))
    monkeypatch.setattr(logs, "_LEAST", 3)
    monkeypatch.setattr(logs, "_BYTES", 50)
    # Up to 12 lines at the same time: more than a page holds.
    lines = put(store, 200, step=generator.choice([1, 4, 12]))
    lines = lines[::-1] if descending else lines
    scope = Scope(frozenset({"default"}))
    for offset in (0, 5, 199, 500):
        for limit in (None, 0, 1, 7, 150):
            question = replace(ASK, offset=offset, descending=descending)
            pages = list(executor.run(LogLinesQuestion(question, limit), scope))
            assert all(len(page) <= 20 for page in pages)
            expected = lines[offset:] if limit is None else lines[offset : offset + limit]
            assert [line for page in pages for line in page] == expected
