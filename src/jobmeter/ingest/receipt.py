"""What became of a request's samples, lines and spans."""

import asyncio
from collections.abc import Generator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

import msgspec


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a request: ``accepted`` samples are durable, ``rejected`` ones are counted by reason.

    The same for log lines: ``lines`` and ``rejected_lines``; and for spans.

    Reasons: ``future`` (further ahead than the allowed clock error), ``expired`` (older than the project's retention),
    ``unknown_metric`` (not in the catalogue). ``unknown`` names what this release does not know, of a newer sender:
    metrics, and fields of records and lines, which were left out.
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
    """A receipt that is true once everything in ``durable`` is done: what awaiting it gives, on any event loop.

    Where that fails, so does waiting for it.
    """

    receipt: Receipt
    durable: Sequence[Future[None]]

    def wait(self) -> Receipt:
        """The receipt when it is true; blocks until then."""
        for one in self.durable:
            one.result()
        return self.receipt

    def __await__(self) -> Generator[object, None, Receipt]:
        return self._arrived().__await__()

    async def _arrived(self) -> Receipt:
        for one in self.durable:
            # Who does not wait any more does not keep what was taken from being stored.
            await asyncio.shield(asyncio.wrap_future(one))
        return self.receipt
