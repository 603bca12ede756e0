"""Rows as lists of columns, as an Arrow table or as a pandas frame: whichever the user has installed."""

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from jobmeter.errors import ConfigurationError

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

Columns = dict[str, list[Any]]
"""Column by column, all of one length; ``time``, ``created``, ``start`` and ``end`` are epoch ms."""

_TIMES = ("time", "created", "start", "end")
_NUMBERS = ("rank", "exit_code")
"""Whole numbers that may be unknown."""


class Table:
    """What has columns, for the libraries of tables."""

    def columns(self) -> Columns:
        """The columns, by name."""
        raise NotImplementedError

    def to_arrow(self) -> "pa.Table":
        """An Arrow table; times are timestamps of milliseconds in UTC. Raises ConfigurationError without pyarrow."""
        arrow = library("pyarrow")
        kinds = dict.fromkeys(_TIMES, arrow.timestamp("ms", tz="UTC")) | dict.fromkeys(_NUMBERS, arrow.int64())
        arrays = {name: arrow.array(values, kinds.get(name)) for name, values in self.columns().items()}
        made: pa.Table = arrow.table(arrays)
        return made

    def to_pandas(self) -> "pd.DataFrame":
        """A pandas frame; times are timestamps in UTC. Raises ConfigurationError without pandas."""
        pandas = library("pandas")
        series = {name: _series(pandas, name, values) for name, values in self.columns().items()}
        made: pd.DataFrame = pandas.DataFrame(series)
        return made


def _series(pandas: Any, name: str, values: Sequence[Any]) -> Any:  # noqa: ANN401 - of a library that may be missing
    if name in _TIMES:
        return pandas.to_datetime(pandas.Series(values, dtype="Int64"), unit="ms", utc=True)
    return pandas.Series(values, dtype="Int64") if name in _NUMBERS else values


def library(name: str) -> Any:  # noqa: ANN401 - a module
    """A library that the user may have. Raises ConfigurationError saying how to get it."""
    try:
        return import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        raise ConfigurationError(f"this needs {package}: pip install {package}") from error
