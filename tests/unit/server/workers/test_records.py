"""Tests of a worker's searches in the storage process's records: message limits, and searches without a result."""

import asyncio
from typing import Any

import pytest
from tests.support.fakes import SetClock
from tests.support.http_wire import run

from jobmeter.server.workers.frames import PIECE_BYTES, JobLookup, LookupResult, NodesLookup
from jobmeter.server.workers.owned import OwnerNeededError
from jobmeter.server.workers.records import REFUSED_SECONDS, RecordSearch, WorkerRegistry
from jobmeter.store.channel import encode_message
from jobmeter.store.window.revisions import Revisions


class StorageEnd:
    """Storage process that finds no records."""

    def __init__(self):
        self.clock = SetClock()
        channel: Any = self
        self.search = RecordSearch(channel, self.clock)
        self.received = []

    def send(self, message):
        self.received.append(message)
        self.search.take(LookupResult(message.number, None))

    async def ask(self, question, *arguments):
        with pytest.raises(OwnerNeededError):
            await asyncio.get_running_loop().run_in_executor(None, question, *arguments)


def test_a_search_for_too_many_names_is_not_sent():
    async def main():
        end = StorageEnd()
        end.search.begin()
        registry = WorkerRegistry(end.search, Revisions())
        await end.ask(registry.list_nodes, None, frozenset({"n1"}))
        assert [one.about for one in end.received] == [NodesLookup(None, frozenset({"n1"}))]
        names = frozenset(f"{number:0128}" for number in range(PIECE_BYTES // 128))
        await end.ask(registry.list_nodes, None, names)
        assert all(len(encode_message(one)) < PIECE_BYTES for one in end.received)

    run(main())


def test_a_search_without_a_result_is_repeated_only_after_its_delay():
    async def main():
        end = StorageEnd()
        end.search.begin()
        registry = WorkerRegistry(end.search, Revisions())
        for _ in range(3):
            await end.ask(registry.find_job, None, "j1", 0)
        assert [one.about for one in end.received] == [JobLookup(None, "j1", is_head=False)]
        await end.ask(registry.find_job, None, "j2", 0)
        assert len(end.received) == 2
        end.clock.time_ms += round(REFUSED_SECONDS * 1000)
        await end.ask(registry.find_job, None, "j1", 0)
        assert len(end.received) == 3

    run(main())
