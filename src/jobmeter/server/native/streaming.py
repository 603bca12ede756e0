"""Send an answer of any length: produced on a lane's threads, no faster than the client reads."""

import threading

from jobmeter.server.admission import Lane
from jobmeter.server.exchange import Exchange
from jobmeter.server.native.endpoint import Stream
from jobmeter.server.services import Lanes


class Pieces:
    """Pieces of a stream, taken by one thread at a time. ``take`` and ``stop`` are thread-safe."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._lock = threading.Lock()
        self._taking = False
        self.over = False
        """True once the stream was stopped."""

    def take(self) -> bytes | None:
        """Produce the next piece; None after the last one or once stopped."""
        with self._lock:
            if self.over:
                return None
            self._taking = True
        try:
            return next(self._stream.chunks, None)
        finally:
            if self._mark_taken():
                self._stream.close()

    def _mark_taken(self) -> bool:
        """Mark the current piece as produced. True if the stream was stopped meanwhile."""
        with self._lock:
            self._taking = False
            return self.over

    def stop(self) -> None:
        """Stop producing and release the stream's resources, at once or after the current piece."""
        with self._lock:
            if self.over:
                return
            self.over = True
            taking = self._taking
        if not taking:
            self._stream.close()


async def send(stream: Stream, lanes: Lanes, lane: Lane, exchange: Exchange) -> None:
    """Send the stream. A failure before the first piece is raised before the answer begins.

    Raises QueryTimeoutError when the client does not read. The stream is always closed soon after.
    """
    pieces = Pieces(stream)
    try:
        piece = await lane.run(pieces.take, admitted=True)
        await exchange.begin(stream.content_type, stream.headers)
        while piece is not None and exchange.call.method != "HEAD":
            await exchange.send_part(piece, stream.patience)
            piece = await lane.run(pieces.take, admitted=True)
        # Before the last chunk: a client that then requests its next export must not find this one counted.
        await lane.run(pieces.stop, admitted=True)
        await exchange.end()
    finally:
        if not pieces.over:
            lanes.control.submit(pieces.stop)
