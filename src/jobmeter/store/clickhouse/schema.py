"""Makes statements from a table's definition: on one engine, or distributed over a cluster with the same columns."""

from enum import Enum

import msgspec

from jobmeter.store.clickhouse.target import EngineTarget


class Spread(Enum):
    """Distribution of the rows of a table in a cluster."""

    SHARDED = "sharded"
    """Each row on the shard of its job."""
    EVERYWHERE = "everywhere"
    """Every row on every node: small tables that coordinate."""


class TableSchema(msgspec.Struct, frozen=True, kw_only=True):
    """The definition of a table; ``create`` makes statements of it.

    ``primary_key`` is the part of ``order_by`` that is in memory, by default all of it. ``version`` names the column
    whose greatest value wins among rows with the same sorting key; without it the last written row wins.
    """

    name: str
    columns: tuple[str, ...]
    order_by: str
    primary_key: str = ""
    partition_by: str = ""
    ttl: str = ""
    version: str = ""
    spread: Spread = Spread.SHARDED
    settings: tuple[str, ...] = ()


def name_stored_table(name: str, target: EngineTarget) -> str:
    """Return the table with the rows: ``samples``, or ``samples_local`` below the distributed table."""
    return f"{name}_local" if target.cluster else name


def make_cluster_clause(target: EngineTarget) -> str:
    """Return the clause that runs a statement on every node, empty without a cluster."""
    return f" ON CLUSTER '{target.cluster}'" if target.cluster else ""


def create(table: TableSchema, target: EngineTarget) -> list[str]:
    """Return the statements that create a table; each may run again."""
    if not target.cluster:
        return [_create(table, table.name, f"ReplacingMergeTree({table.version})", "")]
    where = "{shard}/" if table.spread is Spread.SHARDED else ""
    replica = "{replica}" if table.spread is Spread.SHARDED else "{shard}-{replica}"
    path = f"/clickhouse/tables/{where}{target.database}/{table.name}"
    version = f", {table.version}" if table.version else ""
    engine = f"ReplicatedReplacingMergeTree('{path}', '{replica}'{version})"
    if table.spread is Spread.EVERYWHERE:
        return [_create(table, table.name, engine, make_cluster_clause(target))]
    local = name_stored_table(table.name, target)
    spread = f"Distributed('{target.cluster}', '{target.database}', '{local}', job)"
    return [
        _create(table, local, engine, make_cluster_clause(target)),
        f"CREATE TABLE IF NOT EXISTS {table.name}{make_cluster_clause(target)} AS {local} ENGINE = {spread}",
    ]


def alter(table: str, target: EngineTarget, change: str, codec: str = "", *, spread: bool = True) -> list[str]:
    """Return the statements that change a table whose rows are sharded.

    ``codec`` applies only to the table with the rows. ``spread``: the change also applies to the distributed table.
    """
    local = name_stored_table(table, target)
    changes = [f"ALTER TABLE {local}{make_cluster_clause(target)} {change} {codec}".rstrip()]
    if spread and local != table:
        changes.append(f"ALTER TABLE {table}{make_cluster_clause(target)} {change}")
    return changes


def _create(table: TableSchema, name: str, engine: str, clause: str) -> str:
    settings = [*table.settings, "fsync_after_insert = 1", "fsync_part_directory = 1"]
    parts = [
        f"CREATE TABLE IF NOT EXISTS {name}{clause} (\n  " + ",\n  ".join(table.columns) + "\n)",
        f"ENGINE = {engine}",
        f"PARTITION BY {table.partition_by}" if table.partition_by else "",
        f"PRIMARY KEY ({table.primary_key})" if table.primary_key else "",
        f"ORDER BY ({table.order_by})",
        f"TTL {table.ttl}" if table.ttl else "",
        "SETTINGS " + ", ".join(settings),
    ]
    return "\n".join(part for part in parts if part)
