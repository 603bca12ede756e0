"""Connection with another server of the same engine, and the thread that has all connections."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from jobmeter.store.clickhouse.peer_messages import Ping, Pong, ToFollower, ToLeader
from jobmeter.store.clickhouse.replica_state import ReplicaSetState
from jobmeter.store.clickhouse.rows import SampleRuns

if TYPE_CHECKING:
    from jobmeter.store.channel import Channel

T = TypeVar("T")


_CLOSE_SECONDS = 2.0
_TURNS = 10


class CopiedRows(Protocol):
    """Rows of this server: as a leader the rows of its journal, as a follower copies of the leader's."""

    def register(self, take: Callable[[Sequence[SampleRuns]], None]) -> None:
        """Call ``take`` with the rows of the journal while no row is added or removed."""
        ...

    def begin_copies(self) -> None:
        """Begin with no copies."""
        ...

    def copy(self, group: Sequence[SampleRuns], intent: int) -> None:
        """Add copies. Hours before ``intent`` may be rolled up."""
        ...

    def drop_oldest(self, blocks: int) -> None:
        """Drop the oldest copies: the engine has them."""
        ...

    def use_replicas(self, record: ReplicaSetState) -> None:
        """Read only the replicas that the leader's record names."""
        ...

    def change(self, jobs: Sequence[int] | None, *, dropped: bool, records: Sequence[str]) -> None:
        """Note that other data of some jobs changed; None for all. ``dropped``: their samples in memory are void.

        ``records`` are the ids of jobs whose records changed.
        """
        ...


class PeerLink:
    """Connection with one server. See ``ServerLink``. Its methods belong to the event loop."""

    def __init__(self, now: Callable[[], float], may_sign: Callable[[], bool]) -> None:
        """``may_sign`` returns True while this server may give signs of life."""
        self.server = 0
        self.is_closed = False
        self.confirmed = self.answered = self.since = float("-inf")
        self.is_expelled = self.has_worked = False
        self.position = 0
        """Position up to which the follower's memory has everything."""
        self.channel: Channel | None = None
        self._now = now
        self._may_sign = may_sign
        self._pings: dict[int, float] = {}
        self._numbers = count()

    def ping(self) -> None:
        """Ask for a sign of life."""
        number = next(self._numbers)
        self._pings[number] = self._now()
        self.send(Ping(number))

    def take_sign(self, message: Ping | Pong) -> None:
        """Answer a ping, or note the answer to one."""
        if isinstance(message, Pong):
            self.confirmed = max(self.confirmed, self._pings.pop(message.number, float("-inf")))
        elif self._may_sign():
            self.answered = self._now()  # before it is sent: the other server counts from its own question on
            self.send(Pong(message.number))

    def send(self, message: ToLeader | ToFollower) -> None:
        """Send a message."""
        if self.channel is not None:
            self.channel.send(message)

    def cut(self) -> None:
        """Close the connection."""
        self.is_closed = True
        if self.channel is not None:
            self.channel.cut()


class PeerLoop:
    """Thread with an event loop."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="jobmeter-peers", daemon=True)
        self._thread.start()

    def call(self, function: Callable[..., object], *arguments: object) -> None:
        """Call a function in the loop, in the order of these calls."""
        with suppress(RuntimeError):  # the loop has ended
            self.loop.call_soon_threadsafe(function, *arguments)

    def run(self, work: Coroutine[Any, Any, T], seconds: float) -> T:
        """Wait for a coroutine. Raises TimeoutError."""
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return future.result(seconds)
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """End the thread, after connections that were cut have closed."""
        with suppress(TimeoutError):
            self.run(_turn(), _CLOSE_SECONDS)
        self.call(self.loop.stop)
        self._thread.join()
        self.loop.close()


def send_encoded(links: Sequence[PeerLink], data: bytearray) -> None:
    """Send an encoded message to some servers. Belongs to the event loop."""
    for link in links:
        if link.channel is not None:
            link.channel.send_encoded(data)


async def _turn() -> None:
    """Let the callbacks run that closed connections have scheduled."""
    for _ in range(_TURNS):
        await asyncio.sleep(0)
