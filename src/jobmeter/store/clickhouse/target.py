"""The address of the engine: parses and checks a DSN."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from jobmeter.errors import ConfigurationError

DEFAULT_DATABASE = "jobmeter"
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_CLUSTER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
_SERVER_OPTIONS = frozenset({"ca_cert", "client_cert", "client_cert_key", "secure", "server_host_name", "verify"})
_EMBEDDED_OPTIONS = frozenset({"config-file"})
_MOST_HOSTS = 16
_ADDRESS = re.compile(r"clickhousedb://(?P<user>[^/?#]*@)?(?P<hosts>[^/?#]*)(?P<rest>.*)", re.DOTALL)
_NO_HOST = "a clickhousedb:// store needs a host: clickhousedb://USER:PASSWORD@HOST:8123/DB; several hosts: HOST,HOST"

Place = tuple[str, int]
"""Host and port of a ClickHouse server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineTarget:
    """An engine to connect to.

    ``path`` is set for the embedded engine, ``places`` for one or more servers. ``cluster`` is the ClickHouse cluster
    over which the tables are distributed, empty for none. Any of several servers takes the statements for a cluster.
    Without a cluster, several servers are replicas that Jobmeter writes, of ``shards`` shards; the servers of a shard
    follow each other. ``keep`` is the number of first shards that keep rows, 0 for all. ``shard`` is the number, from
    1, of the shard of a store with several shards that this target is; 0 for a whole store. ``siblings`` counts the
    shards of that store, which share the memory for journals. Without ``journal`` a ClickHouse server commits every
    sample. ``options`` go to the engine (embedded) or to the HTTP client (server).
    """

    database: str = DEFAULT_DATABASE
    path: Path | None = None
    places: tuple[Place, ...] = ()
    user: str = ""
    password: str = field(default="", repr=False)
    cluster: str = ""
    shards: int = 1
    keep: int = 0
    shard: int = 0
    siblings: int = 1
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
        hosts = ",".join(map(format_place, self.places))
        shards = f"?shards={self.shards}" if self.shards > 1 else ""
        return f"chdb://{self.path}" if self.path else f"clickhousedb://{hosts}/{self.database}{shards}"

    @property
    def is_secure(self) -> bool:
        """True if servers speak TLS."""
        return is_true(self.options.get("secure", ""))

    def with_server(self, place: Place) -> "EngineTarget":
        """Return the target that has only this server."""
        return replace(self, places=(place,), shards=1)

    def split(self) -> "Sequence[EngineTarget]":
        """Return the target of each shard; for a store without shards the target itself."""
        if self.shards == 1:
            return [self]
        size = len(self.places) // self.shards
        parts = [self.places[first : first + size] for first in range(0, len(self.places), size)]
        return [
            replace(self, places=part, shards=1, shard=number, siblings=self.shards)
            for number, part in enumerate(parts, 1)
        ]


def is_true(option: str) -> bool:
    """Return True if the value of an option means yes."""
    return option.lower() in {"1", "true", "yes"}


def format_place(place: Place) -> str:
    """Return ``HOST:PORT``, the host in brackets if it is an IPv6 address."""
    host, port = place
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_dsn(dsn: str) -> EngineTarget:
    """Parse ``chdb://PATH`` or ``clickhousedb://USER:PASSWORD@HOST:PORT,HOST:PORT/DATABASE``, with ``?option=value``.

    Raises ConfigurationError naming the invalid part. A chDB path is taken literally, not percent-decoded.
    """
    scheme, separator, rest = dsn.partition("://")
    if separator and scheme == "chdb":
        return _parse_embedded(rest)
    if separator and scheme == "clickhousedb":
        return _server(dsn)
    raise ConfigurationError(
        f"the store {scheme!r} is not one of chdb://PATH, clickhousedb://USER:PASSWORD@HOST:PORT/DB"
    )


def _parse_embedded(rest: str) -> EngineTarget:
    path, _, query = rest.partition("?")
    if not path:
        raise ConfigurationError("a chdb:// store needs the path of a folder: chdb:///var/lib/jobmeter/telemetry")
    options = dict(parse_qsl(query, keep_blank_values=True))
    cluster = _cluster(options.pop("cluster", ""))
    _check_options(options, _EMBEDDED_OPTIONS)
    return EngineTarget(path=Path(path).resolve(), cluster=cluster, options=options)


