"""The servers that use the engine, see ``jobmeter.store.clickhouse.membership``.

A row is a state of a server. Of several rows of one server and state the one with the highest ``beat`` stays.
"""

from jobmeter.store.clickhouse.schema import TableSchema, create
from jobmeter.store.clickhouse.target import EngineTarget

SERVERS = TableSchema(
    name="servers",
    columns=(
        "id UInt64",
        "state UInt8",
        "beat UInt64",
        "journals UInt8",
        "host String",
        "folder String",
        "at Int64",
    ),
    order_by="id, state",
    version="beat",
)


def list_statements(target: EngineTarget) -> list[str]:
    """Return the statements that add the table. An embedded engine has one server, a cluster needs no journal."""
    return create(SERVERS, target) if target.journaled else []
