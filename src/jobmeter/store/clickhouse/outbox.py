"""Writes lines that wait for their sinks to the engine, and reads them back."""

from collections.abc import Sequence

import msgspec

from jobmeter.model.shipper import OutboxRow
from jobmeter.store.clickhouse.failures import translate_failures
from jobmeter.store.clickhouse.led_tables import OUTBOX, TRIM, SendRows, send_to_no_leader
from jobmeter.store.clickhouse.pool import Pool
from jobmeter.store.clickhouse.schema import make_cluster_clause, name_stored_table
from jobmeter.store.clickhouse.target import EngineTarget
from jobmeter.store.clickhouse.write_gate import WriteGate

_LINES = 50_000
_MOST_BYTES = 32 * 2**20


class OutboxTable:
    """Implements ``jobmeter.store.base.OutboxStore``. Safe for any number of threads."""

    def __init__(
        self, write: Pool, read: Pool, target: EngineTarget, gate: WriteGate, send: SendRows = send_to_no_leader
    ) -> None:
        self._gate = gate
        self._send = send
        self._write = write
        self._read = read
        self._target = target

    def append(self, shipper: int, rows: Sequence[OutboxRow]) -> None:
        """Store rows. On return they are durable."""
        if self._send(OUTBOX, shipper, lambda: list(rows)):
            return
        with self._gate.admit_write(), translate_failures("keep lines to ship"), self._write.borrow_client() as client:
            for start in range(0, len(rows), _LINES):
                block = b"\n".join(_encode_row(shipper, row) for row in rows[start : start + _LINES])
                client.raw_insert("outbox", None, block, fmt="JSONEachRow")

    def read(self, shipper: int, after: int, lines: int, size: int) -> list[OutboxRow]:
        """Return the rows after a number, in order, each once."""
        sql = (
            "SELECT number, arrived, raw_days, line FROM outbox "
            "WHERE job = {shipper:UInt64} AND number > {after:UInt64} "
            "ORDER BY job, number LIMIT 1 BY number LIMIT {lines:UInt32}"
        )
        parameters = {"shipper": shipper, "after": after, "lines": lines}
        with translate_failures("read lines to ship"), self._read.borrow_client() as client:
            found = client.query(sql, parameters=parameters).result_rows
        rows: list[OutboxRow] = []
        taken = 0
        for number, arrived, raw_days, line in found:
            taken += len(line)
            if rows and taken > min(size, _MOST_BYTES):
                break
            rows.append(OutboxRow(number, arrived, raw_days, line.encode()))
        return rows

    def trim(self, shipper: int, until: int | None) -> None:
        """Delete the rows up to a number; None: all of them."""
        if self._send(TRIM, shipper, lambda: until):
            return
        bound = "" if until is None else f" AND number <= {int(until)}"
        table = f"{name_stored_table('outbox', self._target)}{make_cluster_clause(self._target)}"
        with (
            self._gate.admit_write(),
            translate_failures("delete shipped lines"),
            self._write.borrow_client() as client,
        ):
            client.command(f"ALTER TABLE {table} DELETE WHERE job = {int(shipper)}{bound} SETTINGS mutations_sync = 0")


def _encode_row(shipper: int, row: OutboxRow) -> bytes:
    return msgspec.json.encode(
        {
            "job": shipper,
            "number": row.number,
            "arrived": row.arrived,
            "line": row.line.decode(),
            "raw_days": row.raw_days,
        }
    )
