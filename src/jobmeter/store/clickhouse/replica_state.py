"""Record of the replicas that have all data: in a file of the data folder, and in the table ``replicas`` of each.

The file is written first. So of a server's own file and the tables the record with the highest number is right.
"""

from pathlib import Path
from typing import Any

import msgspec
from clickhouse_connect.driver.client import Client

from jobmeter.errors import ConfigurationError
from jobmeter.files import replace_file
from jobmeter.store.clickhouse.failures import make_unavailable
from jobmeter.store.clickhouse.target import EngineTarget

_TABLE = (
    "CREATE TABLE IF NOT EXISTS {database}.replicas (identity String, owner String, number UInt64, "
    "complete Map(String, String)) ENGINE = ReplacingMergeTree(number) ORDER BY identity "
    "SETTINGS fsync_after_insert = 1, fsync_part_directory = 1"
)
_WRITE = (
    "INSERT INTO {database}.replicas SELECT {{identity:String}}, {{owner:String}}, {{number:UInt64}}, "
    "mapFromArrays({{ids:Array(String)}}, {{names:Array(String)}})"
)
_READ = "SELECT identity, owner, number, complete FROM {database}.replicas ORDER BY number DESC LIMIT 1"
_BROKEN = (
    "SELECT count() FROM system.detached_parts WHERE database = {database:String} AND startsWith(reason, 'broken')"
)
_TABLES = "SELECT name, toString(uuid) FROM system.tables WHERE database = {database:String}"


class ReplicaSetState(msgspec.Struct, frozen=True, kw_only=True):
    """State of a set of replicas.

    ``identity`` names the data, ``owner`` the data folder of the only Jobmeter server. ``number`` grows with each
    record. ``complete`` has the replicas with all data: ID of the replica and ``HOST:PORT``.
    """

    identity: str
    owner: str
    number: int
    complete: dict[str, str]


class ReplicaContent(msgspec.Struct, frozen=True, kw_only=True):
    """Content of one server. ``id`` is another one for each server and each creation of its table, empty without it.

    ``data``: the UUID of the table ``servers``, empty if the server has no data of Jobmeter. ``broken``: number of
    parts that the server has set aside, because it could not read their files at its start.
    """

    id: str = ""
    data: str = ""
    broken: int = 0
    record: ReplicaSetState | None = None


def read_content(client: Client, target: EngineTarget) -> ReplicaContent:
    """Read what a server has."""
    database = {"database": target.database}
    tables = {str(name): str(uuid) for name, uuid in client.query(_TABLES, parameters=database).result_rows}
    found: Any = []
    if "replicas" in tables:
        found = client.query(_READ.format(database=target.database)).result_rows
    record = None
    if found:
        identity, owner, number, complete = found[0]
        record = ReplicaSetState(identity=identity, owner=owner, number=int(number), complete=dict(complete))
    (parts,) = client.query(_BROKEN, parameters=database).result_rows
    return ReplicaContent(
        id=tables.get("replicas", ""), data=tables.get("servers", ""), broken=int(parts[0]), record=record
    )


def create_record(client: Client, target: EngineTarget) -> None:
    """Create the table of a server, in a database that exists."""
    client.command(_TABLE.format(database=target.database))


def write_record(client: Client, target: EngineTarget, record: ReplicaSetState) -> None:
    """Write a record to a server. It is durable on return."""
    parameters = {
        "identity": record.identity,
        "owner": record.owner,
        "number": record.number,
        "ids": list(record.complete),
        "names": list(record.complete.values()),
    }
    client.command(_WRITE.format(database=target.database), parameters=parameters)


class RecordFile:
    """File with the newest record of one database."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> ReplicaSetState | None:
        """Return the record, None if there is no file. Raises ConfigurationError for a damaged file."""
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=ReplicaSetState)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise make_unavailable(str(error), f"read {self._path}") from error
        except msgspec.DecodeError as error:
            raise ConfigurationError(
                f"{self._path}, the list of the replicas with all data, is damaged: start with all replicas reachable, "
                "after you removed the file"
            ) from error

    def write(self, record: ReplicaSetState) -> None:
        """Replace the record. It is durable on return."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            replace_file(self._path, msgspec.json.encode(record))
        except OSError as error:
            raise make_unavailable(str(error), f"write {self._path}") from error

    def remove(self) -> None:
        """Remove the record: another one counts from now on."""
        try:
            self._path.unlink(missing_ok=True)
        except OSError as error:
            raise make_unavailable(str(error), f"remove {self._path}") from error
