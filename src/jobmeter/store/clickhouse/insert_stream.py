"""Large inserts into the embedded engine, straight from memory.

The client of ``jobmeter.store.clickhouse.pool`` writes each insert to a temporary file first, which the engine then
reads: of a bulk import that is a gigabyte written and read for each 22 million samples.
"""

import re
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from clickhouse_connect.driver.exceptions import DatabaseError

from jobmeter.store.clickhouse.target import Target

if TYPE_CHECKING:
    from chdb.state.sqlitelike import Connection

_SETTINGS = "optimize_on_insert = 0, enable_alp_codec = 1, max_insert_threads = 1, async_insert = 0"
"""Rows come sorted, each once."""
_CODE = re.compile(r"Code: (\d+)\.")


class InsertStream:
    """A connection of its own to the embedded engine, opened by the first insert. One thread at a time."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._connection: Connection | None = None

    def insert(self, table: str, columns: Sequence[str], block: Iterable[bytes]) -> None:
        """Insert one block of ClickHouse's Native format, given in pieces; durable on return.

        Raises DatabaseError; then the block may be in the table all the same.
        """
        try:
            with self._opened().send_insert(f"INSERT INTO {table} ({', '.join(columns)})", "Native") as stream:
                for piece in block:
                    stream.append(piece)
                stream.finish()
        except RuntimeError as error:
            self.close()  # the state of the connection is undetermined
            found = _CODE.search(str(error))
            raise DatabaseError(str(error), code=int(found[1]) if found else None) from error

    def close(self) -> None:
        """Close the connection, which otherwise keeps the engine open. The next insert opens another one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _opened(self) -> "Connection":
        if self._connection is None:
            # The pool has loaded the engine, in its own way.
            self._connection = import_module("chdb.state").connect(str(self._target.path))
            self._connection.query(f"USE {self._target.database}")
            self._connection.query(f"SET {_SETTINGS}")
        return self._connection
