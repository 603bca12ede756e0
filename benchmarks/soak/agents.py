"""Simulated agents: each node has a task and a persistent connection. Their writes are spread over the interval."""

import asyncio
import json
import random
import sys
import time
from collections.abc import Sequence

from benchmarks.client import Post
from benchmarks.soak.fleet import Fleet, Node
from benchmarks.soak.tally import Reports, Tally

PATIENCE = 120.0
"""Seconds after the end of the soak in which agents may still deliver measured samples."""
MOST_FRAMES = 200
"""Maximum frames of one body. An agent that is behind sends several frames together, as a real agent does."""
_TRY_AGAIN = (429, 503)
_REPORT = 1.0


def run(where: Post, fleet: Fleet, numbers: Sequence[int], begin: float, end: float, reports: Reports) -> None:
    """Run the agents ``numbers`` from ``begin`` to ``end`` (epoch seconds), and report a tally each second."""
    nodes = {number: Node(fleet, number) for number in numbers}
    asyncio.run(deliver(where, fleet, nodes, (begin, end), reports))


async def deliver(
    where: Post, fleet: Fleet, nodes: dict[int, Node], span: tuple[float, float], reports: Reports
) -> None:
    """Deliver the frames that each node measures in ``span`` (epoch seconds), and report a tally each second.

    Agents that have not delivered everything ``PATIENCE`` seconds after the end are stopped.
    """
    agents = [_Agent(where, fleet, number, node, span) for number, node in nodes.items()]
    tasks = [asyncio.create_task(agent.run()) for agent in agents]
    deadline = span[1] + PATIENCE
    while not all(task.done() for task in tasks) and time.time() < deadline:
        await asyncio.sleep(_REPORT)
        _tell(agents, reports)
    for task in tasks:
        task.cancel()
    for end in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(end, Exception):
            print(f"an agent ended early: {end!r}", file=sys.stderr)
    for agent in agents:
        agent.close()
    _tell(agents, reports)


def _tell(agents: Sequence["_Agent"], reports: Reports) -> None:
    joined = Tally()
    for agent in agents:
        joined.add(agent.tally)
        agent.tally = Tally()
    reports.put(joined)


class _Agent:
    """Agent that repeats each body until it is acknowledged. Like a real agent it drops no sample, so it can lag."""

    def __init__(self, where: Post, fleet: Fleet, number: int, node: Node, span: tuple[float, float]) -> None:
        self._where = where
        self._fleet = fleet
        self._node = node
        self._end = span[1]
        self._due = span[0] + fleet.interval * number / fleet.nodes
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self.tally = Tally()

    async def run(self) -> None:
        while self._due < self._end:
            await asyncio.sleep(max(0.0, self._due - time.time()))
            dues, frames = list[float](), list[bytes]()
            now = max(time.time(), self._due)
            while self._due <= now and self._due < self._end and len(frames) < MOST_FRAMES:
                frames.append(self._node.measure(round(self._due * 1000)))
                dues.append(self._due)
                self._due += self._fleet.interval
            message = self._where.encode(b"".join(frames))
            while not await self._sent(message):
                pass
            self.tally.lags += [time.time() - due for due in dues]
        self.close()

    def close(self) -> None:
        """Close the connection. The next body opens another one."""
        if self._streams:
            self._streams[1].close()
        self._streams = None

    async def _sent(self, message: bytes) -> bool:
        begin = time.perf_counter()
        try:
            status, wait, body = await self._ask(message)
        except (OSError, asyncio.IncompleteReadError):
            self.close()
            self.tally.broken += 1
            await asyncio.sleep(1 + random.random())
            return False
        if status in _TRY_AGAIN:
            self.tally.retries += 1
            await asyncio.sleep(wait + 0.5 + random.random() / 2)
            return False
        if status != 200:
            raise RuntimeError(f"{status}: {body[:300]!r}")
        self.tally.note("write", (time.perf_counter() - begin) * 1000)
        receipt = json.loads(body)
        self.tally.accepted += receipt["accepted"]
        self.tally.refused += sum(receipt["rejected"].values())
        return True

    async def _ask(self, message: bytes) -> tuple[int, float, bytes]:
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._where.port)
        reader, writer = self._streams
        writer.write(message)
        await writer.drain()
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        headers = dict(line.split(b": ", 1) for line in head.split(b"\r\n")[1:] if b": " in line)
        body = await reader.readexactly(int(headers.get(b"content-length", b"0")))
        wait = headers.get(b"retry-after", b"")
        return int(head.split(b" ", 2)[1]), float(wait) if wait.isdigit() else 0.0, body
