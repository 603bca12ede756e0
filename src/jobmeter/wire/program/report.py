"""Reads the messages that ``jobmeter.log`` and its siblings send: one JSON object a datagram.

``{"jobmeter": 1, "points": [[TIME, STEP, {NAME: VALUE}]], "meta": {NAME: TEXT}, "events": [[TIME, LEVEL, REASON,
MESSAGE]], "dropped": COUNT}``. A time is milliseconds since the machine started, so that a step of the wall clock moves
no point. A step is a number or null. A value is a number, or ``nan``, ``inf`` or ``-inf`` as a text. All parts but the
version may be absent, and unknown ones are ignored.
"""

import msgspec

from jobmeter.errors import InvalidRequestError
from jobmeter.model.event import Level

VERSION = 1
BEGINNING = b'{"jobmeter":'
"""Bytes that a message begins with; any other datagram is StatsD."""

ReportedValues = tuple[int, float | None, dict[str, float | str]]
ReportedEvent = tuple[int, Level, str, str]


class ProgramReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Message of a program. ``dropped`` counts values that it could not send since its previous message."""

    jobmeter: int = VERSION
    points: list[ReportedValues] = []
    meta: dict[str, float | str] = {}
    events: list[ReportedEvent] = []
    dropped: int = 0


_DECODER = msgspec.json.Decoder(ProgramReport)


def decode(data: bytes) -> ProgramReport:
    """Return the message. Raises InvalidRequestError (field ``body``) for any other bytes or version."""
    try:
        found = _DECODER.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequestError(f"the message is not a program's report: {error}", "body") from error
    if found.jobmeter != VERSION or found.dropped < 0:
        raise InvalidRequestError(f"the message has version {found.jobmeter}, only {VERSION} can be read", "body")
    return found
