"""What belongs to a data folder and is not there: a server refuses to start on what is left of it.

A registry that has no key never served anybody: every first start makes one. So a registry without keys beside
samples, or beside an administrator's key file, is not the one that belongs to them. And a key file that seals secrets
cannot be made anew while there are keys: what it sealed would be lost without a word.
"""

import logging

import msgspec

from jobmeter.errors import ConfigurationError
from jobmeter.registry.base import Registry
from jobmeter.server.backup import secret_key_path
from jobmeter.server.folder import ADMIN_KEY
from jobmeter.settings import Settings
from jobmeter.store.base import Store

_log = logging.getLogger("jobmeter.server")


class Anew(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator wants to begin without: flags of one start, no settings."""

    registry: bool = False
    """``--new-registry``: jobs, nodes and keys of the samples that are there are forgotten."""
    secret: bool = False
    """``--new-secret-key``: signature secrets of the keys that are there, and share links, end."""


def check_complete(settings: Settings, registry: Registry, store: Store, anew: Anew) -> None:
    """Raise ConfigurationError, naming the remedy, where the registry or the secret key was lost."""
    if registry.keys():
        _check_secret(settings, anew)
    else:
        _check_registry(settings, store, anew)


def _check_registry(settings: Settings, store: Store, anew: Anew) -> None:
    admin_key = settings.data / ADMIN_KEY
    beside = "samples" if sum(store.statistics().rows.values()) else str(admin_key) if admin_key.exists() else ""
    if not beside:
        return
    if not anew.registry:
        raise ConfigurationError(
            f"the registry holds no keys, though there is {beside} already: it was lost, or another one is meant. "
            "Bring it back, or restore a backup into an empty data folder (jobmeter restore); to begin with an empty "
            "one, which forgets the jobs, nodes and keys that belong to the samples: jobmeter serve --new-registry"
        )
    _log.warning("an empty registry is begun beside %s, as --new-registry says", beside)
    admin_key.unlink(missing_ok=True)  # its key is none of the new registry's


def _check_secret(settings: Settings, anew: Anew) -> None:
    path = secret_key_path(settings)
    if settings.secret_key_file or path.exists():
        return
    if not anew.secret:
        raise ConfigurationError(
            f"{path} is missing, which sealed the secrets of the keys in the registry. Bring it back, from a backup of "
            "this server for instance, or name that of the other servers of the registry "
            "(JOBMETER_SECRET_KEY_FILE). To make a new one, with which signatures of the keys that there are, and "
            "share links, are no longer valid (tokens are): jobmeter serve --new-secret-key"
        )
    _log.warning("a new %s is made, as --new-secret-key says: signatures of older keys are no longer valid", path)
