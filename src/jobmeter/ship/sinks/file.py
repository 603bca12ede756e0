"""Sink of kind file: JSON lines, rotated by size; full files are compressed with zstd."""

import os
from collections.abc import Sequence
from itertools import count
from pathlib import Path

import zstandard

from jobmeter.errors import ConfigurationError
from jobmeter.files import flush_path
from jobmeter.ship.guard import DestinationPolicy
from jobmeter.ship.line import ShippedLine
from jobmeter.ship.sink import Origin, SinkError, SinkSettings


class FileSink:
    """Writes ``DIRECTORY/LOGSTORE-SHIPPER-NUMBER-COPY.jsonl``, by its first line; full files end in ``.jsonl.zst``.

    ``COPY`` is 000 unless a file with that first line already exists, as after a crash. Every batch is synced to disk
    before it is acknowledged. A partial line left by a crash is truncated when the file is opened. A crash during
    compression leaves the original file.
    """

    most_lines = 50_000
    most_bytes = 8 * 2**20

    def __init__(self, settings: SinkSettings, guard: DestinationPolicy, origin: Origin) -> None:  # noqa: ARG002 - as every sink
        """Raise ConfigurationError if ``directory`` is missing."""
        if not Path(settings.directory).is_absolute() or settings.rotate_bytes < 1:
            raise ConfigurationError("a sink of kind file needs a directory, as an absolute path, and rotate_bytes > 0")
        self.linger_seconds = settings.linger_seconds or 0.0
        self._directory = Path(settings.directory)
        self._rotate_bytes = settings.rotate_bytes
        store = "".join(part if part.isalnum() or part in "._" else "_" for part in origin.logstore)
        self._name = f"{store}-{origin.shipper}"
        self._descriptor: int | None = None
        self._path = self._directory

    def send(self, lines: Sequence[ShippedLine]) -> int:
        """Append the lines and sync the file. Returns 0: no line is refused."""
        try:
            descriptor = self._open_file(lines[0].number)
            _write(descriptor, b"".join(line.encode() + b"\n" for line in lines))
            os.fsync(descriptor)
            if os.fstat(descriptor).st_size >= self._rotate_bytes:
                self._rotate()
        except OSError as error:
            self.close()
            raise SinkError(f"the file of {self._name} cannot be written: {error.strerror}") from error
        return 0

    def close(self) -> None:
        """Close the file."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _open_file(self, number: int) -> int:
        if self._descriptor is not None:
            return self._descriptor
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        begun = [
            path for path in sorted(self._directory.glob(f"{self._name}-*.jsonl")) if not _finish_compression(path)
        ]
        for path in begun[:-1]:
            _compress(path)
        self._path = begun[-1] if begun else self._free(number)
        self._descriptor = os.open(self._path, os.O_CREAT | os.O_RDWR | os.O_APPEND, 0o600)
        _cut(self._descriptor)
        flush_path(self._directory)
        return self._descriptor

    def _free(self, number: int) -> Path:
        """Find a path that exists neither plain nor compressed."""
        for copy in count():
            path = self._directory / f"{self._name}-{number:020}-{copy:03}.jsonl"
            if not path.with_suffix(".jsonl.zst").exists():
                return path
        raise AssertionError

    def _rotate(self) -> None:
        self.close()
        _compress(self._path)


def _finish_compression(path: Path) -> bool:
    """True if a compressed copy exists. Then removes the original, which a crash had prevented."""
    if not path.with_suffix(".jsonl.zst").exists():
        return False
    path.unlink(missing_ok=True)
    return True


def _write(descriptor: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]


def _cut(descriptor: int) -> None:
    """Truncate an incomplete last line."""
    size = os.fstat(descriptor).st_size
    end = size
    while end:
        start = max(0, end - 65_536)
        place = os.pread(descriptor, end - start, start).rfind(b"\n")
        if place >= 0:
            end = start + place + 1
            break
        end = start
    if end < size:
        os.ftruncate(descriptor, end)


def _compress(path: Path) -> None:
    """Replace a file by its compressed form; one of the two always exists."""
    target, part = path.with_suffix(".jsonl.zst"), path.with_suffix(".jsonl.zst.part")
    with path.open("rb") as source, part.open("wb") as file:
        zstandard.ZstdCompressor(level=3).copy_stream(source, file)
        file.flush()
        os.fsync(file.fileno())
    part.rename(target)
    flush_path(path.parent)
    path.unlink()
