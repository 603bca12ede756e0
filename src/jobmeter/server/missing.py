"""Checks for lost parts of a data folder: a server refuses to start on an incomplete one.

The first start creates a key, so a registry without keys was never used. If there are samples or an administrator's
key file beside it, it does not belong to them. The secret key file cannot be created again while keys
exist: secrets encrypted with the old one would be lost silently.
"""

import logging

import msgspec

from jobmeter.errors import ConfigurationError
from jobmeter.registry.base import Registry
from jobmeter.server.backup import find_secret_key_path
from jobmeter.server.folder import ADMIN_KEY
from jobmeter.settings import Settings
from jobmeter.store.base import Store

_log = logging.getLogger("jobmeter.server")


class Recreate(msgspec.Struct, frozen=True, kw_only=True):
    """Parts that the operator allows to be created again. Flags of one start, not settings."""

    registry: bool = False
    """``--new-registry``: drop the jobs, nodes and keys that belong to existing samples."""
    secret: bool = False
    """``--new-secret-key``: invalidate signature secrets of existing keys, and share links."""
    journals: bool = False
    """``--discard-journals``: give up samples in journals of other servers that cannot be reached."""


def check_complete(settings: Settings, registry: Registry, store: Store, recreate: Recreate) -> None:
    """Raise ConfigurationError with the remedy if the registry or the secret key was lost."""
    if registry.keys.list_keys():
        _check_secret(settings, recreate)
    else:
        _check_registry(settings, store, recreate)


def _check_registry(settings: Settings, store: Store, recreate: Recreate) -> None:
    admin_key = settings.data / ADMIN_KEY
    beside = "samples" if sum(store.read_statistics().rows.values()) else str(admin_key) if admin_key.exists() else ""
    if not beside:
        return
    if not recreate.registry:
        raise ConfigurationError(
            f"the registry is empty, but {beside} exists: the registry was lost, or the wrong one is configured. "
            "Bring it back, or restore a backup into an empty data folder (jobmeter restore). To start with an empty "
            "registry and lose the jobs, nodes and keys of the samples: jobmeter serve --new-registry"
        )
    _log.warning("starting with an empty registry beside %s because of --new-registry", beside)
    admin_key.unlink(missing_ok=True)  # its key does not belong to the new registry


def _check_secret(settings: Settings, recreate: Recreate) -> None:
    path = find_secret_key_path(settings)
    if settings.secret_key_file or path.exists():
        return
    if not recreate.secret:
        raise ConfigurationError(
            f"{path} is missing: it encrypts the secrets of the keys in the registry. Bring it back, e.g. from a "
            "backup of this server, or name the file that the other servers of the registry use "
            "(JOBMETER_SECRET_KEY_FILE). To create a new one, which invalidates signatures of existing keys and "
            "share links (tokens stay valid): jobmeter serve --new-secret-key"
        )
    _log.warning("creating a new %s because of --new-secret-key: signatures of older keys are no longer valid", path)
