"""Copies the registry while it is in use, and restores a copy into an empty registry.

SQLite is copied by its own online backup into ``registry.db``. PostgreSQL is read in one transaction into
``registry.jsonl``: a first line that names the format and the migration, one line for each row, a last line with their
number. Either form can be restored into either database.
"""

import logging
import os
import sqlite3
from base64 import b64decode, b64encode
from collections.abc import Iterator
from contextlib import closing
from itertools import groupby
from pathlib import Path
from shutil import copyfile
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import sqlalchemy as sa

from jobmeter.errors import ConflictError, InvalidRequestError, UnavailableError
from jobmeter.files import flush_path
from jobmeter.registry import changes
from jobmeter.registry.database import SQLITE, Database
from jobmeter.registry.migrate import HEAD, REVISIONS, migrate
from jobmeter.registry.schema import TABLES, allocations, events, jobs, keys, nodes

_log = logging.getLogger(__name__)
SQLITE_FILE = "registry.db"
ROWS_FILE = "registry.jsonl"
FORMAT = "jobmeter-registry"
_BATCH = 1000

_Row = tuple[str, dict[str, Any]]


class _Header(msgspec.Struct):
    format: str
    version: int
    migration: str


class _Line(msgspec.Struct, omit_defaults=True):
    table: str = ""
    row: dict[str, Any] = {}
    rows: int | None = None


def backup(database: Database, directory: Path) -> None:
    """Write a copy into a directory. It is complete and on disk on return.

    Raises ConflictError if the directory already has a copy, UnavailableError if the disk or the database fails.
    """
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name in (SQLITE_FILE, ROWS_FILE):
            if (directory / name).exists():
                raise ConflictError(f"{directory} holds a backup of a registry already ({name})")
        target = directory / (SQLITE_FILE if database.kind == SQLITE else ROWS_FILE)
        part = target.with_name(f"{target.name}.part")
        part.unlink(missing_ok=True)
        os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        if database.kind == SQLITE:
            _copy(database.path, part)
        else:
            _dump(database, part)
        _publish(part, target)
    except (OSError, sqlite3.Error) as error:
        _log.warning("the registry's backup into %s failed: %s", directory, error)
        raise UnavailableError("the registry's backup failed: see the server's log") from error


def restore(database: Database, directory: Path) -> None:
    """Fill an empty registry from a directory. All or nothing.

    Raises ConflictError if the registry has jobs, nodes or keys, InvalidRequestError (field ``directory``) if the copy
    is missing or damaged.
    """
    copy, rows = directory / SQLITE_FILE, directory / ROWS_FILE
    try:
        if copy.is_file():
            with TemporaryDirectory(prefix="jobmeter-") as folder:
                # The copy itself stays unchanged: a migration, and SQLite's side files, affect a copy of it.
                moved = Path(folder) / SQLITE_FILE
                copyfile(copy, moved)
                source = Database(f"sqlite:///{moved}")
                with closing(source):
                    migrate(source)
                    _fill(database, _rows_of(source))
        elif rows.is_file():
            _fill(database, _read(rows))
        else:
            raise InvalidRequestError(f"{directory} has no backup of a registry", "directory")
    except OSError as error:
        raise UnavailableError(f"the registry's backup in {directory} cannot be read: {error}") from error


def _copy(source: Path, target: Path) -> None:
    reading = sqlite3.connect(f"file:{source}?mode=ro", uri=True, timeout=15)
    with closing(reading) as reader, closing(sqlite3.connect(target)) as writer:
        reader.backup(writer, pages=-1)


def _publish(part: Path, target: Path) -> None:
    # Either on disk under its final name, or absent.
    flush_path(part)
    part.rename(target)
    flush_path(target.parent)


def _dump(database: Database, target: Path) -> None:
    encoder = msgspec.json.Encoder()
    count = 0
    with target.open("wb") as file:
        file.write(encoder.encode(_Header(FORMAT, 1, HEAD)) + b"\n")
        for table, row in _rows_of(database):
            file.write(encoder.encode(_Line(table, row)) + b"\n")
            count += 1
        file.write(encoder.encode(_Line(rows=count)) + b"\n")


def _rows_of(database: Database) -> Iterator[_Row]:
    with database.open_snapshot() as connection:
        for table in TABLES:
            columns = [column for column in table.columns if column.computed is None]
            result = connection.execution_options(yield_per=_BATCH).execute(sa.select(*columns))
            for row in result.mappings():
                yield str(table.name), {str(name): _encode_value(value) for name, value in row.items()}


def _encode_value(value: object) -> object:
    return {"base64": b64encode(value).decode()} if isinstance(value, bytes | memoryview) else value


def _decode_value(value: object) -> object:
    return b64decode(value["base64"]) if isinstance(value, dict) else value


def _read(path: Path) -> Iterator[_Row]:
    damaged = InvalidRequestError(f"{path} is damaged or was not written to its end", "directory")
    decoder = msgspec.json.Decoder(_Line)
    count, finished = 0, False
    with path.open("rb") as file:
        try:
            header = msgspec.json.decode(file.readline(), type=_Header)
            if header.format != FORMAT or header.version != 1 or header.migration not in REVISIONS:
                raise InvalidRequestError(f"{path} was made by another version of jobmeter", "directory")
            for text in file:
                line = decoder.decode(text)
                if line.rows is not None:
                    finished = line.rows == count
                    break
                count += 1
                yield line.table, line.row
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise damaged from error
    if not finished:
        raise damaged


def _fill(database: Database, rows: Iterator[_Row]) -> None:
    tables = {table.name: table for table in TABLES}
    with database.write() as connection:
        for table in (jobs, nodes, keys):
            if connection.execute(sa.select(sa.literal(1)).select_from(table).limit(1)).first():
                raise ConflictError(f"the registry is not empty: it has rows in {table.name}")
        for table in reversed(TABLES):
            connection.execute(sa.delete(table))
        for name, group in groupby(rows, key=lambda entry: entry[0]):
            if name not in tables:
                raise InvalidRequestError(f"the backup has an unknown table {name[:64]!r}", "directory")
            _insert(connection, tables[name], (row for _, row in group))
        changes.notify(connection, everything=True)
        if database.kind != SQLITE:
            for table in (allocations, events):
                highest = sa.select(sa.func.coalesce(sa.func.max(table.c.id), 0) + 1).scalar_subquery()
                sequence = sa.func.pg_get_serial_sequence(table.name, "id")
                connection.execute(sa.select(sa.func.setval(sequence, highest, sa.false())))


def _insert(connection: sa.Connection, table: sa.Table, rows: Iterator[dict[str, Any]]) -> None:
    batch: list[dict[str, Any]] = []
    for row in rows:
        # A copy of an older version may have columns that were removed since.
        batch.append({name: _decode_value(value) for name, value in row.items() if name in table.c})
        if len(batch) == _BATCH:
            connection.execute(sa.insert(table), batch)
            batch = []
    if batch:
        connection.execute(sa.insert(table), batch)
