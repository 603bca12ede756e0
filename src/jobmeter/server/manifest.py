"""The manifest of a backup: size and SHA-256 of each of its files, so that a restore finds damage before it begins.

``manifest.json`` is written last: a backup without one was made by an earlier program, or was not finished.
"""

import hashlib
import os
from pathlib import Path

import msgspec

from jobmeter.errors import ConfigurationError, UnavailableError
from jobmeter.server.folder import write_private

MANIFEST = "manifest.json"
_FORMAT = "jobmeter-backup"


class Entry(msgspec.Struct, frozen=True):
    """One file."""

    bytes: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True):
    """Every file of a backup by its path below the folder."""

    files: dict[str, Entry]
    format: str = _FORMAT
    version: int = 1


def write(directory: Path) -> None:
    """Write the manifest of the files that are there. Raises UnavailableError when one cannot be read."""
    try:
        files = {str(path.relative_to(directory)): _entry(path) for path in _files(directory)}
        write_private(directory / MANIFEST, msgspec.json.encode(Manifest(files)))
    except (ConfigurationError, OSError) as error:
        raise UnavailableError(f"the manifest of the backup cannot be written: {error}") from error


def verify(directory: Path) -> bool:
    """True when every file is as it was written; False for a backup that has no manifest.

    Raises ConfigurationError naming the first file that is missing or damaged.
    """
    try:
        content = (directory / MANIFEST).read_bytes()
    except FileNotFoundError:
        return False
    try:
        manifest = msgspec.json.decode(content, type=Manifest)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"the backup is damaged: {directory / MANIFEST} cannot be read") from error
    if (manifest.format, manifest.version) != (_FORMAT, 1):
        raise ConfigurationError(f"{directory / MANIFEST} was made by another version of jobmeter")
    for name, entry in manifest.files.items():
        path = directory / name
        try:
            found = _entry(path)
        except OSError as error:
            raise ConfigurationError(f"the backup is damaged: {path} cannot be read: {error.strerror}") from error
        if found != entry:
            raise ConfigurationError(f"the backup is damaged: {path} is not what was written; nothing was restored")
    return True


def _files(directory: Path) -> list[Path]:
    return sorted(Path(folder) / name for folder, _, names in os.walk(directory) for name in names if name != MANIFEST)


def _entry(path: Path) -> Entry:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return Entry(os.fstat(file.fileno()).st_size, digest)
