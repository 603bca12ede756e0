"""Value that outlives the program, in a JSON file."""

import logging
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

_log = logging.getLogger(__name__)

T = TypeVar("T")


class StateFile(Generic[T]):
    """File of one value; ``path`` None: nothing is stored. Not for concurrent changes.

    An unreadable file is logged as ``unreadable``, a format of the path and the error, if given. An unwritable file is
    logged at ``level``.
    """

    def __init__(
        self, path: Path | None, decoder: msgspec.json.Decoder[T], unreadable: str = "", level: int = logging.DEBUG
    ) -> None:
        self.path = path
        self._decoder = decoder
        self._unreadable = unreadable
        self._level = level
        self._written = b""

    def load(self) -> T | None:
        """Return the stored value; None if it is missing or unreadable."""
        try:
            return self._decoder.decode(self.path.read_bytes()) if self.path else None
        except FileNotFoundError:
            return None
        except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
            if self._unreadable:
                _log.warning(self._unreadable, self.path, error)
            return None

    def read_written_ns(self) -> int | None:
        """Return the last change of the file, in nanoseconds since the epoch; None if it is missing."""
        try:
            return self.path.stat().st_mtime_ns if self.path else None
        except OSError:
            return None

    def save(self, value: T) -> None:
        """Write the value if it has changed; a failure is logged."""
        try:
            self.write(value)
        except OSError as error:
            _log.log(self._level, "%s cannot be written: %s", self.path, error)

    def write(self, value: T) -> None:
        """Write the value if it has changed, replacing the file atomically. Raises OSError."""
        if self.path is None:
            return
        body = msgspec.json.encode(value)
        if body == self._written:
            return
        fresh = self.path.with_suffix(".new")
        fresh.write_bytes(body)
        fresh.replace(self.path)
        self._written = body
