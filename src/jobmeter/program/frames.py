"""Tables as lists of columns, Arrow tables or pandas frames, depending on the installed libraries."""

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from jobmeter.errors import ConfigurationError

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

Columns = dict[str, list[Any]]
"""Columns by name, of equal length; ``time``, ``created``, ``start`` and ``end`` are epoch ms."""

_TIMES = ("time", "created", "start", "end")
_NUMBERS = ("rank", "exit_code")
"""Columns of whole numbers that may be unknown."""


class Table:
    """Base class of results with columns, for table libraries."""

    def columns(self) -> Columns:
        """Return the columns by name."""
        raise NotImplementedError

    def to_arrow(self) -> "pa.Table":
        """Return an Arrow table; times are UTC timestamps in milliseconds.

        Raises ConfigurationError without pyarrow.
        """
        arrow = library("pyarrow")
        kinds = dict.fromkeys(_TIMES, arrow.timestamp("ms", tz="UTC")) | dict.fromkeys(_NUMBERS, arrow.int64())
        arrays = {name: arrow.array(values, kinds.get(name)) for name, values in self.columns().items()}
        made: pa.Table = arrow.table(arrays)
        return made

    def to_pandas(self) -> "pd.DataFrame":
        """Return a pandas frame; times are UTC timestamps. Raises ConfigurationError without pandas."""
        pandas = library("pandas")
        series = {name: _series(pandas, name, values) for name, values in self.columns().items()}
        made: pd.DataFrame = pandas.DataFrame(series)
        return made


def _series(pandas: Any, name: str, values: Sequence[Any]) -> Any:  # noqa: ANN401 - of a library that may be missing
    if name in _TIMES:
        return pandas.to_datetime(pandas.Series(values, dtype="Int64"), unit="ms", utc=True)
    return pandas.Series(values, dtype="Int64") if name in _NUMBERS else values


def library(name: str) -> Any:  # noqa: ANN401 - a module
    """Import an optional library. Raises ConfigurationError with the install command."""
    try:
        return import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        raise ConfigurationError(f"this needs {package}: pip install {package}") from error
