"""Folders with journals: each names the process that used it last, and a living process has it locked."""

import os
from pathlib import Path

from jobmeter.errors import JobmeterError
from jobmeter.store.clickhouse.failures import make_unavailable
from jobmeter.store.clickhouse.lock import FolderLock
from jobmeter.store.clickhouse.servers import ServerRow

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
