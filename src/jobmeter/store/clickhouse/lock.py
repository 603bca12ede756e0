"""Locks the folder of an embedded store for one process, with a clear error for others."""

import fcntl
import os
from pathlib import Path

from jobmeter.errors import ConfigurationError
from jobmeter.store.clickhouse.failures import make_unavailable

_FILE = "jobmeter.lock"


class FolderLock:
    """A lock from construction to ``release``; the system releases it when the process ends in any way.

    Raises ConfigurationError while another process (or another store of this one) has locked the folder, and
    UnavailableError if the folder cannot be created or written.
    """

    def __init__(self, folder: Path) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._file = os.open(folder / _FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise make_unavailable(str(error), f"open {folder}") from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._file)
            raise ConfigurationError(
                f"the store {folder} is in use by another process: stop it, or give this one a data folder of its own"
            ) from error

    def release(self) -> None:
        """Release the lock. A no-op the second time."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
