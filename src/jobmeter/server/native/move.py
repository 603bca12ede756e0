"""``/store/move``: move the telemetry to another engine while the server runs."""

from collections.abc import Generator, Iterator

import msgspec

from jobmeter.errors import JobmeterError
from jobmeter.model.move import MoveLine, MoveOrder
from jobmeter.server.native.endpoint import CallContext, Endpoint, Stream

HEADING = "server"


@Endpoint(
    "moveStore",
    "POST /store/move",
    "server:admin",
    answer=MoveLine,
    answer_type="application/x-ndjson",
    body=MoveOrder,
    example={"to": "clickhousedb://jobmeter:PASSWORD@clickhouse:8123/jobmeter", "compare": True},
    lane="control",
)
def _move(context: CallContext) -> Stream:
    """Move the samples, roll-ups, log lines and spans to another engine, or compare both.

    The answer has a JSON object per line: the step that begins, at the end the report or the error that ended the move.
    For the last seconds of a move the server refuses writes with 503. After the report it refuses them until it is
    started again with the other engine. The same call continues a move that ended early. If the client disconnects, the
    move stops and writes are accepted again.
    """
    return Stream(_lines(context.services.store.move(context.body(MoveOrder))), "application/x-ndjson")


def _lines(steps: Iterator[MoveLine]) -> Generator[bytes]:
    # A refusal before the first step is an error with a status of its own.
    line = next(steps, None)
    try:
        while line is not None:
            yield msgspec.json.encode(line) + b"\n"
            line = next(steps, None)
    except JobmeterError as error:
        yield msgspec.json.encode(MoveLine(error=error.message)) + b"\n"
    finally:
        if isinstance(steps, Generator):
            steps.close()
