"""The address of the engine: parses and checks a DSN."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from jobmeter.errors import ConfigurationError

DEFAULT_DATABASE = "jobmeter"
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_CLUSTER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
_SERVER_OPTIONS = frozenset({"ca_cert", "client_cert", "client_cert_key", "secure", "server_host_name", "verify"})
_EMBEDDED_OPTIONS = frozenset({"config-file"})


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineTarget:
    """An engine to connect to.

    ``path`` is set for the embedded engine, ``host`` for a server. ``cluster`` is the ClickHouse cluster over which the
    tables are distributed, empty for none. Without ``journal`` a ClickHouse server commits every sample. ``options`` go
    to the engine (embedded) or to the HTTP client (server).
    """

    database: str = DEFAULT_DATABASE
    path: Path | None = None
    host: str = ""
    port: int = 0
    user: str = ""
    password: str = field(default="", repr=False)
    cluster: str = ""
    journal: bool = True
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def exclusive(self) -> bool:
        """True if only this process can write: its caches of the engine's content stay valid."""
        return self.path is not None

    @property
    def journaled(self) -> bool:
        """True for a single ClickHouse server: its servers agree on who may acknowledge from a journal."""
        return self.path is None and not self.cluster

    @property
    def name(self) -> str:
        """The name for messages, without the password."""
        return f"chdb://{self.path}" if self.path else f"clickhousedb://{self.host}:{self.port}/{self.database}"


def parse_dsn(dsn: str) -> EngineTarget:
    """Parse ``chdb://PATH`` or ``clickhousedb://USER:PASSWORD@HOST:PORT/DATABASE``, with ``?option=value``.

    Raises ConfigurationError naming the invalid part. A chDB path is taken literally, not percent-decoded.
    """
    scheme, separator, rest = dsn.partition("://")
    if separator and scheme == "chdb":
        return _embedded(rest)
    if separator and scheme == "clickhousedb":
        return _server(dsn)
    raise ConfigurationError(
        f"the store {scheme!r} is not one of chdb://PATH, clickhousedb://USER:PASSWORD@HOST:PORT/DB"
    )


def _embedded(rest: str) -> EngineTarget:
    path, _, query = rest.partition("?")
    if not path:
        raise ConfigurationError("a chdb:// store needs the path of a folder: chdb:///var/lib/jobmeter/telemetry")
    options = dict(parse_qsl(query, keep_blank_values=True))
    cluster = _cluster(options.pop("cluster", ""))
    _check_options(options, _EMBEDDED_OPTIONS)
    return EngineTarget(path=Path(path).resolve(), cluster=cluster, options=options)


def _server(dsn: str) -> EngineTarget:
    parts = urlsplit(dsn)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    cluster = _cluster(options.pop("cluster", ""))
    journal = options.pop("journal", "on")
    if journal not in {"on", "off"}:
        raise ConfigurationError(f"the option journal of the store must be on or off, got {journal[:64]!r}")
    _check_options(options, _SERVER_OPTIONS)
    secure = options.get("secure", "").lower() in {"1", "true", "yes"}
    try:
        port = parts.port or (8443 if secure else 8123)
    except ValueError as error:
        raise ConfigurationError("the port of the store is not a number from 0 to 65535") from error
    if not parts.hostname:
        raise ConfigurationError("a clickhousedb:// store needs a host: clickhousedb://USER:PASSWORD@HOST:8123/DB")
    database = unquote(parts.path.strip("/")) or DEFAULT_DATABASE
    if not _IDENTIFIER.fullmatch(database):
        raise ConfigurationError(f"the database {database!r} of the store is not a name of letters, digits and _")
    return EngineTarget(
        database=database,
        host=parts.hostname,
        port=port,
        user=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
        cluster=cluster,
        journal=journal == "on",
        options=options,
    )


def _cluster(name: str) -> str:
    if name and not _CLUSTER.fullmatch(name):
        raise ConfigurationError(f"the cluster {name!r} of the store is not a name of letters, digits, _ . and -")
    return name


def _check_options(options: Mapping[str, str], allowed: frozenset[str]) -> None:
    for name in options:
        if name not in allowed:
            raise ConfigurationError(
                f"the store has no option {name!r}: there are cluster, {', '.join(sorted(allowed))}"
            )
