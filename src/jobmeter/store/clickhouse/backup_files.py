"""Checks the files of a backup that the engine wrote: the tables in it, and its completeness.

The engine lists the files in ``.backup`` (IBackup, BackupImpl), each with its size. Files with the same content are
stored once, and empty files not at all. The engine restores the tables that a statement names if their definitions
exist. It does not miss the others: a table whose definition is lost would silently stay empty.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from jobmeter.errors import ConfigurationError

LIST = ".backup"
_FILE = re.compile(r"<file>(.*?)</file>", re.DOTALL)
_FIELD = re.compile(r"<(name|size|data_file)>([^<]*)</\1>")
_TABLE = re.compile(r"metadata/(?P<database>[^/]+)/(?P<table>[^/]+)\.sql")


class _File(NamedTuple):
    """A file by its name, and the file that holds its content."""

    name: str
    place: str
    size: int


def list_tables(folder: Path, database: str) -> frozenset[str]:
    """Return the tables of a database in a backup, after checking that each file of the backup exists.

    Raises ConfigurationError naming the first file that is missing or has another size.
    """
    listed = list(_list_files(folder / LIST))
    for file in listed:
        path = folder / file.place
        try:
            size = path.stat().st_size if file.size else 0
        except OSError as error:
            raise _make_damage_error(f"{path} cannot be read: {error.strerror}") from error
        if size != file.size:
            raise _make_damage_error(f"{path} has {size} bytes instead of {file.size}")
    found = (_TABLE.fullmatch(file.name) for file in listed)
    return frozenset(one["table"] for one in found if one is not None and one["database"] == database)


def _list_files(path: Path) -> Iterator[_File]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise _make_damage_error(f"{path} cannot be read") from error
    entries: list[dict[str, str]] = [dict(_FIELD.findall(one)) for one in _FILE.findall(text)]
    if not entries or not text.rstrip().endswith("</config>"):
        raise _make_damage_error(f"{path} is no list of files")
    for entry in entries:
        name, size = entry.get("name", ""), entry.get("size", "")
        if not name or not size.isdecimal():
            raise _make_damage_error(f"{path} is no list of files")
        yield _File(name, entry.get("data_file", name), int(size))


def _make_damage_error(what: str) -> ConfigurationError:
    return ConfigurationError(f"the backup is damaged: {what}. Restore another one")
