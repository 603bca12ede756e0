"""Receipts: the numbers of a request's stored and rejected samples, lines and spans."""

import asyncio
from collections.abc import Generator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

import msgspec


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a request: ``accepted`` samples are durable, ``rejected`` ones are counted by reason.

    ``lines`` and ``rejected_lines`` count log lines in the same way, and so do the fields for spans.

    Reasons: ``future`` (further ahead than the allowed clock error), ``expired`` (older than the project's retention),
    ``unknown_metric`` (not in the catalogue). ``unknown`` names metrics, and fields of records and lines, that a newer
    sender sent and this release left out.
    """

    accepted: int = 0
    records: int = 0
    rejected: dict[str, int] = {}
    lines: int = 0
    rejected_lines: dict[str, int] = {}
    unknown: tuple[str, ...] = ()
    spans: int = 0
    rejected_spans: dict[str, int] = {}


@dataclass(frozen=True, slots=True)
class PendingReceipt:
    """A receipt that becomes true when everything in ``durable`` is done. Any event loop may await it.

    If any of it fails, waiting raises the error.
    """

    receipt: Receipt
    durable: Sequence[Future[None]]

    def wait(self) -> Receipt:
        """Block until the receipt is true, and return it."""
        for one in self.durable:
            one.result()
        return self.receipt

    def __await__(self) -> Generator[object, None, Receipt]:
        return self._await_arrival().__await__()

    async def _await_arrival(self) -> Receipt:
        for one in self.durable:
            # A cancelled wait must not cancel the write.
            await asyncio.shield(asyncio.wrap_future(one))
        return self.receipt
