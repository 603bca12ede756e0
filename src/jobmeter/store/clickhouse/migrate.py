"""Bring the schema of an engine up to this program."""

from clickhouse_connect.driver.client import Client

from jobmeter.errors import ConfigurationError
from jobmeter.model.time import Clock
from jobmeter.store.clickhouse.failures import translated
from jobmeter.store.clickhouse.migrations import MIGRATIONS
from jobmeter.store.clickhouse.schema import Spread, Table, create, on_cluster
from jobmeter.store.clickhouse.target import Target

_JOURNAL = Table(
    name="migrations",
    columns=("number UInt32", "name String", "applied Int64"),
    order_by="number",
    spread=Spread.EVERYWHERE,
)


def create_database(client: Client, target: Target) -> None:
    """Make the database when it is not there; ``client`` is connected without one."""
    with translated("create its database"):
        client.command(f"CREATE DATABASE IF NOT EXISTS {target.database}{on_cluster(target)}")


def migrate(client: Client, target: Target, clock: Clock) -> int:
    """Apply what is missing and give the number of changes applied.

    Every statement may run again, so that a change that was cut off, or that two servers apply at once, ends whole.
    Raises ConfigurationError when the database was made by a newer program.
    """
    with translated("migrate its schema"):
        for statement in create(_JOURNAL, target):
            client.command(statement)
        rows = client.query("SELECT DISTINCT number FROM migrations ORDER BY number").result_rows
        applied = {int(row[0]) for row in rows}
        newest = max(applied, default=0)
        if newest > MIGRATIONS[-1][0]:
            raise ConfigurationError(
                f"{target.name} has schema {newest}, this program has up to {MIGRATIONS[-1][0]}: upgrade Jobmeter"
            )
        missing = [migration for migration in MIGRATIONS if migration[0] not in applied]
        for _, _, statements in missing:
            for statement in statements(target):
                client.command(statement)
        if missing:
            # All at once: each insert makes the files of a part, and what was not noted may run again.
            noted = {"numbers": [number for number, _, _ in missing], "names": [name for _, name, _ in missing]}
            client.command(
                "INSERT INTO migrations SELECT number, name, {applied:Int64} "
                "FROM system.one ARRAY JOIN {numbers:Array(UInt32)} AS number, {names:Array(String)} AS name",
                parameters=noted | {"applied": clock.now_ms()},
            )
    return len(missing)
