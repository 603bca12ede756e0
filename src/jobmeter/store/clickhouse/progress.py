"""The table ``progress``: whole numbers by name. The greatest value of a name counts, so it never falls."""

from collections.abc import Mapping
from typing import Any

from clickhouse_connect.driver.client import Client

INSERT_PROGRESS = (
    "INSERT INTO progress SELECT name, value "
    "FROM system.one ARRAY JOIN {names:Array(String)} AS name, {values:Array(Int64)} AS value"
)


def read_progress(
    client: Client, *, table: str = "progress", settings: Mapping[str, Any] | None = None
) -> dict[str, int]:
    """Read the values by name; ``table`` may begin with the name of a database."""
    sql = f"SELECT name, max(value) FROM {table} GROUP BY name"
    rows = client.query(sql, settings=dict(settings or {})).result_rows
    return {str(name): int(value) for name, value in rows}


def write_progress(
    client: Client, values: Mapping[str, int], *, sql: str = INSERT_PROGRESS, settings: Mapping[str, Any] | None = None
) -> None:
    """Store values by name. They are durable on return. ``sql`` may restrict INSERT_PROGRESS."""
    parameters = {"names": list(values), "values": list(values.values())}
    client.command(sql, parameters=parameters, settings=dict(settings or {}))
