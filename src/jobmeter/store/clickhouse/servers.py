"""The table of the servers that use one ClickHouse node."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from jobmeter.model.time import DAY, Clock
from jobmeter.store.clickhouse.failures import translate_failures
from jobmeter.store.clickhouse.pool import Pool
from jobmeter.store.clickhouse.write_fence import fence_server

LIVE, EXPELLED, DEPARTED, SUCCEEDED = 0, 1, 2, 3
"""States of a server, in the only order in which they follow each other.

``SUCCEEDED``: another server has inserted the samples that this one acknowledged, so its journal is void.
"""
IDLE, DIRECT, FOLLOWING = 0, 1, 2
"""Phases of a server without a journal in use: it answers nothing, uses the engine directly, or follows a leader."""
UNCONFIRMED = (
    "this server cannot confirm that it sees what other servers store: the telemetry engine or the leading server did "
    "not answer for some seconds, try again"
)
SUCCESSION = "other servers are inserting the samples of this server's journal: start it again in some seconds"
_MOST_OLD = 1_000
_READ = (
    "SELECT id, max(state), max(beat), argMax(journals, beat), argMax(host, beat), argMax(folder, beat), "
    "argMax(peer, beat), argMax(phase, beat), argMax(leader, beat) FROM servers "
    "GROUP BY id HAVING max(state) < {departed:UInt8}"
)
_WRITE = (
    "INSERT INTO servers SELECT {id:UInt64}, {state:UInt8}, {beat:UInt64}, {journals:UInt8}, {host:String}, "
    "{folder:String}, {at:Int64}, {peer:String}, {phase:UInt8}, {leader:UInt64}"
)
_STATE = "SELECT max(state) FROM servers WHERE id = {id:UInt64}"
_INSERTS = "SELECT count() FROM system.processes WHERE Settings['log_comment'] = {mark:String}"
_OLD = "SELECT count() FROM servers WHERE state = {departed:UInt8} AND at < {before:Int64}"
_FORGET = (
    "ALTER TABLE servers DELETE WHERE id IN "
    "(SELECT id FROM servers WHERE state = {departed} AND at < {before}) SETTINGS mutations_sync = 0"
)


class ServerRow(msgspec.Struct, frozen=True):
    """State of a server that has started.

    ``beat`` grows with each row of the server. ``journals``: the server may have acknowledged samples that only its
    journal has, in ``folder`` on ``host``. ``peer``: how other servers reach it (``PeerPlace``); empty if they cannot.
    ``leader``: number of the server that it follows, or followed and has copies of; 0 for none.
    """

    id: int
    beat: int = 0
    journals: bool = False
    host: str = ""
    folder: str = ""
    state: int = LIVE
    peer: str = ""
    phase: int = IDLE
    leader: int = 0


def describe_other_server(rows: Sequence[ServerRow]) -> str:
    """Return the message for a start beside other servers."""
    hosts = ", ".join(sorted({row.host for row in rows}))
    return (
        f"another server uses these replicas, on {hosts}: several servers need ClickHouse Keeper, or "
        "one registry in PostgreSQL. Stop the other one. If it is lost with its data folder: "
        "jobmeter serve --discard-journals"
    )


def describe_missing(rows: Sequence[ServerRow], *, hands_over: bool) -> str:
    """Return the message for a start without the journals of these servers.

    ``hands_over``: a running server inserts its journal, so that others may start that cannot follow it.
    """
    places = ", ".join(f"{row.folder} on {row.host}" for row in rows)
    running = (
        "If it runs, it hands them over within seconds"
        if hands_over
        else "If it runs, this server must reach its --peer-listen address"
    )
    return (
        f"another server has samples in its journal that the telemetry engine lacks: {places}. {running}; otherwise "
        "start it again, or bring the folder here under the same path. To give these samples up: "
        "jobmeter serve --discard-journals"
    )


def describe_apart(rows: Sequence[ServerRow]) -> str:
    """Return the message for servers that do not reach these."""
    hosts = ", ".join(sorted({row.host for row in rows}))
    return (
        f"this server and the server on {hosts} do not reach each other, so each sample is acknowledged only once the "
        "telemetry engine has it, and answers do not come from memory. Let all servers reach each other's "
        "--peer-listen address, then restart them"
    )


def describe_unreachable(rows: Sequence[ServerRow]) -> str:
    """Return the message for a server that cannot follow the leader, where only a leader may write."""
    hosts = ", ".join(sorted({row.host for row in rows}))
    return (
        f"this server does not reach the leading server on {hosts}, so it refuses samples and questions. Let all "
        "servers reach each other's --peer-listen address"
    )


class ServerRows(Protocol):
    """Table of the servers of an engine. A statement sees each earlier statement of any server."""

    def read(self) -> Sequence[ServerRow]:
        """Return the servers that have not departed, each with its newest description."""
        ...

    def get_state(self, number: int) -> int:
        """Return the state of a server; ``LIVE`` for an unknown one."""
        ...

    def expel(self, row: ServerRow) -> bool:
        """Expel a server. Return True once the engine has ended its inserts; none begins any more."""
        ...

    def is_inserting(self, number: int) -> bool:
        """Return True while the engine runs an insert of a server."""
        ...

    def write(self, row: ServerRow) -> None:
        """Store a row. On return it is durable and visible."""
        ...

    def forget_old(self) -> None:
        """Delete the rows of servers that departed more than a day ago, if there are many."""
        ...


class ServerTable:
    """Implements ``ServerRows`` on a single ClickHouse node."""

    def __init__(self, pool: Pool, clock: Clock) -> None:
        self._pool = pool
        self._clock = clock

    def read(self) -> Sequence[ServerRow]:
        """Return the servers that have not departed, each with its newest description."""
        with translate_failures("read which servers use it"), self._pool.borrow_client() as client:
            rows = client.query(_READ, parameters={"departed": DEPARTED}).result_rows
        return [
            ServerRow(
                int(number), int(beat), bool(journals), str(host), str(folder), int(state), str(peer), phase, leader
            )
            for number, state, beat, journals, host, folder, peer, phase, leader in rows
        ]

    def get_state(self, number: int) -> int:
        """Return the state of a server; ``LIVE`` for an unknown one."""
        return self._read_number(_STATE, {"id": number})

    def expel(self, row: ServerRow) -> bool:
        """Expel a server. Return True once the engine has ended its inserts; none begins any more."""
        if row.state == LIVE:
            self.write(msgspec.structs.replace(row, beat=row.beat + 1, state=EXPELLED))
        return not self.is_inserting(row.id)

    def is_inserting(self, number: int) -> bool:
        """Return True while the engine runs an insert of a server."""
        return bool(self._read_number(_INSERTS, {"mark": fence_server(number).mark}))

    def _read_number(self, sql: str, parameters: Mapping[str, object]) -> int:
        with translate_failures("read which servers use it"), self._pool.borrow_client() as client:
            return int(client.query(sql, parameters=dict(parameters)).result_rows[0][0])

    def write(self, row: ServerRow) -> None:
        """Store a row. On return it is durable and visible."""
        parameters = msgspec.structs.asdict(row) | {"journals": int(row.journals), "at": self._clock.now_ms()}
        with translate_failures("note which servers use it"), self._pool.borrow_client() as client:
            client.command(_WRITE, parameters=parameters)

    def forget_old(self) -> None:
        """Delete the rows of servers that departed more than a day ago, if there are many."""
        before = self._clock.now_ms() - DAY
        if self._read_number(_OLD, {"departed": DEPARTED, "before": before}) > _MOST_OLD:
            with translate_failures("forget old servers"), self._pool.borrow_client() as client:
                client.command(_FORGET.format(departed=DEPARTED, before=before))
