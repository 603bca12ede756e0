"""Tests of bodies with new series: they wait for the store as a group, and hold no thread meanwhile."""

import asyncio
import threading
from uuid import uuid4

import pytest
from tests.support.asgi import Reply
from tests.support.asgi import send as ask
from tests.support.frames import FRAMES, frame, payload
from tests.support.memory_store import MemoryStore
from tests.support.serving import BASE, Serving, serving
from tests.support.waiting import until, wait_until

from jobmeter.errors import UnavailableError
from jobmeter.model.retention import Retention
from jobmeter.model.series import Series
from jobmeter.server.app import WRITE_THREADS

MANY = 3 * WRITE_THREADS


class BlockingStore(MemoryStore):
    """Store that blocks writes until the gate opens, and records the number of batches in each group."""

    def __init__(self):
        super().__init__()
        self.gate = threading.Event()
        self.groups: list[int] = []
        self.failure: Exception | None = None

    def append_all(self, batches, retention=Retention()):  # noqa: B008 - it is frozen
        self.groups.append(len(batches))
        assert self.gate.wait(30)
        if self.failure is not None:
            raise self.failure
        super().append_all(batches, retention)


@pytest.fixture
def store():
    return BlockingStore()


@pytest.fixture
def server(tmp_path, store):
    server = serving(tmp_path / "data", store)
    yield server
    store.gate.set()
    server.application.close()


async def send_sample(server: Serving, number: int, gone_after: float | None = None) -> Reply:
    # Series of this test alone: known lists of series need no thread, whichever server they came to.
    rows = [(Series("cpu.usage", job=f"job-{uuid4().hex}"), [(server.clock.now_ms(), float(number))])]
    headers = {"Authorization": f"Bearer {server.admin.token}", "Content-Type": FRAMES}
    return await ask(server.application, "POST", f"{BASE}/ingest", frame(payload(rows)), headers, gone_after)


async def until_they_wait(server: Serving, store: BlockingStore, count: int) -> None:
    """Wait until ``count`` batches are in the store or wait for it."""
    committer = server.application.services.pipeline.committer
    await until(lambda: sum(store.groups) + committer.waiting >= count)


def test_more_than_there_are_threads_are_stored_together(server, store):
    async def together() -> list[Reply]:
        sent = [asyncio.create_task(send_sample(server, number)) for number in range(MANY)]
        await until_they_wait(server, store, MANY)
        await until(lambda: server.application.services.lanes.write.busy == 0)
        assert not any(one.done() for one in sent)
        store.gate.set()
        return await asyncio.gather(*sent)

    replies = asyncio.run(together())
    assert [(one.status, one.json()["accepted"]) for one in replies] == [(200, 1)] * MANY
    assert sum(store.groups) == MANY
    assert len(store.groups) <= 3
    assert store.read_statistics().rows["samples"] == MANY


def test_all_learn_when_they_could_not_be_stored(server, store):
    store.failure = UnavailableError("the disk is full")

    async def together() -> list[Reply]:
        sent = [asyncio.create_task(send_sample(server, number)) for number in range(3)]
        store.gate.set()
        return await asyncio.gather(*sent)

    assert [one.status for one in asyncio.run(together())] == [503] * 3


def test_a_client_that_goes_away_meanwhile_makes_nobody_wait(server, store):
    async def together() -> list[Reply]:
        sent = [asyncio.create_task(send_sample(server, number, 0.05 if number == 1 else None)) for number in range(3)]
        await until_they_wait(server, store, 3)
        await asyncio.wait([sent[1]], timeout=10)
        store.gate.set()
        return await asyncio.gather(*sent)

    first, gone, last = asyncio.run(together())
    assert (first.status, last.status) == (200, 200)
    assert not gone.chunks
    # The batch of the disconnected client may be in another group than the others.
    wait_until(lambda: store.read_statistics().rows["samples"] == 3)
