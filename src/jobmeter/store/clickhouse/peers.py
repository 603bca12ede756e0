"""Connections of a server with the other servers of its engine: with its followers, or with its leader.

One thread runs an event loop that has all connections. Other threads hand messages to it.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from jobmeter.errors import UnavailableError
from jobmeter.store.clickhouse.followers import CONNECT_SECONDS, Followers
from jobmeter.store.clickhouse.leader_link import LeaderLink
from jobmeter.store.clickhouse.peer_link import CopiedRows, PeerLoop
from jobmeter.store.clickhouse.peer_messages import Hello, Join
from jobmeter.store.clickhouse.peer_place import (
    PeerPlace,
    compute_digest,
    find_own_address,
    is_wildcard,
    make_client_context,
    make_secret,
    make_server_context,
)
from jobmeter.store.clickhouse.roles import Joining
from jobmeter.store.clickhouse.servers import ServerRow
from jobmeter.store.clickhouse.target import Place

T = TypeVar("T")
_log = logging.getLogger(__name__)
PING_SECONDS = 0.5
_JOIN_SECONDS = 12.0


class PeerService:
    """Connections of a server. See ``ServerPeers``."""

    def __init__(
        self, listen: Place, engine: Sequence[Place], folder: Path, rows: CopiedRows, now: Callable[[], float]
    ) -> None:
        """``folder`` is for the certificate. Raises UnavailableError if the address cannot be listened on."""
        self._rows = rows
        self._now = now
        self._client = make_client_context()
        context, certificate = make_server_context(folder)
        secret = make_secret()
        self._loop = PeerLoop()
        self.followed = followed = Followers(self._loop, rows, now, secret)
        self.welcome, self.list_followers = followed.welcome, followed.list_followers
        self.drop, self.refuse = followed.drop, followed.refuse
        self._leader: LeaderLink | None = None
        self.renew: Callable[[], None] = lambda: None
        """Callback twice a second, after the questions for signs of life."""
        host, port = listen
        try:
            self._server = self._loop.run(self._listen(context, host, port), CONNECT_SECONDS)
        except (OSError, TimeoutError) as error:
            self._loop.close()
            raise UnavailableError(
                f"the address {host}:{port} for the other servers cannot be used ({error}): set --peer-listen"
            ) from error
        port = self._server.sockets[0].getsockname()[1]
        seen = find_own_address(engine) if is_wildcard(host) else host
        self._place = PeerPlace(seen, port, certificate, secret).format()
        self._loop.call(self._ping)

    @property
    def place(self) -> str:
        """Return the text by which others reach this server."""
        return self._place

    @property
    def leader(self) -> LeaderLink | None:
        """Return the connection with the leader; None for none."""
        return self._leader

    def follow(self, leader: ServerRow, number: int, resign: Callable[[], None]) -> Joining:
        """Follow a leader."""
        self.leave()
        place = PeerPlace.parse(leader.peer)
        if place is None:
            return Joining.UNREACHABLE
        link = LeaderLink(self._loop, self._rows, self._now)
        try:
            if not self._loop.run(self._greet(link, place, number), 3 * CONNECT_SECONDS):
                self._loop.call(link.cut)
                return Joining.REFUSED
        except (OSError, TimeoutError, ssl.SSLError) as error:
            self._loop.call(link.cut)
            _log.debug("the server at %s:%d cannot be reached: %s", place.host, place.port, error)
            return Joining.UNREACHABLE
        try:
            resign()
            self._rows.begin_copies()
            self._leader = link
            self._loop.call(link.send, Join())
            welcomed = self._loop.run(_await(link.welcomed), _JOIN_SECONDS)
        except TimeoutError:
            welcomed = False
        except BaseException:
            self.leave()
            raise
        if welcomed:
            return Joining.FOLLOWS
        self.leave()
        return Joining.REFUSED

    def leave(self) -> None:
        """Close the connection with the leader."""
        link, self._leader = self._leader, None
        if link is not None:
            link.is_closed = True
            self._loop.call(link.cut)

    def close(self) -> None:
        """Close all connections."""
        self.leave()
        self.refuse()
        self._loop.call(self._server.close)
        if self.followed.work is not None:
            self.followed.work.close()
        self._loop.close()

    async def _listen(self, context: ssl.SSLContext, host: str, port: int) -> asyncio.Server:
        loop = asyncio.get_running_loop()
        return await loop.create_server(
            self.followed.connect, host, port, ssl=context, ssl_handshake_timeout=CONNECT_SECONDS
        )

    async def _greet(self, link: LeaderLink, place: PeerPlace, number: int) -> bool:
        """Connect to a leader. Return True if it accepts this server."""
        channel = link.channel
        assert channel is not None  # noqa: S101 - set by the constructor
        connecting = asyncio.get_running_loop().create_connection(
            lambda: channel, place.host, place.port, ssl=self._client, ssl_handshake_timeout=CONNECT_SECONDS
        )
        transport, _ = await asyncio.wait_for(connecting, CONNECT_SECONDS)
        socket = transport.get_extra_info("ssl_object")
        if compute_digest(socket.getpeercert(binary_form=True) or b"") != place.certificate:
            raise ConnectionError("another program answers there")
        link.send(Hello(number, place.secret))
        return await asyncio.wait_for(link.accepted, CONNECT_SECONDS)

    def _ping(self) -> None:
        self.followed.ping()
        if self._leader is not None and not self._leader.is_closed:
            self._leader.ping()
        self.renew()
        self._loop.loop.call_later(PING_SECONDS, self._ping)


async def _await(future: "asyncio.Future[T]") -> T:
    return await future
