"""Tables as lists of columns, Arrow tables or pandas frames, depending on the installed libraries."""

from collections.abc import Iterable, Sequence
from dataclasses import fields
from enum import Enum
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from jobmeter.cli.output import format_count, format_time
from jobmeter.client.searches import Search
from jobmeter.errors import ConfigurationError, InvalidRequestError
from jobmeter.model.nearest import format_choices
from jobmeter.program import html

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

Columns = dict[str, list[Any]]
"""Columns by name, of equal length; times are epoch ms."""

_NUMBERS = ("rank", "exit_code")
"""Columns of whole numbers that may be unknown."""
_SHOWN, _FEW, _WIDE = 100, 10, 60
"""Limits: rows in a notebook, rows as text, and characters of a cell of text."""
_Row = TypeVar("_Row")
_Search = TypeVar("_Search", bound=Search)


class Table:
    """Base class of results with columns, for table libraries."""

    def columns(self) -> Columns:
        """Return the columns by name."""
        raise NotImplementedError

    def to_arrow(self) -> "pa.Table":
        """Return an Arrow table; times are UTC timestamps in milliseconds.

        Raises ConfigurationError without pyarrow.
        """
        arrow = import_library("pyarrow")
        kinds = dict.fromkeys(html.TIMES, arrow.timestamp("ms", tz="UTC")) | dict.fromkeys(_NUMBERS, arrow.int64())
        arrays = {name: arrow.array(values, kinds.get(name)) for name, values in self.columns().items()}
        made: pa.Table = arrow.table(arrays)
        return made

    def to_pandas(self) -> "pd.DataFrame":
        """Return a pandas frame; times are UTC timestamps. Raises ConfigurationError without pandas."""
        pandas = import_library("pandas")
        series = {name: _series(pandas, name, values) for name, values in self.columns().items()}
        made: pd.DataFrame = pandas.DataFrame(series)
        return made


class RecordList(list[_Row], Table):
    """List of structs with a column for each of their fields."""

    def __init__(self, kind: type[_Row], rows: Iterable[_Row] = ()) -> None:
        super().__init__(rows)
        self._kind = kind

    def columns(self) -> Columns:
        """Return the fields column by column: enumerations as texts, structs as dictionaries."""
        names: Sequence[str] = getattr(self._kind, "__struct_fields__", ())
        return {name: [_to_builtin(getattr(row, name)) for row in self] for name in names}

    def __repr__(self) -> str:
        columns = {name: values[:_FEW] for name, values in self.columns().items() if any(map(_is_present, values))}
        rows = [
            [_format_cell(name, value) for name, value in zip(columns, row, strict=True)] for row in _transpose(columns)
        ]
        return "\n".join([f"<{format_count(len(self), 'row')}>", *(align_columns([[*columns], *rows]) if rows else ())])

    def _repr_html_(self) -> str:
        columns = {name: values[:_SHOWN] for name, values in self.columns().items() if any(map(_is_present, values))}
        rows = [
            [html.format_cell(name, value) for name, value in zip(columns, row, strict=True)]
            for row in _transpose(columns)
        ]
        more = f"<p>and {len(self) - _SHOWN} more</p>" if len(self) > _SHOWN else ""
        return html.build_table(tuple(columns), rows) + more if rows else "<p>none</p>"


def align_columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows of text with aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(f"{text:<{width}}" for text, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _format_cell(name: str, value: object) -> str:
    """Format a value of a column in one line: times in UTC, missing values empty."""
    if value is None:
        return ""
    text = " ".join((format_time(value) if name in html.TIMES and isinstance(value, int) else str(value)).split())
    return text if len(text) <= _WIDE else f"{text[: _WIDE - 1]}…"


def _transpose(columns: Columns) -> Iterable[Sequence[Any]]:
    return zip(*columns.values(), strict=True)


def _is_present(value: object) -> bool:
    """Return False for a missing value: None, or an empty text, list or object. Numbers such as 0 are present."""
    return value is not None and value not in ("", [], {}, ())


def _to_builtin(value: object) -> object:
    if isinstance(value, Enum):
        return value.value
    return msgspec.to_builtins(value) if isinstance(value, msgspec.Struct | list) else value


def _series(pandas: Any, name: str, values: Sequence[Any]) -> Any:  # noqa: ANN401 - of a library that may be missing
    if name in html.TIMES:
        return pandas.to_datetime(pandas.Series(values, dtype="Int64"), unit="ms", utc=True)
    return pandas.Series(values, dtype="Int64") if name in _NUMBERS else values


def import_library(name: str) -> Any:  # noqa: ANN401 - a module
    """Import an optional library. Raises ConfigurationError with the install command."""
    try:
        return import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        raise ConfigurationError(f"this needs {package}: pip install {package}") from error


def search(kind: type[_Search], given: dict[str, Any], **own: Any) -> _Search:  # noqa: ANN401 - its fields
    """Build a search. ``given`` are the caller's keyword arguments, ``own`` further fields.

    Raises InvalidRequestError for an unknown name; the message lists the known names.
    """
    names = [field.name for field in fields(kind) if field.name not in own]
    for name in given:
        if name not in names:
            raise InvalidRequestError(f"there is no argument {name!r}{format_choices(name, names)}", name)
    return kind(**own, **given)
