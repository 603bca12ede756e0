"""Back up a running server, and restore into an empty data folder.

``manifest.json`` lists the size and SHA-256 of each file, so that a restore detects damage before it begins. The
manifest is written last. A backup without a manifest is unfinished or comes from an earlier program.
"""

import hashlib
import logging
import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from jobmeter.access.vault import KEY_FILE
from jobmeter.errors import ConfigurationError, ConflictError, InvalidRequestError, UnavailableError
from jobmeter.model.retention import Retention
from jobmeter.model.time import SystemClock
from jobmeter.registry.backup import SQLITE_FILE
from jobmeter.registry.open import open_registry
from jobmeter.server.folder import claim, write_private
from jobmeter.server.services import Services
from jobmeter.settings import Settings
from jobmeter.store.registry import open_store

_log = logging.getLogger("jobmeter.server")
REGISTRY, TELEMETRY, SECRET, MANIFEST = "registry", "telemetry", KEY_FILE, "manifest.json"
_FORMAT = "jobmeter-backup"


def save_backup(services: Services, directory: Path) -> None:
    """Write the registry, the telemetry and the secret key into a folder that is empty or does not exist yet.

    The registry comes last, so that it contains every job whose samples were copied. Raises InvalidRequestError
    (``directory``) for an unusable folder, ConflictError for a folder that is not empty, UnavailableError when writing
    fails.
    """
    _check_apart(directory, _list_own_folders(services.settings))
    try:
        directory.mkdir(mode=0o700, parents=False, exist_ok=True)
        if any(directory.iterdir()):
            raise ConflictError(f"{directory} is not empty")
        directory.chmod(0o700)
        (directory / REGISTRY).mkdir()
        (directory / TELEMETRY).mkdir()
    except FileNotFoundError as error:
        raise InvalidRequestError(f"the folder above {directory} does not exist", "directory") from error
    except OSError as error:
        raise UnavailableError(f"the backup folder cannot be written: {error.strerror}") from error
    services.store.backup(directory / TELEMETRY)
    services.registry.backup(directory / REGISTRY)
    _copy_secret(services, directory)
    _write_manifest(directory)


def _list_own_folders(settings: Settings) -> Sequence[Path]:
    """Folders that hold the server's own files."""
    folder = settings.store_dsn.removeprefix("chdb://").partition("?")[0]
    return [settings.data] if folder == settings.store_dsn else [settings.data, Path(folder)]


def _check_apart(directory: Path, own: Sequence[Path]) -> None:
    """Raise InvalidRequestError if the backup folder overlaps a copied folder. Links are followed."""
    if "\0" in str(directory):
        raise InvalidRequestError("directory must not contain the character NUL", "directory")
    try:
        target = directory.resolve()
        for folder in (one.resolve() for one in own):
            if target.is_relative_to(folder) or folder.is_relative_to(target):
                raise InvalidRequestError(
                    "directory must lie outside the server's data folder and must not contain it", "directory"
                )
    except (OSError, RuntimeError, ValueError) as error:  # RuntimeError: links that form a loop
        raise InvalidRequestError("directory is not a usable folder path", "directory") from error


def _copy_secret(services: Services, directory: Path) -> None:
    try:
        write_private(directory / SECRET, find_secret_key_path(services.settings).read_bytes())
    except (ConfigurationError, OSError) as error:
        _log.warning("the secret key could not be copied: %s", error)
        raise UnavailableError("the secret key could not be copied: see the server's log") from error


def find_secret_key_path(settings: Settings) -> Path:
    """Path of the file with the secret key, which encrypts stored secrets."""
    return Path(settings.secret_key_file) if settings.secret_key_file else settings.data / KEY_FILE


def bring_back(settings: Settings, directory: Path) -> None:
    """Restore a backup into an empty data folder, registry and store.

    Every file is first compared with the manifest. Raises ConflictError when a target is not empty. Raises
    ConfigurationError when a server uses the folder, the directory has no backup, or a file of the backup is damaged. A
    failure in between leaves a partial restore: empty the folder and try again.
    """
    if not (directory / SECRET).is_file():
        raise ConfigurationError(f"{directory} contains no server backup ({SECRET} is missing)")
    if not _verify(directory):
        _log.warning("%s has no %s: damaged files cannot be detected", directory, MANIFEST)
    with claim(settings.data), ExitStack() as opened:
        secret = find_secret_key_path(settings)
        content = (directory / SECRET).read_bytes()
        if secret.exists() and secret.read_bytes() != content:
            raise ConflictError(f"{secret} holds another key: restore the backup into an empty data folder")
        registry = open_registry(settings.registry_url, settings.retention)
        opened.callback(registry.close)
        store = open_store(settings.store_dsn, SystemClock())
        opened.callback(store.close)
        registry.restore(directory / REGISTRY)
        store.restore(directory / TELEMETRY)
        if not secret.exists():
            write_private(secret, content)


def move_registry(data: Path, url: str, retention: Retention) -> None:
    """Move the registry in a data folder that no server uses to another database, which must be empty.

    The old file gets another name, so that no server starts on it by mistake. Raises ConfigurationError for a folder in
    use or without a registry, ConflictError for a database with records.
    """
    path = data / SQLITE_FILE
    if not path.is_file():
        raise ConfigurationError(f"there is no registry {path}: it was moved before, or it is another database")
    with claim(data), ExitStack() as opened:
        folder = Path(opened.enter_context(TemporaryDirectory(prefix=".registry-", dir=data)))
        source = open_registry(f"sqlite:///{path}", retention)
        opened.callback(source.close)
        target = open_registry(url, retention)
        opened.callback(target.close)
        source.backup(folder)
        target.restore(folder)
    path.rename(path.with_name(f"{SQLITE_FILE}.moved"))


class _Entry(msgspec.Struct, frozen=True):
    """Size and checksum of a file."""

    bytes: int
    sha256: str


class _Manifest(msgspec.Struct, frozen=True):
    """Manifest of a backup: its files by path below the folder."""

    files: dict[str, _Entry]
    format: str = _FORMAT
    version: int = 1


def _write_manifest(directory: Path) -> None:
    """Write the manifest of the existing files. Raises UnavailableError when a file cannot be read."""
    try:
        files = {str(path.relative_to(directory)): _entry(path) for path in _files(directory)}
        write_private(directory / MANIFEST, msgspec.json.encode(_Manifest(files)))
    except (ConfigurationError, OSError) as error:
        raise UnavailableError(f"the manifest of the backup cannot be written: {error}") from error


def _verify(directory: Path) -> bool:
    """Check every file against the manifest. False for a backup without a manifest.

    Raises ConfigurationError naming the first file that is missing or damaged.
    """
    try:
        content = (directory / MANIFEST).read_bytes()
    except FileNotFoundError:
        return False
    try:
        manifest = msgspec.json.decode(content, type=_Manifest)
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
            raise ConfigurationError(
                f"the backup is damaged: {path} has changed since the backup; nothing was restored"
            )
    return True


def _files(directory: Path) -> list[Path]:
    return sorted(Path(folder) / name for folder, _, names in os.walk(directory) for name in names if name != MANIFEST)


def _entry(path: Path) -> _Entry:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return _Entry(os.fstat(file.fileno()).st_size, digest)
