"""Compiled kernel functions, reimplemented with NumPy, Arrow and the standard library."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from jobmeter.kernel.samples import ScannedSamples
from jobmeter.wire.json_shape import DEPTHS

_TOKEN = re.compile(rb'[^"{}\[\],]*+(?:"(?:[^"\\]++|\\.)*+"?[^"{}\[\],]*+)*+([{}\[\],])', re.DOTALL)


def columns(data: bytes, at: int, series: int, samples: int) -> ScannedSamples | None:
    """Copy the columns of a frame, like ``jobmeter.kernel.samples.copy_columns``."""
    counts = np.frombuffer(data, "<u4", series, at)
    single = series == samples and bool((counts == 1).all())
    if not single and int(counts.sum(dtype=np.uint64)) != samples:
        return None
    at += 4 * series
    time = np.frombuffer(data, "<i8", samples, at).astype(np.int64)
    value = np.frombuffer(data, "<f8", samples, at + 8 * samples).astype(np.float64)
    if not samples:
        return ScannedSamples(time, value, None, None, single)
    finite = bool(np.isfinite(value).all())
    extremes = (float(value.min()), float(value.max())) if finite else (np.nan, np.nan)
    return ScannedSamples(time, value, (int(time.min()), int(time.max())), extremes, single)


def count_tokens(data: bytes) -> tuple[list[int], int]:
    """Count the objects, arrays and commas of a JSON text, like ``jobmeter.kernel.json.count``."""
    opened, commas, depth, at = [0] * DEPTHS, 0, 0, 0
    while (found := _TOKEN.match(data, at)) is not None:
        token, at = found[1], found.end()
        if token == b",":
            commas += 1
        elif token in {b"{", b"["}:
            opened[min(depth, DEPTHS - 1)] += 1
            depth += 1
        else:
            depth = max(0, depth - 1)
    return opened, commas


class ArrowLines:
    """Samples as lines of text, like ``jobmeter.kernel.rows.Lines``: Arrow casts the numbers and joins the texts."""

    def __init__(self, texts: Sequence[tuple[str, str, str]]) -> None:
        self._parts = [pa.array(column, pa.string()) for column in zip(*texts, strict=True)]

    def add(self, index: NDArray[np.uint32], time: NDArray[np.int64], value: NDArray[np.float64]) -> Iterator[bytes]:
        """Yield the text of some samples."""
        first, middle, last = (part.take(index) for part in self._parts)
        numbers = [pa.array(column).cast(pa.string()) for column in (time, value)]
        join: Any = pc.binary_join_element_wise
        yield "".join(join(first, numbers[0], middle, numbers[1], last, "").to_pylist()).encode()

    def take_rest(self) -> bytes:
        """Return an empty text, because ``add`` has already yielded everything."""
        return b""
