"""Every setting, in one frozen tree: what it means, its default, its environment variable.

Flags of the command line come before the environment, the environment before the default.
``docs/reference/settings.md`` is asserted against this file.
"""

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from jobmeter.errors import ConfigurationError
from jobmeter.model.retention import Retention


def default_data_directory(environment: Mapping[str, str]) -> Path:
    """``$XDG_DATA_HOME/jobmeter``, by default ``~/.local/share/jobmeter``."""
    base = environment.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return Path(base) / "jobmeter"


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What a stranger may make the server do at most."""

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
    """Most stored rows that one request may read, all its questions together (JOBMETER_LIMIT_QUERY_ROWS)."""
    query_seconds: int = 30
    """Longest time for the questions of one request (JOBMETER_LIMIT_QUERY_SECONDS)."""
    export_rows: int = 1_000_000_000
    """Most stored rows in one raw export (JOBMETER_LIMIT_EXPORT_ROWS)."""
    export_seconds: int = 3_600
    """Longest time for one raw export, a client that reads slowly included (JOBMETER_LIMIT_EXPORT_SECONDS)."""
    future_seconds: int = 300
    """How far ahead of the server's clock a sample may be (JOBMETER_LIMIT_FUTURE_SECONDS)."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What the server is told at its start."""

    data: Path
    """The data folder (--data, JOBMETER_DATA)."""
    host: str = "127.0.0.1"
    """Address to listen on (--host, JOBMETER_HOST)."""
    port: int = 8400
    """Port to listen on, 0 for any free one (--port, JOBMETER_PORT)."""
    store: str = ""
    """DSN of the telemetry engine (--store, JOBMETER_STORE); by default ``chdb://DATA/telemetry``."""
    registry: str = ""
    """URL of the registry (--registry, JOBMETER_REGISTRY); by default ``sqlite:///DATA/registry.db``."""
    secret_key_file: str = ""
    """File with the key that seals secrets (JOBMETER_SECRET_KEY_FILE); by default ``DATA/secret.key``, made then."""
    tls_cert: str = ""
    """Certificate chain in PEM (--tls-cert, JOBMETER_TLS_CERT)."""
    tls_key: str = ""
    """Private key in PEM (--tls-key, JOBMETER_TLS_KEY)."""
    public_url: str = ""
    """Address that the server gives to others, in trace endpoints and links: ``https://meter.example``
    (JOBMETER_PUBLIC_URL). By default it is the address of each call, which behind a proxy is the proxy's only where
    ``trusted_proxies`` names the proxy."""
    trusted_proxies: str = ""
    """Proxies whose X-Forwarded-For, -Proto, -Host, -Port and -Prefix count, as addresses and networks:
    ``127.0.0.1,10.0.0.0/8`` (JOBMETER_TRUSTED_PROXIES). By default these headers are ignored."""
    opentsdb_port: int | None = None
    """Port for OpenTSDB's telnet protocol, 0 for any free one (--opentsdb-port, JOBMETER_OPENTSDB_PORT); by default
    there is none."""
    opentsdb_key: str = ""
    """Token of the key as which connections to that port write that name none (JOBMETER_OPENTSDB_KEY); by default
    they may not write."""
    otlp_grpc_port: int | None = None
    """Port for OpenTelemetry's metrics over gRPC, 0 for any free one (--otlp-grpc-port, JOBMETER_OTLP_GRPC_PORT); by
    default there is none. With TLS where ``tls_cert`` is set."""
    grace_seconds: int = 30
    """How long the server may take to stop once it is told to: then the process ends, whatever is under way
    (JOBMETER_GRACE_SECONDS)."""
    window_seconds: int | None = None
    """How far back the newest samples are in memory, 0 for not at all (JOBMETER_WINDOW_SECONDS); by default 7,200
    with the embedded engine, and not at all with an engine that other servers may write to: what they write would be
    missing in this one's answers."""
    window_bytes: int = 2 * 2**30
    """Memory that they may take, together with the cache of questions and that of what senders send again, each of
    which has a sixth of it; when it is not enough the window shrinks (JOBMETER_WINDOW_BYTES)."""
    request_bytes: int = 2**30
    """Memory that the requests under way may take together, for their bodies as sent, decoded, and read
    (JOBMETER_REQUEST_BYTES); what comes when too little is left is told to try again."""
    lease_seconds: int = 60
    """Shortest time after which a run that no longer renews its lease is taken for lost (JOBMETER_LEASE_SECONDS); a run
    asks for three of its own renewals where that is longer."""
    node_seconds: int = 180
    """Shortest time without a word after which a node is taken for down (JOBMETER_NODE_SECONDS); one whose agent
    measures seldom has five of its intervals."""
    task_seconds: int = 60
    """How long a diagnostic task waits for the answers of agents (JOBMETER_TASK_SECONDS)."""
    rate_limits: str = ""
    """Calls a second of one key, by operation: ``GetJobMetrics=50:100,*=200`` is 50 a second, 100 of them at once,
    and 200 of every other one; ``DeleteResourceLog=20/account`` counts the calls of all keys of an account together
    (JOBMETER_RATE_LIMITS); by default only operations whose vendor states a rate are limited, to that one."""
    usage_zone: str = "Asia/Shanghai"
    """Time zone whose months calls are counted by, a name of the IANA database (JOBMETER_USAGE_ZONE). What was counted
    before it is changed stays in its month."""
    prices: str = ""
    """File with prices and free calls of operations in place of the shipped ones, TOML (JOBMETER_PRICES); see
    ``docs/how-to/usage-and-prices.md``."""
    query_budgets: str = ""
    """What each key may ask: ``rows=2000000000,seconds=600,concurrent=4,exports=2`` is so many stored rows and seconds
    of work a minute, and so many questions and raw exports at one time (JOBMETER_QUERY_BUDGETS); by default rows and
    seconds are not limited, and it is 4 questions (short and long ones each) and 2 exports."""
    rules: str = ""
    """File with thresholds of diagnostic rules in place of the shipped ones, TOML (JOBMETER_RULES); see
    ``docs/reference/rules.md``."""
    sinks: str = ""
    """File that says where log lines may be shipped to, TOML (JOBMETER_SINKS); see ``docs/how-to/ship-logs.md``. By
    default there are no sinks."""
    retention: Retention = msgspec.field(default_factory=Retention)
    """Days to keep raw samples, minutes, hours (JOBMETER_RETENTION_RAW_DAYS, _MINUTE_DAYS, _HOUR_DAYS)."""
    limits: Limits = msgspec.field(default_factory=Limits)
    """See ``Limits``."""

    def __repr__(self) -> str:
        """All but ``opentsdb_key``, which is secret."""
        names = (name for name in self.__struct_fields__ if name != "opentsdb_key")
        return f"Settings({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    @property
    def store_dsn(self) -> str:
        """The telemetry engine, the default filled in."""
        return self.store or f"chdb://{self.data / 'telemetry'}"

    @property
    def registry_url(self) -> str:
        """The registry, the default filled in."""
        return self.registry or f"sqlite:///{self.data / 'registry.db'}"


def load(environment: Mapping[str, str] | None = None, **flags: object) -> Settings:
    """Settings from flags (those that are not None) and the environment.

    Raises ConfigurationError naming the variable that is wrong.
    """
    variables = os.environ if environment is None else environment
    values: dict[str, object] = {}
    for field in msgspec.structs.fields(Settings):
        key = f"JOBMETER_{field.name.upper()}"
        if field.type is str and variables.get(key):
            values[field.name] = variables[key]
    values["data"] = Path(variables.get("JOBMETER_DATA") or default_data_directory(variables))
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
        raise ConfigurationError(f"{key} must be a whole number from {lowest} to {highest}, it is {text!r}")
    return int(text)
