"""Fences of writes: the engine itself refuses the late write of a server that was frozen and has lost its role."""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from clickhouse_connect.driver.client import Client

from jobmeter.errors import UnavailableError
from jobmeter.store.clickhouse.progress import read_progress, write_progress

_DELETION = re.compile(r"ALTER TABLE \S+ DELETE WHERE ")
"""Beginning of a deletion. A statement that creates a table may have the words DELETE WHERE too, for its retention."""
_COPY = re.compile(r"(\s*INSERT INTO \w+(?: \([^)]*\))?)\s(\s*SELECT .*)", re.DOTALL)
"""Statement that inserts the rows which it selects. It has no SETTINGS at its end."""
_TERM = "term of "
_WRITER = "jobmeter writer "
_ROLL_UP = "jobmeter roll-up "


class WriteFence(NamedTuple):
    """SQL condition under which the engine refuses a write, and the mark by which it lists the write as running.

    The engine lists a write as running before it reads the condition.
    """

    refused: str
    mark: str
    reason: str = "other servers have expelled this one"

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of a write. The engine reads the condition of a deletion before it accepts it, and only then."""
        return {"log_comment": self.mark, "mutations_execute_subqueries_on_initiator": 1}

    @property
    def _check(self) -> str:
        return f"throwIf({self.refused}, '{self.reason}')"

    def restrict(self, sql: str) -> str:
        """Add the condition to a deletion, whose conditions are joined by AND, or to an insert of rows that it selects.

        Returns other statements unchanged.
        """
        if copy := _COPY.fullmatch(sql):
            return f"{copy[1]} SELECT * FROM ({copy[2]}) WHERE {self._check} = 0"
        return _DELETION.sub(lambda found: f"{found[0]}(SELECT {self._check}) = 0 AND ", sql, count=1)

    def find_target(self, table: str, columns: Mapping[str, str]) -> str:
        """Return the target of the insert; ``columns`` with their types."""
        names = ", ".join(columns)
        described = ", ".join(f"{name} {kind}" for name, kind in columns.items()).replace("'", "\\'")
        return f"{table} ({names}) SELECT {names} FROM input('{described}') WHERE {self._check} = 0"


def find_no_fence() -> WriteFence | None:
    """Return None: no other server can expel this one."""


def fence_roll_up(name: str) -> WriteFence:
    """Return the fence of roll-up statements with this name, each sent after the answer to the one before.

    The engine refuses a statement while it runs one of another name: that one would end later and replace newer values.
    Its own name does not count, because the engine lists a statement for a moment after its answer.
    """
    refused = f"({_count_running(_ROLL_UP, name)}) > 0"
    return WriteFence(refused, _ROLL_UP + name, "an earlier roll-up still runs")


def fence_server(number: int) -> WriteFence:
    """Return the fence of one of several servers of a ClickHouse server: its state in the table of servers."""
    return WriteFence(f"(SELECT max(state) FROM servers WHERE id = {number}) > 0", f"jobmeter server {number}")


def fence_writer(store: str, term: int) -> WriteFence:
    """Return the fence of a server that took the record of the replicas of a store: each knows the newest term."""
    refused = f"(SELECT max(value) FROM progress WHERE name = '{_TERM}{store}') > {term}"
    return WriteFence(refused, f"{_WRITER}{term}")


def read_term(client: Client, store: str) -> int:
    """Return the newest term that a replica knows."""
    return read_progress(client).get(_TERM + store, 0)


def begin_term(client: Client, store: str, term: int) -> None:
    """Have a replica refuse the writes of earlier terms. Raises UnavailableError while it runs one."""
    write_progress(client, {_TERM + store: term})
    (row,) = client.query(_count_running(_WRITER, str(term))).result_rows
    if int(row[0]):
        raise UnavailableError("a replica still runs a statement of a server that led before")


def _count_running(kind: str, own: str) -> str:
    return (
        "SELECT count() FROM system.processes WHERE current_database = currentDatabase() "
        f"AND startsWith(Settings['log_comment'], '{kind}') AND Settings['log_comment'] != '{kind}{own}'"
    )
