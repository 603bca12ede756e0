"""Encodes columns in ClickHouse's Native format: one block, without Python objects for rows.

The layout is in ClickHouse's documentation (Formats, Native): number of columns and of rows, then for each column its
name, its type and its values. Numbers are little-endian, as NumPy has them on every platform that Jobmeter supports.
"""

from collections.abc import Generator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jobmeter.wire.protobuf import encode_varint

Column = tuple[str, NDArray[Any]]

_TYPES = {
    np.dtype(np.uint8): b"UInt8",
    np.dtype(np.uint16): b"UInt16",
    np.dtype(np.uint32): b"UInt32",
    np.dtype(np.uint64): b"UInt64",
    np.dtype(np.int64): b"Int64",
    np.dtype(np.float64): b"Float64",
}


def encode(columns: Sequence[Column]) -> bytes:
    """Encode columns of equal length as one block."""
    return b"".join(encode_parts(columns))


def encode_parts(columns: Sequence[Column]) -> Generator[bytes]:
    """Yield the block in pieces, a column at a time, so that memory holds a large block only once."""
    yield encode_varint(len(columns)) + encode_varint(len(columns[0][1]))
    for name, values in columns:
        kind = _TYPES[values.dtype]
        yield encode_varint(len(name)) + name.encode() + encode_varint(len(kind)) + kind
        yield values.tobytes()
