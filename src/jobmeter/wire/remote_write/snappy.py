"""Snappy's block format, unpacked within bounds.

https://github.com/google/snappy/blob/main/format_description.txt
"""

from jobmeter.errors import InvalidRequestError, LimitExceededError
from jobmeter.model.memory import Take
from jobmeter.wire.protobuf import varint

_BEST = 22
"""No block unpacks to more than 64 bytes for 3."""
_HEAD = 16


def unpack(packed: bytes, limit: int, take: Take) -> bytes:
    """The unpacked bytes; ``take`` gets their number before memory is taken for them, and may raise.

    Raises InvalidRequestError (field ``body``) for what is no block, LimitExceededError for more than ``limit`` bytes:
    the size that a block declares is looked at before memory is taken for it.
    """
    size, at = varint(packed, 0, len(packed))
    if size > limit:
        raise LimitExceededError(f"a body may have {limit} bytes after decompression, this one declares {size}", "body")
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
