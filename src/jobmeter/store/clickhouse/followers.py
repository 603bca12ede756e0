"""The leader's end of its connections with followers."""

import hmac
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from jobmeter.errors import UnavailableError
from jobmeter.model.batch import SampleBatch, SeriesKeys
from jobmeter.store.channel import Channel, encode_message
from jobmeter.store.clickhouse.peer_link import CopiedRows, PeerLink, PeerLoop, send_encoded
from jobmeter.store.clickhouse.peer_messages import (
    READ_BY_LEADER,
    Accepted,
    Append,
    CaughtUp,
    CompleteReplicas,
    Confirm,
    Copy,
    DataChanged,
    Done,
    Failure,
    Flushed,
    Hello,
    Join,
    LeaderCommand,
    Ping,
    Pong,
    ReadyToFollow,
    ReceivedLists,
    Refused,
    SentLists,
    ToFollower,
    ToLeader,
    Welcome,
    pack_runs,
    unpack_batches,
)
from jobmeter.store.clickhouse.replica_state import ReplicaSetState
from jobmeter.store.clickhouse.rows import SampleRuns

if TYPE_CHECKING:
    from jobmeter.store.clickhouse.peer_work import PeerWork

CONNECT_SECONDS = 2.0
_APPEND_SECONDS = 60.0
_STRANGER_BYTES, _MOST_BYTES = 1_024, 2**30
_MOST_STRANGERS = 64
_RETRY_AFTER_MS = 1_000


