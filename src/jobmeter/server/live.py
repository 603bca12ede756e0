"""Live updates as server-sent events: one query per interval, regardless of the number of viewers.

https://html.spec.whatwg.org/multipage/server-sent-events.html.
"""

import asyncio
import logging
from collections.abc import Callable, Hashable
from functools import cached_property, partial

import msgspec

from jobmeter.errors import JobmeterError, NotFoundError, ThrottledError
from jobmeter.server.admission import Lane
from jobmeter.server.exchange import Exchange
from jobmeter.server.shared_gzip import HEAD, GzipPart, SharedGzip

_log = logging.getLogger("jobmeter.server")

INTERVAL_SECONDS = 2.0
LEISURE = 5.0
"""Least pause between two queries, as a multiple of a query's run time."""
PATIENCE_SECONDS = 30.0
"""Longest time in seconds for a viewer to read one update."""
MOST_VIEWERS = 1_000
MOST_TOPICS = 200
"""Different views at one time. Further viewers of an open view cost no query and are admitted."""
CONTENT_TYPE = "text/event-stream; charset=utf-8"
HEADERS = (("cache-control", "no-store"), ("x-accel-buffering", "no"), ("vary", "accept-encoding"))
_GZIP = (("content-encoding", "gzip"),)


class Update(msgspec.Struct, frozen=True):
    """Result of a live question: JSON in one line. ``last`` marks the end of the stream."""

    data: bytes
    last: bool = False


class Feed(msgspec.Struct, frozen=True):
    """Live stream for one authorised viewer.

    Viewers of one ``topic`` share its updates: one viewer's ``question`` runs for all, on a thread. ``renew`` raises
    JobmeterError when the viewer loses access. ``seconds`` is the least time between two queries; 0 uses the hub's
    default.
    """

    topic: Hashable
    question: Callable[[], Update]
    renew: Callable[[], object]
    seconds: float = 0.0


class _Event(msgspec.Struct, frozen=True, dict=True):
    """Event for all viewers of a topic, compressed at most once."""

    text: bytes

    def __bool__(self) -> bool:
        return bool(self.text)

    @cached_property
    def part(self) -> GzipPart:
        """Text of the event as a part of a gzip stream."""
        return GzipPart.from_content(self.text)


_NOTHING = _Event(b"")
_RETRY = _Event(b"retry: 2000\n\n")
_END = _Event(b"event: end\ndata: {}\n\n")
_REFUSED = _Event(b"event: refused\ndata: {}\n\n")


class _Viewer(msgspec.Struct, eq=False):
    """Viewer with its newest unsent event. A slow viewer misses events, but never the last one."""

    feed: Feed
    gzip: SharedGzip | None = None
    event: _Event = _NOTHING
    over: bool = False
    news: asyncio.Event = msgspec.field(default_factory=asyncio.Event)

    def send(self, event: _Event, *, over: bool = False) -> None:
        if self.over:
            return
        self.event, self.over = event or self.event, self.over or over
        self.news.set()


class _Topic(msgspec.Struct, eq=False):
    viewers: list[_Viewer] = msgspec.field(default_factory=list)
    newest: _Event = _NOTHING
    task: "asyncio.Task[None] | None" = None


