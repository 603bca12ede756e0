"""A value that outlives the program, in a file of JSON."""

import logging
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

_log = logging.getLogger(__name__)

T = TypeVar("T")


class StateFile(Generic[T]):
    """The file of one value; ``path`` None: nothing is stored. Not for concurrent changes.

    A file that cannot be read is logged as ``unreadable``, a format of the path and the error, where that is given. One
    that cannot be written is logged at ``level``.
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
        """The stored value; None where there is none, or where it cannot be read."""
        try:
            return self._decoder.decode(self.path.read_bytes()) if self.path else None
        except FileNotFoundError:
            return None
        except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
            if self._unreadable:
                _log.warning(self._unreadable, self.path, error)
            return None

    def written_ns(self) -> int | None:
        """Return when the file was last written, in nanoseconds since the epoch; None where there is none."""
        try:
            return self.path.stat().st_mtime_ns if self.path else None
        except OSError:
            return None

    def save(self, value: T) -> None:
        """Write the value where it has changed; a failure is logged."""
        try:
            self.write(value)
        except OSError as error:
            _log.log(self._level, "%s cannot be written: %s", self.path, error)

    def write(self, value: T) -> None:
        """Write the value where it has changed, replacing the file as a whole. Raises OSError."""
        if self.path is None:
            return
        body = msgspec.json.encode(value)
        if body == self._written:
            return
        fresh = self.path.with_suffix(".new")
        fresh.write_bytes(body)
        fresh.replace(self.path)
        self._written = body
