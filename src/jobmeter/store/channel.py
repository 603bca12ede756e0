"""Connection between two processes of Jobmeter: messages in msgpack, each after its length in four bytes."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

import msgspec

LENGTH_BYTES = 4
MOST_BYTES = 2**20
"""Most bytes of a message by default; a longer one is unreadable."""
_UNSENT_BYTES = 4 * 2**20
"""Unsent bytes of a connection beyond which its writers wait."""
_JOINED_BYTES = 64 * 1024
"""Bytes of messages that wait for further ones, to be written together when the event loop comes to its next step."""


def _to_text(value: object) -> str:
    return str(value)


_ENCODER = msgspec.msgpack.Encoder(enc_hook=_to_text)


def encode_message(message: msgspec.Struct) -> bytearray:
    """Encode a message, preceded by its length."""
    data = bytearray(LENGTH_BYTES)
    _ENCODER.encode_into(message, data, LENGTH_BYTES)
    data[:LENGTH_BYTES] = (len(data) - LENGTH_BYTES).to_bytes(LENGTH_BYTES, "little")
    return data


class Channel(asyncio.Protocol):
    """Connection between two processes. Belongs to an event loop.

    ``received`` gets each message in order, ``lost`` is called once at the end. An unreadable message ends it.
    """

    def __init__(
        self,
        decoder: msgspec.msgpack.Decoder[Any],
        received: Callable[[Any], None],
        lost: Callable[[], None],
        most: int = MOST_BYTES,
    ) -> None:
        """``most`` bounds the bytes of a message. It may be raised when the other process has proved who it is."""
        self.most = most
        self._decoder = decoder
        self._received = received
        self._lost = lost
        self._data = bytearray()
        self._unsent = bytearray()
        self._transport: asyncio.Transport | None = None
        self._drained = asyncio.Event()
        self._drained.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Bound the unsent bytes."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(_UNSENT_BYTES)

    def data_received(self, data: bytes) -> None:
        """Pass the complete messages to ``received``."""
        buffer = self._data
        buffer += data
        at, size = 0, len(buffer)
        try:
            with memoryview(buffer) as view:
                while size - at >= LENGTH_BYTES:
                    length = int.from_bytes(view[at : at + LENGTH_BYTES], "little")
                    if size - at - LENGTH_BYTES < min(length, self.most):
                        break
                    at += LENGTH_BYTES + length
                    self._received(self._decoder.decode(view[at - length : at]))
        except msgspec.DecodeError:
            self.cut()
            raise
        del buffer[:at]

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's
        """Release the writers that wait."""
        self._transport = None
        self._drained.set()
        self._lost()

    def pause_writing(self) -> None:
        """Make writers wait."""
        self._drained.clear()

    def resume_writing(self) -> None:
        """Release the writers that wait."""
        self._drained.set()

    def send(self, message: msgspec.Struct) -> None:
        """Send a message; does nothing when the other process is gone."""
        if self._transport is not None:
            self.send_encoded(encode_message(message))

    def send_encoded(self, data: bytes | bytearray) -> None:
        """Send a message of ``encode_message``; does nothing when the other process is gone."""
        if self._transport is None:
            return
        if not self._unsent:
            asyncio.get_running_loop().call_soon(self._write)
        self._unsent += data
        if len(self._unsent) > _JOINED_BYTES:
            self._write()

    def _write(self) -> None:
        unsent, self._unsent = self._unsent, bytearray()
        if unsent and self._transport is not None:
            self._transport.write(unsent)

    async def drain(self) -> None:
        """Wait until the other process has read enough."""
        if not self._drained.is_set():
            await self._drained.wait()

    def cut(self) -> None:
        """Close at once."""
        if self._transport is not None:
            with suppress(OSError):
                self._transport.abort()
