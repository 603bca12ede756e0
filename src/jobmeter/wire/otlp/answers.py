"""Answers: responses of the three services and ``google.rpc.Status``, in both encodings.

https://opentelemetry.io/docs/specs/otlp/#otlphttp-response and
https://github.com/googleapis/googleapis/blob/master/google/rpc/error_details.proto
"""

import msgspec

from jobmeter.wire.otlp.values import encode_part
from jobmeter.wire.protobuf import encode_varint

_PARTIAL, _REJECTED, _MESSAGE = 0x0A, 0x08, 0x12
_CODE, _DETAILS = 0x08, 0x1A
_TYPE_URL, _VALUE = 0x0A, 0x12
_DELAY, _SECONDS, _NANOS = 0x0A, 0x08, 0x10
RETRY_INFO = "type.googleapis.com/google.rpc.RetryInfo"


def encode_response(rejected: int, message: str, *, json: bool, field: str = "rejectedDataPoints") -> bytes:
    """Return the answer to an accepted request; ``rejected`` counts its rejected data points.

    ``field`` names other items than data points. A message with ``rejected`` 0 is a warning. Without both the answer is
    empty, which means full success.
    """
    if json:
        partial = {field: str(rejected), "errorMessage": message}
        return msgspec.json.encode({"partialSuccess": partial} if rejected or message else {})
    if not (rejected or message):
        return b""
    count = bytes((_REJECTED,)) + encode_varint(rejected) if rejected else b""
    return encode_part(_PARTIAL, count + encode_part(_MESSAGE, message.encode()))


def encode_status(code: int, message: str, retry_after_ms: int | None = None, *, json: bool = False) -> bytes:
    """Return a failure; ``code`` is a gRPC code, ``retry_after_ms`` the delay before the next attempt."""
    if json:
        found: dict[str, object] = {"code": code, "message": message}
        if retry_after_ms is not None:
            found["details"] = [{"@type": RETRY_INFO, "retryDelay": f"{retry_after_ms / 1000:g}s"}]
        return msgspec.json.encode(found)
    details = b"" if retry_after_ms is None else encode_part(_DETAILS, _retry_info(retry_after_ms))
    return bytes((_CODE,)) + encode_varint(code) + encode_part(_MESSAGE, message.encode()) + details


def _retry_info(after_ms: int) -> bytes:
    seconds, rest = divmod(after_ms, 1000)
    delay = (bytes((_SECONDS,)) + encode_varint(seconds) if seconds else b"") + (
        bytes((_NANOS,)) + encode_varint(rest * 1_000_000) if rest else b""
    )
    return encode_part(_TYPE_URL, RETRY_INFO.encode()) + encode_part(_VALUE, encode_part(_DELAY, delay))
