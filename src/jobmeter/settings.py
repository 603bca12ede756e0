"""Settings in one frozen tree: meaning, default and environment variable of each.

Command-line flags take precedence over the environment, and the environment over the default.
``docs/reference/settings.md`` is asserted against this file.
"""

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from jobmeter.errors import ConfigurationError
from jobmeter.model.cores import count_cores
from jobmeter.model.retention import Retention

_MOST_PROCESSES, _MOST_CORES = 64, 8
_FEWEST_CORES = 3
"""Fewest cores on which the server has workers by default."""


def find_data_directory(environment: Mapping[str, str]) -> Path:
    """Return ``$XDG_DATA_HOME/jobmeter``, by default ``~/.local/share/jobmeter``."""
    base = environment.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return Path(base) / "jobmeter"


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits on the work that callers can cause."""

    body_bytes: int = 64 * 2**20
    """Largest request body as sent (JOBMETER_LIMIT_BODY_BYTES)."""
    decoded_bytes: int = 256 * 2**20
    """Largest request body after decompression (JOBMETER_LIMIT_DECODED_BYTES)."""
    request_series: int = 100_000
    """Most series in one ingest request (JOBMETER_LIMIT_REQUEST_SERIES)."""
    request_records: int = 10_000
    """Most records (of jobs, nodes, events, leases) in one request (JOBMETER_LIMIT_REQUEST_RECORDS)."""
    request_points: int = 500_000
    """Most data points in one body of JSON (JOBMETER_LIMIT_REQUEST_POINTS)."""
    request_lines: int = 1_000_000
    """Most log lines in one ingest request (JOBMETER_LIMIT_REQUEST_LINES)."""
    project_series: int = 5_000_000
    """Most live series of one project (JOBMETER_LIMIT_PROJECT_SERIES)."""
    query_points: int = 2_000_000
    """Most points in one answer (JOBMETER_LIMIT_QUERY_POINTS)."""
    query_buckets: int = 50_000
    """Most buckets in one line of an answer (JOBMETER_LIMIT_QUERY_BUCKETS)."""
    query_series: int = 100_000
    """Most series that one question may read (JOBMETER_LIMIT_QUERY_SERIES)."""
    query_rows: int = 200_000_000
    """Most stored rows that one request may read in total (JOBMETER_LIMIT_QUERY_ROWS)."""
    query_seconds: int = 30
    """Longest time in seconds for all queries of one request (JOBMETER_LIMIT_QUERY_SECONDS)."""
    export_rows: int = 1_000_000_000
    """Most stored rows in one raw export (JOBMETER_LIMIT_EXPORT_ROWS)."""
    export_seconds: int = 3_600
    """Longest time in seconds for one raw export, including a slow client (JOBMETER_LIMIT_EXPORT_SECONDS)."""
    future_seconds: int = 300
    """Largest lead in seconds of a sample over the server's clock (JOBMETER_LIMIT_FUTURE_SECONDS)."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a server."""

    data: Path
    """The data folder (--data, JOBMETER_DATA)."""
    host: str = "127.0.0.1"
    """Address to listen on (--host, JOBMETER_HOST)."""
    port: int = 8400
    """Port to listen on, 0 for any free one (--port, JOBMETER_PORT)."""
    processes: str = "auto"
    """Processes that speak HTTP (--processes, JOBMETER_PROCESSES): a whole number up to 64, or ``auto``.

    With more than one, worker processes speak HTTP beside the process that stores and answers. ``auto``: one worker for
    each core that the affinity and the control groups of the server allow, at most 8; no workers on one or two cores.
    See ``docs/how-to/serve.md``.
    """
    store: str = ""
    """DSN of the telemetry engine (--store, JOBMETER_STORE); by default ``chdb://DATA/telemetry``."""
    registry: str = ""
    """URL of the registry (--registry, JOBMETER_REGISTRY); by default ``sqlite:///DATA/registry.db``."""
    peer_listen: str = ""
    """Address for the other servers of the same ClickHouse server (--peer-listen, JOBMETER_PEER_LISTEN): HOST:PORT.

    Default: a free port of the address by which this machine reaches the ClickHouse server. PORT is for the first shard
    of a store, the next ports for the others. ``off``: each sample goes
    to ClickHouse before it is acknowledged. See ``docs/how-to/clickhouse-cluster.md``.
    """
    secret_key_file: str = ""
    """File with the secret key, which encrypts stored secrets (JOBMETER_SECRET_KEY_FILE).

    Default: ``DATA/secret.key``, created if missing.
    """
    tls_cert: str = ""
    """Certificate chain in PEM (--tls-cert, JOBMETER_TLS_CERT)."""
    tls_key: str = ""
    """Private key in PEM (--tls-key, JOBMETER_TLS_KEY)."""
    public_url: str = ""
    """Public address of the server, used in trace endpoints and links: ``https://meter.example`` (JOBMETER_PUBLIC_URL).

    Default: the address of each call. Behind a proxy that is the proxy's address only if ``trusted_proxies`` contains
    the proxy.
    """
    trusted_proxies: str = ""
    """Proxies whose headers X-Forwarded-For, -Proto, -Host, -Port and -Prefix are trusted (JOBMETER_TRUSTED_PROXIES).

    Addresses and networks: ``127.0.0.1,10.0.0.0/8``. Default: these headers are ignored.
    """
    opentsdb_port: int | None = None
    """Port for OpenTSDB's telnet protocol, 0 for any free one (--opentsdb-port, JOBMETER_OPENTSDB_PORT).

    Default: off.
    """
    opentsdb_key: str = ""
    """Token of the key for connections to that port without their own key (JOBMETER_OPENTSDB_KEY).

    Default: they may not write.
    """
    otlp_grpc_port: int | None = None
    """Port for OTLP over gRPC, 0 for any free one (--otlp-grpc-port, JOBMETER_OTLP_GRPC_PORT).

    Default: off. Uses TLS if ``tls_cert`` is set.
    """
    grace_seconds: int = 30
    """Longest time in seconds for the server to stop (JOBMETER_GRACE_SECONDS).

    Then the process ends, even with requests still running.
    """
    window_seconds: int | None = None
    """Age in seconds up to which samples are cached in memory, 0 to disable (JOBMETER_WINDOW_SECONDS).

    Default: 7,200. With a ClickHouse cluster the default is 0: other servers may write to the cluster unnoticed, and
    answers would lack their samples.
    """
    window_bytes: int = 2 * 2**30
    """Memory for that window, the query cache and the cache of repeated sender data (JOBMETER_WINDOW_BYTES).

    Each cache gets a sixth. The window shrinks when memory is short.
    """
    request_bytes: int = 2**30
    """Memory that all running requests may use, for bodies as sent, decoded and parsed (JOBMETER_REQUEST_BYTES).

    Further requests are asked to retry.
    """
    lease_seconds: int = 60
    """Least time after which a run that stopped renewing its lease counts as lost (JOBMETER_LEASE_SECONDS).

    A run with a longer interval gets three of its renewal intervals.
    """
    node_seconds: int = 180
    """Least time without data after which a node counts as down (JOBMETER_NODE_SECONDS).

    A node that measures seldom gets five of its intervals.
    """
    task_seconds: int = 60
    """Time in seconds that a diagnostic task waits for the answers of agents (JOBMETER_TASK_SECONDS)."""
    rate_limits: str = ""
    """Rate limits of a key by operation (JOBMETER_RATE_LIMITS).

    ``GetJobMetrics=50:100,*=200`` allows 50 calls a second, 100 at once, and 200 of every other operation;
    ``DeleteResourceLog=20/account`` counts the calls of all keys of an account together. Default: only operations with
    a rate stated by their vendor are limited, to that rate.
    """
    usage_zone: str = "Asia/Shanghai"
    """Time zone of the months by which calls are counted, a name of the IANA database (JOBMETER_USAGE_ZONE).

    Existing counts stay in their month after a change.
    """
    prices: str = ""
    """TOML file that overrides built-in prices and free calls of operations (JOBMETER_PRICES).

    See ``docs/how-to/usage-and-prices.md``.
    """
    query_budgets: str = ""
    """Query budget of each key (JOBMETER_QUERY_BUDGETS).

    ``rows=2000000000,seconds=600,concurrent=4,exports=2`` limits stored rows and seconds of work per minute, and
    concurrent queries and raw exports. Default: rows and seconds unlimited, 4 queries (short and long ones each) and 2
    exports.
    """
    rules: str = ""
    """TOML file that overrides built-in thresholds of diagnostic rules (JOBMETER_RULES).

    See ``docs/reference/rules.md``.
    """
    sinks: str = ""
    """TOML file with the sinks for log lines (JOBMETER_SINKS); see ``docs/how-to/ship-logs.md``. Default: no sinks."""
    alert_rules: str = ""
    """Prometheus rule files, separated by commas (--alert-rules, JOBMETER_ALERT_RULES).

    See ``docs/how-to/alerts.md``. Default: the shipped rules alone.
    """
    alert_config: str = ""
    """YAML file with routes and receivers in Alertmanager's form (--alert-config, JOBMETER_ALERT_CONFIG).

    See ``docs/how-to/alerts.md``. Default: alerts are shown, and nothing is sent.
    """
    alert_shipped: str = "on"
    """``off`` turns the shipped rules off (JOBMETER_ALERT_SHIPPED)."""
    retention: Retention = msgspec.field(default_factory=Retention)
    """Days to keep raw samples, minutes, hours (JOBMETER_RETENTION_RAW_DAYS, _MINUTE_DAYS, _HOUR_DAYS)."""
    limits: Limits = msgspec.field(default_factory=Limits)
    """Limits on requests, queries and exports."""

    def __repr__(self) -> str:
        """Leaves out ``opentsdb_key``, which is secret."""
        names = (name for name in self.__struct_fields__ if name != "opentsdb_key")
        return f"Settings({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    @property
    def worker_processes(self) -> int:
        """Number of worker processes; 0 if the server is one process. Raises ConfigurationError."""
        text = self.processes
        if text == "auto":
            cores = count_cores()
            return min(cores, _MOST_CORES) if cores >= _FEWEST_CORES else 0
        count = int(text) if text.isdecimal() else 0
        if not 1 <= count <= _MOST_PROCESSES:
            raise ConfigurationError(
                f"JOBMETER_PROCESSES must be auto or a whole number from 1 to {_MOST_PROCESSES}, got {text[:64]!r}"
            )
        return count if count > 1 else 0

    @property
    def store_dsn(self) -> str:
        """DSN of the telemetry engine, including the default."""
        return self.store or f"chdb://{self.data / 'telemetry'}"

    @property
    def journals(self) -> Path:
        """The folder with the journals of ClickHouse servers."""
        return self.data / "journal"

    @property
    def registry_url(self) -> str:
        """URL of the registry, including the default."""
        return self.registry or f"sqlite:///{self.data / 'registry.db'}"


