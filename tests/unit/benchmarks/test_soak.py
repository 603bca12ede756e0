"""Tests of the simulated fleet: its samples match its counts, and the final counts match the measurements."""

import asyncio

import pytest
from benchmarks.client import Post
from benchmarks.soak import agents
from benchmarks.soak.__main__ import measured
from benchmarks.soak.fleet import Fleet, Node
from benchmarks.soak.tally import Tally

from jobmeter.model.catalog import Kind, find
from jobmeter.wire.native.decode import decode

NOW = 1_795_300_000_000


def test_a_node_measures_each_series_once_under_names_of_the_catalogue():
    fleet = Fleet(nodes=20, gpus=2, metrics=200)
    node = Node(fleet, 13)
    (first,), (second,) = (decode(node.measure(NOW + turn)).batches for turn in range(2))
    assert len(first.series) == len(set(first.series)) == len(first.value) == 400 == fleet.series
    assert {(one.job, one.replica, one.node) for one in first.series} == {("soak-0001", "worker-5", "node-00013")}
    assert {one.device for one in first.series} == {"gpu0", "gpu1"}
    assert set(second.time.tolist()) == {NOW + 1}
    grew = [b > a for a, b in zip(first.value.tolist(), second.value.tolist(), strict=True)]
    kinds = [metric.kind for one in first.series if (metric := find(one.metric)) is not None]
    assert len(kinds) == 400
    assert all(up for up, kind in zip(grew, kinds, strict=True) if kind is Kind.COUNTER)
    assert {one.metric for one in first.series} >= {"gpu.utilization", "gpu.energy", "app.figure.0"}


def test_jobs_have_eight_nodes_and_the_last_one_what_is_left():
    fleet = Fleet(nodes=20)
    assert fleet.jobs == ["soak-0000", "soak-0001", "soak-0002"]
    assert [fleet.replicas(job) for job in range(3)] == [8, 8, 4]
    assert fleet.rate == 640


class Server:
    """Server that refuses every third request and breaks off every fifth one after storing it.

    It counts its samples.
    """

    def __init__(self) -> None:
        self.asked = 0
        self.stored: dict[tuple[str, int], int] = {}

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readline():
            while (line := await reader.readline()) != b"\r\n":
                head += line
            body = await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].split()[0]))
            self.asked += 1
            if self.asked % 3 == 0:
                writer.write(b"HTTP/1.1 429 Too Many\r\nRetry-After: 0\r\nContent-Length: 2\r\n\r\n{}")
                continue
            batches = decode(body).batches
            for batch in batches:
                self.stored[(batch.series[0].node, int(batch.time[0]))] = len(batch.value)
            if self.asked % 5 == 0:
                break
            answer = b'{"accepted": %d, "rejected": {}}' % sum(len(batch.value) for batch in batches)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(answer), answer))
        writer.close()


@pytest.fixture
def quickly(monkeypatch):
    monkeypatch.setattr(agents, "_REPORT", 0.05)
    monkeypatch.setattr(agents, "PATIENCE", 1e12)
    monkeypatch.setattr(agents, "MOST_FRAMES", 2)
    monkeypatch.setattr("random.random", lambda: 0.0)


def test_refused_or_aborted_requests_are_retried_and_measured_once(quickly):
    async def run():
        server = Server()
        listening = await asyncio.start_server(server.talk, "127.0.0.1", 0)
        where = Post(listening.sockets[0].getsockname()[1], "/", {})
        fleet = Fleet(nodes=3, gpus=1, metrics=5, interval=0.4)
        begin = float(int(NOW / 1000))  # long ago, so that everything is due at once
        reports = Reports()
        nodes = {number: Node(fleet, number) for number in range(3)}
        await agents.deliver(where, fleet, nodes, (begin, begin + 2), reports)
        listening.close()
        return server, fleet, begin, reports

    server, fleet, begin, reports = asyncio.run(run())
    expected = measured(fleet, (int(begin * 1000), int(begin * 1000) + 2000))
    assert expected == 3 * 5 * 5
    assert sum(server.stored.values()) == expected
    assert sum(tally.accepted for tally in reports.tallies) == expected
    assert sum(tally.retries for tally in reports.tallies) > 0
    assert sum(tally.broken for tally in reports.tallies) > 0


class Reports:
    def __init__(self) -> None:
        self.tallies: list[Tally] = []

    def put(self, tally: Tally, /) -> None:
        self.tallies.append(tally)

    def get(self, block: bool = True, timeout: float | None = None) -> Tally:
        raise NotImplementedError
