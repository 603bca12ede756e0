"""The administrator's key that the first start makes."""

from pathlib import Path

import msgspec

from jobmeter.access.keys import create_key
from jobmeter.access.principal import Role
from jobmeter.access.vault import Vault
from jobmeter.model.time import Clock
from jobmeter.registry.base import Registry
from jobmeter.server.folder import ADMIN_KEY, write_private


def ensure_admin_key(data: Path, registry: Registry, vault: Vault, clock: Clock) -> Path:
    """The file with an administrator's key; made, with its key, where there is none."""
    path = data / ADMIN_KEY
    if not path.exists():
        made = create_key(registry, vault, clock, "admin", Role.ADMIN, None)
        line = {
            "id": made.id,
            "token": made.token,
            "access_key_id": made.access_key_id,
            "access_key_secret": made.access_key_secret,
            "role": str(made.role),
            "project": made.project,
        }
        write_private(path, msgspec.json.encode(line) + b"\n")
    return path
