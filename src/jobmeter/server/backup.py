"""Backup of a running server, and restore into an empty data folder."""

import shutil
from pathlib import Path

from jobmeter.access.vault import KEY_FILE
from jobmeter.errors import ConflictError, InvalidRequestError, UnavailableError
from jobmeter.server.services import Services
from jobmeter.settings import Settings

REGISTRY, TELEMETRY, SECRET = "registry", "telemetry", KEY_FILE


def back_up(services: Services, directory: Path) -> None:
    """Write registry, telemetry and the key that seals secrets into a folder that is empty or not there yet.

    The registry comes last, so that it knows every job whose samples were copied.
    Raises ConflictError for a folder that holds something, UnavailableError when writing fails.
    """
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
        raise UnavailableError(f"cannot write to {directory}: {error.strerror}") from error
    services.store.backup(directory / TELEMETRY)
    services.registry.backup(directory / REGISTRY)
    _copy_secret(services, directory)


def _copy_secret(services: Services, directory: Path) -> None:
    target = directory / SECRET
    target.touch(mode=0o600)
    target.write_bytes(secret_key_path(services.settings).read_bytes())


def secret_key_path(settings: Settings) -> Path:
    """The file with the key that seals secrets."""
    return Path(settings.secret_key_file) if settings.secret_key_file else settings.data / KEY_FILE


def restore_secret(source: Path, target: Path) -> None:
    """Bring the key of a backup to its place, where there must be none."""
    if target.exists():
        raise ConflictError(f"{target} exists already")
    target.touch(mode=0o600)
    shutil.copyfile(source / SECRET, target)
