"""Address and role of each server, see ``jobmeter.store.clickhouse.membership``."""

from jobmeter.store.clickhouse.target import EngineTarget

_COLUMNS = ("peer String", "phase UInt8", "leader UInt64")


def list_statements(target: EngineTarget) -> list[str]:
    """Return the statement that adds the columns to the table of servers, which only a journaled engine has."""
    added = ", ".join(f"ADD COLUMN IF NOT EXISTS {column}" for column in _COLUMNS)
    return [f"ALTER TABLE servers {added}"] if target.journaled else []