def _server(dsn: str) -> EngineTarget:
    before, hosts, rest = _divided(dsn)
    parts = [_split(f"clickhousedb://{before}{host}{rest}") for host in hosts]
    options = dict(parse_qsl(parts[0].query, keep_blank_values=True))
    cluster = _cluster(options.pop("cluster", ""))
    journal = options.pop("journal", "on")
    shards = _shards(options.pop("shards", "1"), len(parts), cluster)
    keep = _keep(options.pop("keep", ""), shards)
    if journal not in {"on", "off"}:
        raise ConfigurationError(f"the option journal of the store must be on or off, got {journal[:64]!r}")
    _check_options(options, _SERVER_OPTIONS)
    secure = is_true(options.get("secure", ""))
    database = unquote(parts[0].path.strip("/")) or DEFAULT_DATABASE
    if not _IDENTIFIER.fullmatch(database):
        raise ConfigurationError(f"the database {database!r} of the store is not a name of letters, digits and _")
    return EngineTarget(
        database=database,
        places=_places(parts, 8443 if secure else 8123),
        user=unquote(parts[0].username or ""),
        password=unquote(parts[0].password or ""),
        cluster=cluster,
        shards=shards,
        keep=keep,
        journal=journal == "on",
        options=options,
    )


def _divided(dsn: str) -> tuple[str, list[str], str]:
    """Return user and password with their ``@``, the hosts, and the rest from the path on."""
    found = _ADDRESS.fullmatch(dsn)
    if found is None:
        raise ConfigurationError(_NO_HOST)
    hosts = found["hosts"].split(",")
    if len(hosts) > _MOST_HOSTS:
        raise ConfigurationError(f"the store names {len(hosts)} hosts, at most {_MOST_HOSTS} are possible")
    return found["user"] or "", hosts, found["rest"]


def _split(dsn: str) -> SplitResult:
    try:
        return urlsplit(dsn)
    except ValueError as error:
        raise ConfigurationError("a host of the store is not a name or an address; an IPv6 address needs []") from error


def _places(parts: Sequence[SplitResult], default_port: int) -> tuple[Place, ...]:
    """Return host and port of each server."""
    places: list[Place] = []
    for one in parts:
        try:
            port = one.port or default_port
        except ValueError as error:
            raise ConfigurationError("the port of the store is not a number from 0 to 65535") from error
        if not one.hostname:
            raise ConfigurationError(_NO_HOST)
        place = (one.hostname, port)
        if place in places:
            raise ConfigurationError(f"the store names {format_place(place)} twice")
        places.append(place)
    return tuple(places)


def _cluster(name: str) -> str:
    if name and not _CLUSTER.fullmatch(name):
        raise ConfigurationError(f"the cluster {name!r} of the store is not a name of letters, digits, _ . and -")
    return name


def _shards(option: str, hosts: int, cluster: str) -> int:
    number = int(option) if option.isascii() and option.isdecimal() and len(option) < 4 else 0
    if not number or hosts % number:
        raise ConfigurationError(
            f"the option shards of the store must be a number that divides its {hosts} hosts, got {option[:64]!r}"
        )
    if number > 1 and cluster:
        raise ConfigurationError("the store has the options cluster and shards: the cluster names its shards itself")
    return number


def _keep(option: str, shards: int) -> int:
    if not option:
        return 0
    number = int(option) if option.isascii() and option.isdecimal() and len(option) < 4 else 0
    if not 0 < number <= shards:
        raise ConfigurationError(
            f"the option keep of the store must be a number of shards from 1 to {shards}, got {option[:64]!r}"
        )
    return number


def _check_options(options: Mapping[str, str], allowed: frozenset[str]) -> None:
    for name in options:
        if name not in allowed:
            raise ConfigurationError(
                f"the store has no option {name!r}: there are cluster, journal, keep, shards, "
                f"{', '.join(sorted(allowed))}"
            )
