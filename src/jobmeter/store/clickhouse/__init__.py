"""The telemetry engine on ClickHouse: embedded (chDB) or a server, one dialect of SQL, one code path."""

from jobmeter.store.clickhouse.engine import ClickHouseStore
from jobmeter.store.clickhouse.target import EngineTarget, parse_dsn

__all__ = ["ClickHouseStore", "EngineTarget", "parse_dsn"]