class Followers:
    """The leader's end: connections of servers that follow, or want to. Also the ``CopyStream`` of its journal."""

    def __init__(self, loop: PeerLoop, rows: CopiedRows, now: Callable[[], float], secret: str) -> None:
        self._loop = loop
        self._rows = rows
        self._now = now
        self._secret = secret
        self.may_sign: Callable[[], bool] = lambda: False
        self.read_intent: Callable[[], int] = lambda: 0
        self.replicas: Callable[[], ReplicaSetState | None] = lambda: None
        """Returns the record of the replicas that followers may read; None if there are no replicas."""
        self.work: PeerWork | None = None
        self._changed = threading.Condition()  # guards the following fields
        self._accepts = False
        self._allowed = frozenset[int]()
        self._links: set[PeerLink] = set()  # every connection
        self._targets: tuple[PeerLink, ...] = ()  # those that get copies
        self._ready: dict[int, PeerLink] = {}
        self._members: dict[int, PeerLink] = {}
        self._position = 0
        self._lists = SentLists[SeriesKeys]()
        self.term = 0
        """Number of times that this server gave up its followers."""

    def connect(self) -> Channel:
        """Return the protocol of a new connection."""
        link = PeerLink(self._now, lambda: self.may_sign())  # noqa: PLW0108 - it is set later
        lists = ReceivedLists[SampleBatch]()
        channel = Channel(
            READ_BY_LEADER, lambda message: self._take(link, lists, message), lambda: self._note_end(link)
        )
        channel.most = _STRANGER_BYTES
        link.channel = channel
        with self._changed:
            strangers = sum(1 for one in self._links if not one.server)
            self._links.add(link)
        if strangers >= _MOST_STRANGERS:
            self._loop.loop.call_soon(link.cut)
        else:
            self._loop.loop.call_later(CONNECT_SECONDS, lambda: None if link.server else link.cut())
        return channel

    def welcome(self, servers: frozenset[int]) -> None:
        """Let these servers follow this one, and no others."""
        with self._changed:
            self._accepts, self._allowed = True, servers
            for link in list(self._ready.values()):
                self._admit(link)

    def list_followers(self) -> Sequence[PeerLink]:
        """Return the followers without which nothing is acknowledged."""
        return tuple(self._members.values())

    def drop(self, server: int) -> None:
        """Acknowledge without this follower from now on."""
        with self._changed:
            link = self._members.pop(server, None)
            self._changed.notify_all()
        if link is not None:
            self._loop.call(link.cut)

    def refuse(self) -> None:
        """Close the connections of all followers, and let none follow."""
        with self._changed:
            self._accepts, self._allowed, self._targets = False, frozenset(), ()
            self.term += 1
            self._changed.notify_all()
            links = list(self._links)
        for link in links:
            link.is_closed = True
            self._loop.call(link.cut)

    def ping(self) -> None:
        """Ask every server that has joined for a sign of life."""
        for link in self._targets:
            link.ping()

    def note_added(self, group: Sequence[SampleRuns]) -> None:
        """Send rows that the journal has now. The journal adds nothing else meanwhile."""
        with self._changed:
            if self._targets or self._members:  # a follower whose connection has ended counts until it is dropped
                self._position += 1
                self._lists.make_room()
                runs = [pack_runs(rows, self._lists) for rows in group]
                self._send_all(Copy(self._position, self._lists.epoch, self.read_intent(), runs))

    def note_flushed(self, blocks: int) -> None:
        """Send that the engine has the oldest rows of the journal."""
        with self._changed:
            self._send_all(Flushed(blocks))

    def announce(self, record: ReplicaSetState) -> None:
        """Send which replicas have all data."""
        with self._changed:
            self._position += 1
            self._send_all(CompleteReplicas(self._position, record))

    def send_change(self, jobs: Sequence[int] | None, *, dropped: bool, records: Sequence[str] = ()) -> None:
        """Send that other data changed. ``records`` are the ids of jobs whose records changed."""
        with self._changed:
            self._position += 1
            self._send_all(DataChanged(self._position, jobs, dropped, records))

    def await_followers(self, term: int) -> None:
        """Return when each follower has what was sent before.

        ``term`` is the one from before that. Raises UnavailableError if this server gave up its followers since: the
        others may have expelled it.
        """
        with self._changed:
            position, deadline = self._position, self._now() + _APPEND_SECONDS
            while any(one.position < position for one in self._members.values()):
                left = deadline - self._now()
                if self.term != term or left <= 0 or not self._changed.wait(left):
                    break
            if self.term != term or any(one.position < position for one in self._members.values()):
                raise UnavailableError("a server that follows did not confirm the samples: try again", _RETRY_AFTER_MS)

    def _send_all(self, message: ToFollower) -> None:
        if self._targets:
            self._loop.call(send_encoded, self._targets, encode_message(message))

    def _take(self, link: PeerLink, lists: ReceivedLists[SampleBatch], message: ToLeader) -> None:
        if not link.server:
            self._greet(link, message)
            return
        match message:
            case Confirm(position=position):
                with self._changed:
                    link.position = position
                    self._changed.notify_all()
            case Append() | LeaderCommand():
                self._take_call(link, lists, message)
            case Ping() | Pong():
                link.take_sign(message)
            case Join():
                self._join(link)
            case ReadyToFollow():
                with self._changed:
                    self._ready[link.server] = link
                    self._admit(link)
            case Hello():
                link.cut()

    def _take_call(self, link: PeerLink, lists: ReceivedLists[SampleBatch], message: Append | LeaderCommand) -> None:
        number, work = message.number, self.work
        if work is None:
            link.cut()
        elif isinstance(message, Append):
            batches = unpack_batches(message, lists)
            work.append(batches, message.retention, lambda failure: self._finish(link, number, 0, failure))
        else:
            work.run(message, lambda value, failure: self._finish(link, number, value, failure))

    def _greet(self, link: PeerLink, message: ToLeader) -> None:
        if not isinstance(message, Hello) or not hmac.compare_digest(message.secret.encode(), self._secret.encode()):
            link.cut()
        elif not self._accepts or not message.server:
            link.server = message.server or 1
            link.send(Refused())
        else:
            link.server = message.server
            if link.channel is not None:
                link.channel.most = _MOST_BYTES
            link.send(Accepted())

    def _join(self, link: PeerLink) -> None:
        """Send all rows of the journal, and from now on each that is added."""
        self.drop(link.server)  # an earlier connection of the same server, which has given up its copies

        def take(groups: Sequence[SampleRuns]) -> None:
            with self._changed:
                if not self._accepts:
                    return
                self._lists.restart()
                record = self.replicas()
                if record is not None:
                    link.send(CompleteReplicas(0, record))
                for rows in groups:
                    self._lists.make_room()
                    link.send(Copy(0, self._lists.epoch, self.read_intent(), [pack_runs(rows, self._lists)]))
                self._lists.restart()  # the other followers did not get these lists
                link.position = self._position
                self._targets = (*self._targets, link)

        self._rows.register(take)
        link.ping()
        link.send(CaughtUp())

    def _admit(self, link: PeerLink) -> None:
        """Count a follower that is ready and allowed."""
        if self._accepts and link.server in self._allowed and not link.is_closed:
            del self._ready[link.server]
            self._members[link.server] = link
            link.since = self._now()
            self._loop.call(link.send, Welcome())

    def _finish(self, link: PeerLink, number: int, value: int, failure: Failure | None) -> None:
        self._loop.call(link.send, Done(number, value, failure))

    def _note_end(self, link: PeerLink) -> None:
        link.is_closed = True
        with self._changed:
            self._links.discard(link)
            self._targets = tuple(one for one in self._targets if one is not link)
            if self._ready.get(link.server) is link:
                del self._ready[link.server]