class Hub:
    """Hub that shares answers among viewers. Belongs to the event loop."""

    def __init__(self, lane: Lane, seconds: float = INTERVAL_SECONDS, most: int = MOST_VIEWERS) -> None:
        self._lane = lane
        self._seconds = seconds
        self._most = most
        self._topics: dict[Hashable, _Topic] = {}
        self._closed = False

    @property
    def viewers(self) -> int:
        """Number of connected viewers."""
        return sum(len(topic.viewers) for topic in self._topics.values())

    async def send(self, feed: Feed, exchange: Exchange) -> None:
        """Send updates until the topic ends, the viewer's credential expires or the viewer leaves.

        Raises ThrottledError when too many viewers are connected.
        """
        if exchange.call.method == "HEAD":
            await exchange.begin(CONTENT_TYPE, HEADERS)
            await exchange.end()
            return
        topic, viewer = self._join(feed, SharedGzip() if _takes_gzip(exchange) else None)
        pass_on = partial(exchange.send_part, patience=PATIENCE_SECONDS, reader="viewer")
        try:
            await exchange.begin(CONTENT_TYPE, HEADERS + _GZIP if viewer.gzip else HEADERS)
            if viewer.gzip:
                await pass_on(HEAD)
            await pass_on(_bytes(_RETRY, viewer))
            while True:
                await viewer.news.wait()
                viewer.news.clear()
                event, viewer.event = viewer.event, _NOTHING
                if event:
                    await pass_on(_bytes(event, viewer))
                if viewer.over:
                    break
            if viewer.gzip:
                await pass_on(viewer.gzip.end())
            await exchange.end()
        finally:
            self._leave(topic, viewer)

    def close(self) -> None:
        """End every stream when the server stops."""
        self._closed = True
        for topic in self._topics.values():
            for viewer in topic.viewers:
                viewer.send(_NOTHING, over=True)

    def _join(self, feed: Feed, gzip: SharedGzip | None) -> tuple[_Topic, _Viewer]:
        if self._closed or self.viewers >= self._most:
            raise ThrottledError(f"there are {self.viewers} live viewers already, try again", 10_000)
        if feed.topic not in self._topics and len(self._topics) >= MOST_TOPICS:
            raise ThrottledError(f"{len(self._topics)} different live views are open already, try again", 10_000)
        topic = self._topics.setdefault(feed.topic, _Topic())
        viewer = _Viewer(feed, gzip)
        topic.viewers.append(viewer)
        if topic.newest:
            viewer.send(topic.newest)
        if topic.task is None:
            topic.task = asyncio.create_task(self._poll(topic, max(feed.seconds, self._seconds)))
        return topic, viewer

    def _leave(self, topic: _Topic, viewer: _Viewer) -> None:
        topic.viewers.remove(viewer)
        if topic.viewers:
            return
        if self._topics.get(viewer.feed.topic) is topic:
            del self._topics[viewer.feed.topic]
        if topic.task is not None:
            topic.task.cancel()

    async def _poll(self, topic: _Topic, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        try:
            over = False
            while not over:
                began = loop.time()
                event, over = await self._update(topic)
                topic.newest = event
                for viewer in topic.viewers:
                    viewer.send(event, over=over)
                took = loop.time() - began
                if not over:
                    await asyncio.sleep(max(seconds - took, took * (LEISURE - 1)))
        finally:
            # A viewer who joins from now on starts a new task.
            self._topics = {name: one for name, one in self._topics.items() if one is not topic}
            for viewer in topic.viewers:
                viewer.send(_NOTHING, over=True)

    async def _update(self, topic: _Topic) -> tuple[_Event, bool]:
        """Return the next event. The flag is True for the last one."""
        viewers = [viewer for viewer in topic.viewers if not viewer.over]
        if not viewers:
            return _NOTHING, False
        try:
            gone, event, over = await self._lane.run(partial(_update_viewers, viewers))
        except JobmeterError as error:
            return _problem(error), False
        for viewer in gone:
            viewer.send(_REFUSED, over=True)
        return event, over


def _update_viewers(viewers: list[_Viewer]) -> tuple[list[_Viewer], _Event, bool]:
    """Query once for all viewers. Returns viewers who lost access, the event, and True if it is the last.

    Access is checked when the event is ready, so that no viewer gets an event after losing access.
    """
    event, over = _ask_feed(viewers[0].feed)
    gone = [viewer for viewer in viewers if not _may_see(viewer)]
    if any(viewer.gzip for viewer in viewers):
        _ = event.part  # compress here rather than on the event loop
    return gone, event, over


def _ask_feed(feed: Feed) -> tuple[_Event, bool]:
    try:
        update = feed.question()
    except NotFoundError:
        return _END, True
    except JobmeterError as error:
        return _problem(error), False
    return _Event(b"data: %s\n\n%s" % (update.data, _END.text if update.last else b"")), update.last


def _problem(error: JobmeterError) -> _Event:
    return _Event(b"event: problem\ndata: %s\n\n" % msgspec.json.encode({"message": error.message}))


def _may_see(viewer: _Viewer) -> bool:
    try:
        viewer.feed.renew()
    except JobmeterError as error:
        _log.debug("a live stream ended: %s", error.message)
        return False
    return True


def _takes_gzip(exchange: Exchange) -> bool:
    parts = exchange.call.get_header("accept-encoding").lower().replace(" ", "").split(",")
    return any(part == "gzip" or (part.startswith("gzip;q=") and part.strip(".0") != "gzip;q=") for part in parts)


def _bytes(event: _Event, viewer: _Viewer) -> bytes:
    return viewer.gzip.add(event.part) if viewer.gzip else event.text
