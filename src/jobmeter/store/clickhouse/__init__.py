"""The telemetry engine on ClickHouse: embedded (chDB) or a server, one dialect of SQL, one code path."""

from jobmeter.store.clickhouse.engine import ClickHouseStore
from jobmeter.store.clickhouse.shards import open_shards
from jobmeter.store.clickhouse.target import EngineTarget, parse_dsn

__all__ = ["ClickHouseStore", "EngineTarget", "open_shards", "parse_dsn"]
