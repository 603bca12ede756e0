"""Open files to import: detect their format, decompress them, and count the bytes read."""

import io
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import IO, Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from jobmeter.cli.loading.arrow import convert_table
from jobmeter.cli.loading.rows import BadRowError, Block, RowSource, check_columns
from jobmeter.cli.loading.text import read_csv, read_jsonl
from jobmeter.cli.loading.wandb import MAGIC, read_wandb
from jobmeter.errors import InvalidRequestError

Format = Literal["csv", "jsonl", "parquet", "wandb"]
_SUFFIXES: dict[str, Format] = {
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".parquet": "parquet",
    ".wandb": "wandb",
}
_COMPRESSIONS: dict[str, Literal["gzip", "zstd", "bz2"]] = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2"}


def read(path: str, form: Format | None, source: RowSource, progress: Callable[[int], None]) -> Iterator[Block]:
    """Read the blocks of a file; ``-`` is standard input. ``progress`` gets the bytes read since its last call.

    The format is ``form``, else determined by the name, else by the first bytes. ``.gz``, ``.zst`` and ``.bz2`` are
    decompressed. Raises InvalidRequestError or BadRowError naming the file, OSError if it cannot be read.
    """
    with ExitStack() as stack:
        if path == "-":
            file: Any = sys.stdin.buffer
            suffixes: list[str] = []
        else:
            file = io.BufferedReader(stack.enter_context(_Counting(path, progress)), 2**20)
            suffixes = [suffix.lower() for suffix in Path(path).suffixes]
        if suffixes and suffixes[-1] in _COMPRESSIONS:
            plain: Any = pa.CompressedInputStream(pa.PythonFile(file, mode="r"), _COMPRESSIONS[suffixes.pop()])
            file = io.BufferedReader(plain, 2**20)
        form = form or (_SUFFIXES.get(suffixes[-1]) if suffixes else None) or _detect_format(file)
        try:
            yield from _READERS[form](file, source)
        except OSError as error:
            if error.errno is not None:
                raise
            # Decompressors and decoders raise no other errors for bad content.
            raise InvalidRequestError(f"{source.name} is damaged: {str(error).strip()}") from error


def _detect_format(file: IO[bytes]) -> Format:
    begin: bytes = file.peek(4)[:4] if isinstance(file, io.BufferedReader) else b""
    if begin == b"PAR1":
        return "parquet"
    if begin == MAGIC:
        return "wandb"
    return "jsonl" if begin.lstrip().startswith(b"{") else "csv"


def _read_parquet(file: IO[bytes], source: RowSource) -> Iterator[Block]:
    """Read the samples of a Parquet file."""
    try:
        seekable: Any = file if file.seekable() else pa.BufferReader(file.read())
        names = pq.read_schema(seekable).names
        check_columns(source, names)
        seekable.seek(0)
        encoded = [name for name in names if name not in {"time", "value"}]
        parquet = pq.ParquetFile(seekable, read_dictionary=encoded, page_checksum_verification=True)
        first = 1
        for batch in parquet.iter_batches(batch_size=source.batch_rows):
            # A damaged page may contain invalid texts, and numbers of missing texts.
            batch.validate(full=True)
            place = partial(_place, source.name, first)
            rows, skipped = convert_table(pa.Table.from_batches([batch]), source, place)
            first += len(batch)
            yield Block(rows=rows, skipped=skipped)
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise InvalidRequestError(f"{source.name} cannot be read as Parquet: {error}") from error


def _place(name: str, first: int, row: int) -> str:
    return f"{name}, row {first + row}"


_READERS: dict[Format, Callable[[IO[bytes], RowSource], Iterator[Block]]] = {
    "csv": read_csv,
    "jsonl": read_jsonl,
    "parquet": _read_parquet,
    "wandb": read_wandb,
}


class _Counting(io.FileIO):
    """File that reports how much of it was read."""

    def __init__(self, path: str, progress: Callable[[int], None]) -> None:
        super().__init__(path)
        self._progress = progress

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - any writable buffer
        size = super().readinto(buffer)
        self._progress(size)
        return size


__all__ = ["BadRowError", "Format", "read"]
