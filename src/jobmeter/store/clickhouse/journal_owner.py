"""Folders of journals. A file in each names the process that used it last, which has it locked while it runs."""

import logging
import os
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from jobmeter.errors import JobmeterError
from jobmeter.store.clickhouse.failures import make_unavailable
from jobmeter.store.clickhouse.lock import FolderLock
from jobmeter.store.clickhouse.roles import Duties
from jobmeter.store.clickhouse.servers import DEPARTED, EXPELLED, ServerRow, ServerRows

_log = logging.getLogger(__name__)
_OWNER = "owner"


def read_owner(folder: Path) -> int:
    """Return the number of the process that used a folder last; 0 for none."""
    try:
        return int((folder / _OWNER).read_text())
    except (OSError, ValueError):
        return 0


def lock_ended(row: ServerRow) -> FolderLock | None:
    """Lock the folder of a server that has ended. None if the folder is out of reach or in use."""
    folder = Path(row.folder)
    if not row.folder or read_owner(folder) != row.id:
        return None
    try:
        return FolderLock(folder)
    except JobmeterError:
        return None


def has_ended(row: ServerRow) -> bool:
    """Return True if the process of a server has certainly ended."""
    lock = lock_ended(row)
    if lock is None:
        return False
    lock.release()
    return True


def write_owner(folder: Path, number: int) -> None:
    """Store durably which process uses a folder."""
    draft = folder / f".{_OWNER}"
    try:
        with draft.open("w") as file:
            file.write(str(number))
            file.flush()
            os.fsync(file.fileno())
        draft.replace(folder / _OWNER)
    except OSError as error:
        raise make_unavailable(str(error), f"write {folder}") from error


def recover_ended(row: ServerRow, table: ServerRows, duties: Duties) -> None:
    """Recover the journal of a server that has ended, unless its folder is out of reach or in use."""
    lock = lock_ended(row)
    if lock is None:
        return
    try:
        if not table.expel(row):
            return
        duties.recover(Path(row.folder))
    finally:
        lock.release()
    table.write(replace(row, beat=row.beat + 2, state=DEPARTED, journals=False))
    _log.warning("the samples in %s, the journal of a server that has ended, are in the engine now", row.folder)


def discard_journals(rows: Sequence[ServerRow], table: ServerRows) -> None:
    """Give up the journals of some servers."""
    for row in rows:
        _log.warning("samples of the journal %s on %s are given up", row.folder, row.host)
        table.write(replace(row, beat=row.beat + 1, state=EXPELLED, journals=False))
