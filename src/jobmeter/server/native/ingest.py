"""``/ingest``: samples, log lines and records in the native wire format."""

from collections.abc import Awaitable

import msgspec

from jobmeter.dialects.base import Answer
from jobmeter.errors import InvalidRequestError
from jobmeter.ingest.receipt import Receipt
from jobmeter.server.native.endpoint import CallContext, Endpoint

FRAMES = "application/vnd.jobmeter.frames"


class Ingested(msgspec.Struct, frozen=True, omit_defaults=True):
    """Receipt of an ingest: all accepted data is durable. Fields about lines are absent if the body had none.

    ``time`` is the server's clock (epoch ms). ``unknown`` names metrics, and fields of records and lines, that this
    server does not know and dropped.
    """

    accepted: int
    records: int
    rejected: dict[str, int]
    lines: int = 0
    rejected_lines: dict[str, int] = {}
    time: int = 0
    unknown: tuple[str, ...] = ()


HEADING = "ingest"


def _ingest_from_memory(context: CallContext) -> Awaitable[Answer] | None:
    """Accept the body on the event loop; None if it contains new series."""
    _check(context)
    pending = context.services.pipeline.submit_from_memory(context.call.body, context.principal)
    return None if pending is None else _finish(context, pending)


@Endpoint(
    "ingest",
    "POST /ingest",
    "ingest:write",
    begin=_ingest_from_memory,
    answer=Ingested,
    body_text="Frames.",
    body_type=FRAMES,
    lane="write",
    large=True,
)
def _ingest(context: CallContext) -> Awaitable[Answer]:
    """Send samples, log lines and records.

    The body is a sequence of frames (docs/reference/wire-format.md). An invalid body is refused as a whole. The answer
    comes when all accepted data is durable. After status 429 or 503 a part of the body may be stored: send the same
    bytes again, at any time; each sample, line and record counts once.
    """
    _check(context)
    # The thread is free while the body is stored, so that commits of new series can be grouped.
    return _finish(context, context.services.pipeline.submit(context.call.body, context.principal, context.call.take))


async def _finish(context: CallContext, pending: Awaitable[Receipt]) -> Answer:
    return Answer(200, msgspec.json.encode(_make_answer(context, await pending)))


def _check(context: CallContext) -> None:
    kind = context.call.get_header("content-type").partition(";")[0].strip().lower()
    if kind != FRAMES:
        raise InvalidRequestError(f"Content-Type must be {FRAMES}, got {kind[:100]!r}", "Content-Type")
    if context.call.get_header("content-encoding", "identity").lower() != "identity":
        raise InvalidRequestError(
            "Content-Encoding must be absent: frames carry their own compression", "Content-Encoding"
        )


def _make_answer(context: CallContext, receipt: Receipt) -> Ingested:
    context.services.telemetry.count_ingested(receipt)
    return Ingested(
        accepted=receipt.accepted,
        records=receipt.records,
        rejected=receipt.rejected,
        lines=receipt.lines,
        rejected_lines=receipt.rejected_lines,
        time=context.services.clock.now_ms(),
        unknown=receipt.unknown,
    )
