"""Updates the schema of an engine to this program."""

from collections.abc import Sequence

from clickhouse_connect.driver.client import Client

from jobmeter.errors import ConfigurationError
from jobmeter.model.time import Clock
from jobmeter.store.clickhouse.failures import translate_failures
from jobmeter.store.clickhouse.migrations import MIGRATIONS, OLDEST, Migration
from jobmeter.store.clickhouse.schema import Spread, TableSchema, create, make_cluster_clause
from jobmeter.store.clickhouse.target import EngineTarget

_JOURNAL = TableSchema(
    name="migrations",
    columns=("number UInt32", "name String", "applied Int64"),
    order_by="number",
    spread=Spread.EVERYWHERE,
)


def create_database(client: Client, target: EngineTarget) -> None:
    """Create the database if it does not exist; ``client`` is connected without one."""
    with translate_failures("create its database"):
        client.command(f"CREATE DATABASE IF NOT EXISTS {target.database}{make_cluster_clause(target)}")


def migrate(client: Client, target: EngineTarget, clock: Clock) -> int:
    """Apply the missing changes. Return their number.

    Every statement may run again, so that an interrupted change, or one that two servers apply at once, ends complete.
    Raises ConfigurationError if the database was made by a newer program, or by one before ``OLDEST``.
    """
    with translate_failures("migrate its schema"):
        for statement in create(_JOURNAL, target):
            client.command(statement)
        missing = list_missing(client, target)
        for _, _, statements in missing:
            for statement in statements(target):
                client.command(statement)
        if missing:
            # In one insert: each insert makes the files of a part, and an unrecorded change may run again.
            noted = {"numbers": [number for number, _, _ in missing], "names": [name for _, name, _ in missing]}
            client.command(
                "INSERT INTO migrations SELECT number, name, {applied:Int64} "
                "FROM system.one ARRAY JOIN {numbers:Array(UInt32)} AS number, {names:Array(String)} AS name",
                parameters=noted | {"applied": clock.now_ms()},
            )
    return len(missing)


def list_missing(client: Client, target: EngineTarget) -> Sequence[Migration]:
    """Return the changes that a database lacks. Raises ConfigurationError as ``migrate``."""
    with translate_failures("read its schema"):
        rows = client.query("SELECT DISTINCT number FROM migrations ORDER BY number").result_rows
    applied = {int(row[0]) for row in rows}
    newest = max(applied, default=0)
    if newest > MIGRATIONS[-1][0]:
        raise ConfigurationError(
            f"{target.name} has schema {newest}, this program has up to {MIGRATIONS[-1][0]}: upgrade Jobmeter"
        )
    if 0 < newest < OLDEST:
        raise ConfigurationError(
            f"{target.name} has schema {newest}, which no release had; this program upgrades from {OLDEST}: "
            "use a new database"
        )
    return [migration for migration in MIGRATIONS if migration[0] not in applied]
