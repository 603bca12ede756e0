"""What is looked at live: one question an interval, however many look (server-sent events).

https://html.spec.whatwg.org/multipage/server-sent-events.html
"""

import asyncio
import logging
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

import msgspec

from jobmeter.errors import JobmeterError, NotFoundError, QueryTimeoutError, ThrottledError
from jobmeter.server.exchange import Exchange
from jobmeter.server.work import Lane

_log = logging.getLogger("jobmeter.server")

INTERVAL_SECONDS = 2.0
LEISURE = 5.0
"""A question is asked at most once in so many times the seconds that it takes."""
PATIENCE_SECONDS = 30.0
"""How long a viewer may take to read one update."""
MOST_VIEWERS = 1_000
MOST_TOPICS = 200
CONTENT_TYPE = "text/event-stream; charset=utf-8"
HEADERS = (("cache-control", "no-store"), ("x-accel-buffering", "no"))


@dataclass(frozen=True, slots=True)
class Update:
    """What a question gives: JSON in one line; ``last`` when nothing will follow."""

    data: bytes
    last: bool = False


@dataclass(frozen=True, slots=True)
class Feed:
    """What a viewer wants to see live, once let in.

    Viewers with the same ``topic`` see the same: the ``question`` of any of them is asked for all, on a thread.
    ``holds`` raises JobmeterError once the viewer's credential does no longer hold.
    """

    topic: Hashable
    question: Callable[[], Update]
    holds: Callable[[], object]


@dataclass(eq=False, slots=True)
class _Viewer:
    """One that looks: the newest event that it did not get yet. One that is slow misses some, and never the end."""

    feed: Feed
    event: bytes = b""
    over: bool = False
    news: asyncio.Event = field(default_factory=asyncio.Event)

    def tell(self, event: bytes, *, over: bool = False) -> None:
        if self.over:
            return
        self.event, self.over = event or self.event, self.over or over
        self.news.set()


@dataclass(eq=False, slots=True)
class _Topic:
    viewers: list[_Viewer] = field(default_factory=list)
    newest: bytes = b""
    task: "asyncio.Task[None] | None" = None


class Hub:
    """Shares answers among viewers. Belongs to the event loop."""

    def __init__(self, lane: Lane, seconds: float = INTERVAL_SECONDS, most: int = MOST_VIEWERS) -> None:
        self._lane = lane
        self._seconds = seconds
        self._most = most
        self._topics: dict[Hashable, _Topic] = {}
        self._closed = False

    @property
    def viewers(self) -> int:
        """How many look now."""
        return sum(len(topic.viewers) for topic in self._topics.values())

    async def send(self, feed: Feed, exchange: Exchange) -> None:
        """Send the viewer what comes until the topic ends, their credential ends or they go.

        Raises ThrottledError when too many look already.
        """
        if exchange.call.method == "HEAD":
            await exchange.begin(CONTENT_TYPE, HEADERS)
            await exchange.end()
            return
        topic, viewer = self._join(feed)
        try:
            await exchange.begin(CONTENT_TYPE, HEADERS)
            await _pass_on(exchange, b"retry: 2000\n\n")
            while True:
                await viewer.news.wait()
                viewer.news.clear()
                event, viewer.event = viewer.event, b""
                if event:
                    await _pass_on(exchange, event)
                if viewer.over:
                    break
            await exchange.end()
        finally:
            self._leave(topic, viewer)

    def close(self) -> None:
        """End every stream: the server stops."""
        self._closed = True
        for topic in self._topics.values():
            for viewer in topic.viewers:
                viewer.tell(b"", over=True)

    def _join(self, feed: Feed) -> tuple[_Topic, _Viewer]:
        if self._closed or self.viewers >= self._most or len(self._topics) >= MOST_TOPICS:
            raise ThrottledError(f"{self.viewers} look at something live already, try again", 10_000)
        topic = self._topics.setdefault(feed.topic, _Topic())
        viewer = _Viewer(feed)
        topic.viewers.append(viewer)
        if topic.newest:
            viewer.tell(topic.newest)
        if topic.task is None:
            topic.task = asyncio.create_task(self._keep_asking(topic))
        return topic, viewer

    def _leave(self, topic: _Topic, viewer: _Viewer) -> None:
        topic.viewers.remove(viewer)
        if topic.viewers:
            return
        if self._topics.get(viewer.feed.topic) is topic:
            del self._topics[viewer.feed.topic]
        if topic.task is not None:
            topic.task.cancel()

    async def _keep_asking(self, topic: _Topic) -> None:
        loop = asyncio.get_running_loop()
        try:
            over = False
            while not over:
                began = loop.time()
                event, over = await self._ask(topic)
                topic.newest = event
                for viewer in topic.viewers:
                    viewer.tell(event, over=over)
                took = loop.time() - began
                if not over:
                    await asyncio.sleep(max(self._seconds - took, took * (LEISURE - 1)))
        finally:
            # Whoever comes now begins anew.
            self._topics = {name: one for name, one in self._topics.items() if one is not topic}
            for viewer in topic.viewers:
                viewer.tell(b"", over=True)

    async def _ask(self, topic: _Topic) -> tuple[bytes, bool]:
        """The next event, and whether it is the last."""
        viewers = list(topic.viewers)
        try:
            gone, update = await self._lane.run(_asked, viewers)
        except NotFoundError:
            return b"event: end\ndata: {}\n\n", True
        except JobmeterError as error:
            return b"event: problem\ndata: %s\n\n" % msgspec.json.encode({"message": error.message}), False
        for viewer in gone:
            viewer.tell(b"event: refused\ndata: {}\n\n", over=True)
        if update is None:
            return b"", False
        event = b"data: %s\n\n" % update.data
        return (event + b"event: end\ndata: {}\n\n", True) if update.last else (event, False)


def _asked(viewers: list[_Viewer]) -> tuple[list[_Viewer], Update | None]:
    """Those who may look no longer, and what the others see."""
    gone = [viewer for viewer in viewers if not _holds(viewer)]
    asker = next((viewer for viewer in viewers if viewer not in gone), None)
    return gone, asker.feed.question() if asker else None


def _holds(viewer: _Viewer) -> bool:
    try:
        viewer.feed.holds()
    except JobmeterError as error:
        _log.debug("a viewer is sent away: %s", error.message)
        return False
    return True


async def _pass_on(exchange: Exchange, event: bytes) -> None:
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await exchange.go_on(event)
    except TimeoutError as error:
        raise QueryTimeoutError(f"the viewer read nothing for {PATIENCE_SECONDS:g} seconds") from error
