"""Convert Arrow columns to rows, for CSV, JSON lines and Parquet."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from jobmeter.cli.loading.rows import NAME_COLUMNS, BadRowError, Mask, RowNames, Rows, RowSource
from jobmeter.errors import InvalidRequestError
from jobmeter.model.batch import Int64s
from jobmeter.model.time import MAX_TIME_MS, parse_time

Column: TypeAlias = "pa.Array[Any]"


@dataclass(frozen=True, slots=True)
class _Checked:
    values: Any
    bad: Mask
    reason: Callable[[int], str]


def convert_table(table: pa.Table, source: RowSource, place: Callable[[int], str]) -> tuple[Rows, int]:
    """Convert a table with the columns of ``rows.COLUMNS`` to rows, and count skipped bad rows.

    Raises BadRowError for the first bad row, unless the source skips bad rows.
    """
    times = _times(table.column("time").combine_chunks())
    values = check_values(table.column("value").combine_chunks())
    names = {name: _names(table.column(name)) for name in NAME_COLUMNS if name in table.column_names}
    rows = Rows(names=names, time=times.values, value=values.values, place=place)
    bad = times.bad | values.bad
    if not bad.any():
        return rows, 0
    if not source.skip_bad:
        row = int(np.flatnonzero(bad)[0])
        column, checked = ("time", times) if times.bad[row] else ("value", values)
        raise BadRowError(place(row), column, checked.reason(row))
    return rows.filter(~bad), int(bad.sum())


def _names(column: "pa.ChunkedArray[Any]") -> RowNames:
    encoded: Any = column
    if not pa.types.is_dictionary(column.type):
        encoded = _cast(column, pa.string()).dictionary_encode()
    joined = encoded.unify_dictionaries().combine_chunks()
    values = [value if value is not None else "" for value in _cast(joined.dictionary, pa.string()).to_pylist()]
    codes = _cast(joined.indices, pa.int32())
    if codes.null_count:
        codes = codes.fill_null(len(values))
        values.append("")
    return RowNames(_numbers(codes), values)


def _times(column: Column) -> _Checked:
    times, bad = _parse_times(column)
    outside = (times < 0) | (times > MAX_TIME_MS)
    return _Checked(times, bad | outside, lambda row: _time_problem(column[row].as_py()))


def _time_problem(value: object) -> str:
    if value is None:
        return "the time is empty"
    if isinstance(value, int | str):
        try:
            parse_time(value)
        except InvalidRequestError as error:
            return error.message
    return f"time {value} is not a whole number of epoch milliseconds between 1970 and 2100"


def _parse_times(column: Column) -> tuple[Int64s, Mask]:
    nulls = find_nulls(column)
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_timestamp(column.type):
        return _milliseconds(column), nulls
    if not pa.types.is_string(column.type) and not pa.types.is_large_string(column.type):
        try:
            return _fill_missing(_cast(column, pa.int64()), 0), nulls
        except pa.ArrowInvalid:
            return _parse_times_singly(column, nulls)
    for kind in (pa.int64(), pa.timestamp("us", "UTC"), pa.timestamp("us")):
        try:
            parsed = column.cast(kind)
        except pa.ArrowInvalid:
            continue
        return (_fill_missing(parsed, 0) if kind == pa.int64() else _milliseconds(parsed)), nulls
    return _parse_times_singly(column, nulls)


def _milliseconds(column: Column) -> Int64s:
    unit = pa.timestamp("us", column.type.tz)
    microseconds = _fill_missing(column.cast(unit, safe=False).cast(pa.int64()), 0)
    times: Int64s = np.rint(microseconds / 1000).astype(np.int64)
    return times


def _parse_times_singly(column: Column, bad: Mask) -> tuple[Int64s, Mask]:
    bad = bad.copy()
    times = np.zeros(len(column), np.int64)
    for row, text in enumerate(column.to_pylist()):
        try:
            times[row] = parse_time(text) if isinstance(text, str) else _to_whole_ms(text)
        except InvalidRequestError:
            bad[row] = True
    return times, bad


def _to_whole_ms(value: object) -> int:
    if isinstance(value, float) and value.is_integer() and 0 <= value <= MAX_TIME_MS:
        return int(value)
    raise InvalidRequestError(f"{value} is not a whole number of milliseconds", "time")


def check_values(column: Column) -> _Checked:
    """Return the values of a column as numbers, with the rows that have none and their problems."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    try:
        values = _fill_missing(_cast(column, pa.float64(), safe=False), np.nan)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        values = np.fromiter((_number(value) for value in column.to_pylist()), np.float64, len(column))
    return _Checked(values, ~np.isfinite(values), lambda row: _value_problem(column[row].as_py()))


def _number(value: object) -> float:
    if isinstance(value, str) and "_" in value:
        return float("nan")
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return float("nan")


def _value_problem(value: object) -> str:
    return "the value is empty" if value is None else f"value {value!r} is not a finite number"


def _fill_missing(column: Column, missing: float) -> Any:  # noqa: ANN401 - an array of the column's own type
    return _numbers(column.fill_null(pa.scalar(missing).cast(column.type)) if column.null_count else column)


def find_nulls(column: Column) -> Mask:
    """Return bool[n]: the rows without a value."""
    if not column.null_count:
        return np.zeros(len(column), np.bool_)
    nulls: Mask = _numbers(column.is_null().cast(pa.uint8())).view(np.bool_)
    return nulls


def _numbers(column: Column) -> Any:  # noqa: ANN401 - an array of the column's own type
    """Return the numbers of a column without nulls, not copied. Arrow's conversion would import an installed pandas."""
    kind = np.dtype(column.type.to_pandas_dtype())
    values: Any = column.buffers()[1]  # a buffer of bytes; Arrow's type annotations lack this
    begin = column.offset * kind.itemsize
    return np.empty(0, kind) if values is None else np.frombuffer(values, kind, len(column), begin)


def _cast(column: Any, kind: "pa.DataType", *, safe: bool = True) -> Any:  # noqa: ANN401 - an array, chunked or not
    """Return the column with a type. A column that has the type already needs no import of Arrow's functions."""
    return column if column.type == kind else column.cast(kind, safe=safe)
