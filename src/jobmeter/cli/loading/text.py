"""Read CSV and JSON lines: blocks of whole lines are parsed as columns; on an error, line by line."""

import csv
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import IO, Any, TypeVar, cast

import msgspec
import pyarrow as pa
import pyarrow.csv as pa_csv

from jobmeter.cli.loading.arrow import Column, convert_table
from jobmeter.cli.loading.rows import NAME_COLUMNS, BadRowError, Block, RowSource, check_columns
from jobmeter.errors import InvalidRequestError
from jobmeter.model.record import JobRecord, decode_record

CSV_BLOCK = 16 * 2**20
JSON_BLOCK = 8 * 2**20
MAX_LINE = 4 * 2**20
"""Longest line; a longer one is not text of this kind."""

_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Errors of reading JSON; the last one comes from very deep nesting."""
_Line = TypeVar("_Line", str, bytes)
_Parsed = TypeVar("_Parsed")

_NAME = pa.dictionary(pa.int32(), pa.string())


def read_csv(file: IO[bytes], source: RowSource) -> Iterator[Block]:
    """Read the samples of a CSV file with a header line."""
    lines = _Lines(file, source, CSV_BLOCK)
    header = lines.pop_first()
    columns = [name.strip() for name in next(csv.reader([header]), [])]
    check_columns(source, columns)
    read = _CsvBlocks(source, columns)
    for number, block, count in lines:
        yield read(number, block, count)


class _CsvBlocks:
    def __init__(self, source: RowSource, columns: Sequence[str]) -> None:
        self._source = source
        self._columns = columns
        self._time: pa.DataType = pa.int64()

    def __call__(self, number: int, block: bytes, lines: int) -> Block:
        """Parse a block of whole lines that begins with line ``number``."""
        if b"\r" in block:
            block = block.replace(b"\r\n", b"\n")
        return self._parse_block(number, block, lines) or self._read_line_by_line(number, block)

    def _parse_block(self, number: int, block: bytes, lines: int) -> Block | None:
        """Parse the block as columns; None on an error, so that each line must be parsed alone."""
        try:
            table = self._parse(block)
            if len(table) != lines:
                return None  # Empty lines would shift later line numbers.
            rows, _ = convert_table(table, RowSource(self._source.name), _name_lines(self._source, number))
        except (pa.ArrowInvalid, BadRowError):
            if self._time == pa.string():
                return None
            # The times may be ISO 8601; a real error occurs again below.
            self._time = pa.string()
            found = self._parse_block(number, block, lines)
            if found is None:
                self._time = pa.int64()
            return found
        return Block(rows=rows)

    def _parse(self, block: bytes) -> pa.Table:
        types: dict[str, pa.DataType] = {
            name: _NAME if name in NAME_COLUMNS else pa.float64() for name in self._columns
        }
        types["time"] = self._time
        return pa_csv.read_csv(
            _copy_to_arrow(block),
            read_options=pa_csv.ReadOptions(column_names=list(self._columns), block_size=2**20),
            parse_options=pa_csv.ParseOptions(newlines_in_values=False),
            convert_options=pa_csv.ConvertOptions(column_types=types, strings_can_be_null=False),
        )

    def _read_line_by_line(self, number: int, block: bytes) -> Block:
        lines = enumerate(_decode_block(block, self._source, number).split("\n"), number)
        good, numbers, skipped = _parse_each(((at, text) for at, text in lines if text), self._source, self._row)
        block_of = _table({name: [row[i] for row in good] for i, name in enumerate(self._columns)})
        rows, left_out = convert_table(block_of, self._source, lambda row: self._source.name_line(numbers[row]))
        return Block(rows=rows, skipped=skipped + left_out)

    def _row(self, place: str, line: str) -> list[str]:
        try:
            row = next(csv.reader([line], strict=True))
        except csv.Error as error:
            raise BadRowError(place, "", f"not a line of CSV: {error}") from error
        if len(row) != len(self._columns):
            raise BadRowError(place, "", f"{len(row)} columns, but the header has {len(self._columns)}")
        return row


def _parse_each(
    lines: Iterable[tuple[int, _Line]], source: RowSource, parse: Callable[[str, _Line], _Parsed]
) -> tuple[list[_Parsed], list[int], int]:
    """Parse each line. Returns the results, their line numbers, and the number of skipped bad lines."""
    found: list[_Parsed] = []
    numbers: list[int] = []
    skipped = 0
    for number, line in lines:
        try:
            found.append(parse(source.name_line(number), line))
            numbers.append(number)
        except BadRowError:
            if not source.skip_bad:
                raise
            skipped += 1
    return found, numbers, skipped


def _copy_to_arrow(block: bytes) -> IO[bytes]:
    """Copy to Arrow's memory: its threads may outlive a failed read and the interpreter that owns the bytes."""
    buffer = pa.allocate_buffer(len(block))
    memoryview(buffer).cast("B")[:] = block
    return cast("IO[bytes]", pa.BufferReader(buffer))