def load(environment: Mapping[str, str] | None = None, **flags: object) -> Settings:
    """Load settings from flags (unless None) and the environment.

    Raises ConfigurationError naming the variable that is wrong.
    """
    variables = os.environ if environment is None else environment
    values: dict[str, object] = {}
    for field in msgspec.structs.fields(Settings):
        key = f"JOBMETER_{field.name.upper()}"
        if field.type is str and variables.get(key):
            values[field.name] = variables[key]
    values["data"] = Path(variables.get("JOBMETER_DATA") or find_data_directory(variables))
    for name, (lowest, highest) in _NUMBERS.items():
        key = f"JOBMETER_{name.upper()}"
        if variables.get(key):
            values[name] = _number(variables, key, lowest, highest)
    values["retention"] = Retention(**_numbers(variables, "JOBMETER_RETENTION_", Retention, 36_500))
    values["limits"] = Limits(**_numbers(variables, "JOBMETER_LIMIT_", Limits, 2**53))
    values.update({name: value for name, value in flags.items() if value is not None})
    return Settings(**values)  # type: ignore[arg-type]


_NUMBERS = {
    "port": (0, 65_535),
    "opentsdb_port": (0, 65_535),
    "otlp_grpc_port": (0, 65_535),
    "grace_seconds": (1, 3_600),
    "window_seconds": (0, 7 * 86_400),
    "window_bytes": (0, 2**45),
    "request_bytes": (2**24, 2**45),
    "lease_seconds": (0, 86_400),
    "node_seconds": (1, 86_400),
    "task_seconds": (1, 3_600),
}


def _numbers(
    variables: Mapping[str, str], prefix: str, shape: type[Limits | Retention], highest: int
) -> dict[str, int]:
    names = {name: f"{prefix}{name.upper()}" for name in shape.__struct_fields__}
    return {name: _number(variables, key, 1, highest) for name, key in names.items() if variables.get(key)}


def _number(variables: Mapping[str, str], key: str, lowest: int, highest: int) -> int:
    text = variables[key]
    if not text.isdecimal() or not lowest <= int(text) <= highest:
        raise ConfigurationError(f"{key} must be a whole number from {lowest} to {highest}, got {text!r}")
    return int(text)
