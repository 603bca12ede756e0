"""How a table becomes statements: on one engine, or spread over a cluster with the same columns."""

from enum import Enum

import msgspec

from jobmeter.store.clickhouse.target import Target


class Spread(Enum):
    """Where the rows of a table lie in a cluster."""

    SHARDED = "sharded"
    """Each row on the shard of its job."""
    EVERYWHERE = "everywhere"
    """Every row on every node: small tables that coordinate."""


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """A table as it is meant; ``create`` makes statements of it.

    ``primary_key`` is the part of ``order_by`` that is in memory, by default all of it. ``version`` names the
    column whose greatest value wins among rows with one sorting key; without it the row that was written last wins.
    ``durable`` writes to disk before an insert is answered.
    """

    name: str
    columns: tuple[str, ...]
    order_by: str
    primary_key: str = ""
    partition_by: str = ""
    ttl: str = ""
    version: str = ""
    spread: Spread = Spread.SHARDED
    durable: bool = True
    settings: tuple[str, ...] = ()


def stored_name(name: str, target: Target) -> str:
    """The table with the rows: ``samples``, or ``samples_local`` below the one that spreads them."""
    return f"{name}_local" if target.cluster else name


def on_cluster(target: Target) -> str:
    """The clause that makes a statement run on every node, or nothing."""
    return f" ON CLUSTER '{target.cluster}'" if target.cluster else ""


def create(table: Table, target: Target) -> list[str]:
    """The statements that make a table; each may run again."""
    if not target.cluster:
        return [_create(table, table.name, f"ReplacingMergeTree({table.version})", "")]
    where = "{shard}/" if table.spread is Spread.SHARDED else ""
    replica = "{replica}" if table.spread is Spread.SHARDED else "{shard}-{replica}"
    path = f"/clickhouse/tables/{where}{target.database}/{table.name}"
    version = f", {table.version}" if table.version else ""
    engine = f"ReplicatedReplacingMergeTree('{path}', '{replica}'{version})"
    if table.spread is Spread.EVERYWHERE:
        return [_create(table, table.name, engine, on_cluster(target))]
    local = stored_name(table.name, target)
    spread = f"Distributed('{target.cluster}', '{target.database}', '{local}', job)"
    return [
        _create(table, local, engine, on_cluster(target)),
        f"CREATE TABLE IF NOT EXISTS {table.name}{on_cluster(target)} AS {local} ENGINE = {spread}",
    ]


def alter(
    table: str, target: Target, change: str, codec: str = "", *, spread: bool = True, sharded: bool = True
) -> list[str]:
    """The statements that change a table.

    ``codec`` goes only where the rows lie; ``spread`` says whether the change concerns the table that spreads them,
    too. ``sharded`` is False for tables that are on every node.
    """
    local = stored_name(table, target) if sharded else table
    changes = [f"ALTER TABLE {local}{on_cluster(target)} {change} {codec}".rstrip()]
    if spread and local != table:
        changes.append(f"ALTER TABLE {table}{on_cluster(target)} {change}")
    return changes


def _create(table: Table, name: str, engine: str, clause: str) -> str:
    settings = [*table.settings]
    if table.durable:
        settings += ["fsync_after_insert = 1", "fsync_part_directory = 1"]
    parts = [
        f"CREATE TABLE IF NOT EXISTS {name}{clause} (\n  " + ",\n  ".join(table.columns) + "\n)",
        f"ENGINE = {engine}",
        f"PARTITION BY {table.partition_by}" if table.partition_by else "",
        f"PRIMARY KEY ({table.primary_key})" if table.primary_key else "",
        f"ORDER BY ({table.order_by})",
        f"TTL {table.ttl}" if table.ttl else "",
        "SETTINGS " + ", ".join(settings) if settings else "",
    ]
    return "\n".join(part for part in parts if part)