def _name_lines(source: RowSource, first: int) -> Callable[[int], str]:
    return lambda row: source.name_line(first + row)


class _SampleLine(msgspec.Struct, forbid_unknown_fields=True):
    metric: str
    time: int | str
    value: float
    job_id: str | None = None
    replica: str | None = None
    node: str | None = None
    device: str | None = None
    cluster: str | None = None
    project: str | None = None


_SAMPLES = msgspec.json.Decoder(list[_SampleLine])
_SAMPLE = msgspec.json.Decoder(_SampleLine)


def read_jsonl(file: IO[bytes], source: RowSource) -> Iterator[Block]:
    """Read the samples and job records of a file with one JSON object per line."""
    for number, block, _ in _Lines(file, source, JSON_BLOCK):
        try:
            samples = _SAMPLES.decode(b"[" + block.strip().replace(b"\n", b",") + b"]")
        except _UNREADABLE:
            yield _json_lines(number, block, source)
            continue
        yield _block(samples, (), 0, source, _name_lines(source, number))


def _json_lines(number: int, block: bytes, source: RowSource) -> Block:
    lines = ((at, line) for at, line in enumerate(block.split(b"\n"), number) if line.strip())
    found, numbers, skipped = _parse_each(lines, source, _json_line)
    samples = [one for one in found if isinstance(one, _SampleLine)]
    records = [one for one in found if isinstance(one, JobRecord)]
    places = [at for at, one in zip(numbers, found, strict=True) if isinstance(one, _SampleLine)]
    return _block(samples, records, skipped, source, lambda row: source.name_line(places[row]))


def _json_line(place: str, line: bytes) -> _SampleLine | JobRecord:
    try:
        shape = msgspec.json.decode(line)
    except RecursionError as error:
        raise BadRowError(place, "", "arrays or objects are nested too deep") from error
    except _UNREADABLE as error:
        raise BadRowError(place, "", f"not JSON: {error}") from error
    if not isinstance(shape, dict):
        raise BadRowError(place, "", "not a JSON object")
    if "metric" not in shape and "job_id" in shape and "value" not in shape:
        try:
            return decode_record(line)
        except InvalidRequestError as error:
            raise BadRowError(place, error.field, error.message) from error
    try:
        return _SAMPLE.decode(line)
    except _UNREADABLE as error:
        field = str(error).rpartition("at `$.")[2].rstrip("`") if "at `$." in str(error) else ""
        raise BadRowError(place, field, f"neither a sample nor a job record: {error}") from error


def _block(
    samples: Sequence[_SampleLine],
    records: Sequence[JobRecord],
    skipped: int,
    source: RowSource,
    place: Callable[[int], str],
) -> Block:
    if not samples:
        return Block(records=records, skipped=skipped)
    columns: dict[str, list[Any]] = {
        name: [getattr(line, name) for line in samples] for name in _SampleLine.__struct_fields__
    }
    if not all(type(time) is int for time in columns["time"]):
        columns["time"] = [str(time) for time in columns["time"]]
    rows, left_out = convert_table(_table(columns), source, place)
    return Block(rows=rows, records=records, skipped=skipped + left_out)


def _table(columns: dict[str, list[Any]]) -> pa.Table:
    arrays = {
        name: pa.array(values, pa.string()).dictionary_encode()
        if name in NAME_COLUMNS
        else _build_value_column(name, values)
        for name, values in columns.items()
    }
    return pa.table(arrays)


def _build_value_column(name: str, values: list[Any]) -> Column:
    try:
        return pa.array(values) if values else pa.array(values, pa.int64() if name == "time" else pa.float64())
    except (OverflowError, pa.ArrowInvalid):
        return pa.array([str(value) for value in values])


def _decode_block(block: bytes, source: RowSource, number: int) -> str:
    try:
        return block.decode()
    except UnicodeDecodeError as error:
        place = source.name_line(number + block.count(b"\n", 0, error.start))
        raise BadRowError(place, "", "not UTF-8") from error


class _Lines:
    """File as blocks: (number of the first line, bytes of whole lines, line count); numbers begin at 1."""

    def __init__(self, file: IO[bytes], source: RowSource, size: int) -> None:
        self._file = file
        self._source = source
        self._size = size
        self._next = 1

    def pop_first(self) -> str:
        """Remove and return the first line."""
        line = self._file.readline(MAX_LINE)
        self._next += 1
        return _decode_block(line.rstrip(b"\r\n").removeprefix(b"\xef\xbb\xbf"), self._source, 1)

    def __iter__(self) -> Iterator[tuple[int, bytes, int]]:
        while True:
            block = self._file.read(self._size)
            if not block:
                return
            if not block.endswith(b"\n"):
                block += self._file.readline(MAX_LINE)
            if not block.endswith(b"\n") and len(block) >= MAX_LINE + self._size:
                raise BadRowError(self._source.name_line(self._next), "", "a line is longer than 4 MiB")
            number, count = self._next, block.count(b"\n") + (not block.endswith(b"\n"))
            self._next += count
            yield number, block, count
