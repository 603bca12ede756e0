"""Sending an answer of any length: produced on a lane's threads, as fast as the client reads and no faster."""

import asyncio
import threading

from jobmeter.errors import QueryTimeoutError
from jobmeter.server.admission import Lane
from jobmeter.server.exchange import Exchange
from jobmeter.server.native.endpoint import Stream
from jobmeter.server.services import Lanes


class Pieces:
    """The pieces of a stream, taken on one thread after the other. ``take`` and ``stop`` are for any thread."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._lock = threading.Lock()
        self._taking = False
        self.over = False
        """True once it was stopped."""

    def take(self) -> bytes | None:
        """The next piece, None after the last one and once it was stopped."""
        with self._lock:
            if self.over:
                return None
            self._taking = True
        try:
            return next(self._stream.chunks, None)
        finally:
            if self._taken():
                self._stream.close()

    def _taken(self) -> bool:
        """Note that no piece is under way any more; True when it was stopped meanwhile."""
        with self._lock:
            self._taking = False
            return self.over

    def stop(self) -> None:
        """Produce no more, and let go of what the stream holds; at once, or when the piece under way is done."""
        with self._lock:
            if self.over:
                return
            self.over = True
            taking = self._taking
        if not taking:
            self._stream.close()


async def send(stream: Stream, lanes: Lanes, lane: Lane, exchange: Exchange) -> None:
    """Send the stream. What fails before the first piece is raised before the answer began.

    Raises QueryTimeoutError when the client does not read. However it ends, the stream is closed soon after.
    """
    pieces = Pieces(stream)
    try:
        piece = await lane.run(pieces.take, admitted=True)
        await exchange.begin(stream.content_type, stream.headers)
        while piece is not None and exchange.call.method != "HEAD":
            await _pass_on(exchange, piece, stream.patience)
            piece = await lane.run(pieces.take, admitted=True)
        # Before the last chunk: a client that then requests its next export must not find this one counted.
        await lane.run(pieces.stop, admitted=True)
        await exchange.end()
    finally:
        if not pieces.over:
            lanes.control.submit(pieces.stop)


async def _pass_on(exchange: Exchange, piece: bytes, patience: float) -> None:
    try:
        async with asyncio.timeout(patience):
            await exchange.go_on(piece)
    except TimeoutError as error:
        raise QueryTimeoutError(f"the client read nothing for {patience:g} seconds") from error
