"""Unpacks Snappy's block format within bounds.

https://github.com/google/snappy/blob/main/format_description.txt
"""

from jobmeter.errors import InvalidRequestError, LimitExceededError
from jobmeter.model.memory import Take
from jobmeter.wire.protobuf import read_varint

_BEST = 22
"""Upper bound of the compression ratio: 3 bytes unpack to 64 at most."""
_HEAD = 16


def unpack(packed: bytes, limit: int, take: Take) -> bytes:
    """Unpack a block. ``take`` is called with its unpacked size before memory is allocated, and may raise.

    Raises InvalidRequestError (field ``body``) for an invalid block. Raises LimitExceededError if the block declares
    more than ``limit`` bytes, before memory is allocated.
    """
    size, at = read_varint(packed, 0, len(packed))
    if size > limit:
        raise LimitExceededError(f"a body may have at most {limit} bytes after decompression, not {size}", "body")
    if size == 0 and at == len(packed):
        return b""
    if size > _BEST * len(packed) + _HEAD:
        raise InvalidRequestError(
            "the body is not a Snappy block: it is too short for the size that it declares", "body"
        )
    take(size)
    import pyarrow as pa  # noqa: PLC0415 - 30 MiB, for servers to which nobody writes in this form

    try:
        unpacked: bytes = pa.decompress(packed, size, codec="snappy", asbytes=True)
    except (OSError, pa.ArrowInvalid) as error:
        raise InvalidRequestError("the body is not a Snappy block", "body") from error
    return unpacked
