"""Bodies of samples that a worker reads: it sends their columns to the storage process, which stores them."""

from collections.abc import Awaitable, Sequence

from jobmeter.access.principal import Principal
from jobmeter.ingest.receipt import Receipt
from jobmeter.server.workers.frames import PIECE_BYTES, SamplesRead, SamplesStored
from jobmeter.server.workers.owned import OwnedPart, OwnerNeededError
from jobmeter.server.workers.requests import Requests
from jobmeter.settings import Limits
from jobmeter.store.channel import Channel
from jobmeter.wire.native.decode import FrameColumns, read_columns
from jobmeter.wire.native.series_lists import ListDigester

_WAITING_BYTES = 4 * 2**20
"""Bytes of all columns that wait for their receipts."""


class WorkerPipeline:
    """Ingest of a worker, with the methods of ``IngestPipeline`` that need no registry. Belongs to the event loop."""

    senders = None

    def __init__(self, channel: Channel, limits: Limits, digester: ListDigester) -> None:
        self._limits = limits
        self._digester = digester
        self._requests = Requests[Receipt | None](channel)
        self._waiting_bytes = 0

    def submit_from_memory(self, body: bytes, principal: Principal) -> Awaitable[Receipt] | None:
        """Read a body of samples, and have the storage process store it; None for any other body.

        Raises JobmeterError for invalid content. The result raises OwnerNeededError if the call has to be forwarded.
        """
        room = min(PIECE_BYTES, _WAITING_BYTES - self._waiting_bytes)
        frames = read_columns(body, self._limits, self._digester, room)
        return None if frames is None else self._store_samples(frames, principal)

    async def _store_samples(self, frames: Sequence[FrameColumns], principal: Principal) -> Receipt:
        size = sum(len(frame.time) + len(frame.value) + len(frame.counts) for frame in frames)
        self._waiting_bytes += size
        try:
            receipt = await self._requests.send(lambda number: SamplesRead(number, principal, frames))
        finally:
            self._waiting_bytes -= size
        if receipt is None:
            raise OwnerNeededError("samples")
        return receipt

    def take(self, stored: SamplesStored) -> None:
        """Take the receipt of a body."""
        self._requests.take(stored.number, stored.receipt)


class WorkerTelemetry(OwnedPart):
    """Telemetry of a worker: the storage process counts what it stores."""

    def count_ingested(self, receipt: Receipt) -> None:
        """Do nothing: the storage process has counted the receipt."""
