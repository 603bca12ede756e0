"""Backup of a running server, and restore into an empty data folder."""

from contextlib import ExitStack
from pathlib import Path

from jobmeter.access.vault import KEY_FILE
from jobmeter.errors import ConfigurationError, ConflictError, InvalidRequestError, UnavailableError
from jobmeter.model.time import SystemClock
from jobmeter.registry.open import open_registry
from jobmeter.server.folder import claimed, write_private
from jobmeter.server.services import Services
from jobmeter.settings import Settings
from jobmeter.store.registry import open_store

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
    try:
        write_private(directory / SECRET, secret_key_path(services.settings).read_bytes())
    except (ConfigurationError, OSError) as error:
        raise UnavailableError(f"the key that seals secrets could not be copied: {error}") from error


def secret_key_path(settings: Settings) -> Path:
    """The file with the key that seals secrets."""
    return Path(settings.secret_key_file) if settings.secret_key_file else settings.data / KEY_FILE


def bring_back(settings: Settings, directory: Path) -> None:
    """Restore a backup into a data folder, a registry and a store that hold nothing yet.

    Raises ConflictError when one of them holds something, ConfigurationError when a server uses the folder or the
    directory holds no backup. A failure in between leaves a part behind: empty the folder and try again.
    """
    if not (directory / SECRET).is_file():
        raise ConfigurationError(f"{directory} holds no backup of a server ({SECRET} is missing)")
    with claimed(settings.data), ExitStack() as opened:
        secret = secret_key_path(settings)
        content = (directory / SECRET).read_bytes()
        if secret.exists() and secret.read_bytes() != content:
            raise ConflictError(f"{secret} holds another key: a backup is restored into an empty data folder only")
        registry = open_registry(settings.registry_url, settings.retention)
        opened.callback(registry.close)
        store = open_store(settings.store_dsn, SystemClock())
        opened.callback(store.close)
        registry.restore(directory / REGISTRY)
        store.restore(directory / TELEMETRY)
        if not secret.exists():
            write_private(secret, content)
