"""Whole application without a socket: SQLite in a folder, a memory store with a window, and a manual clock."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jobmeter.access.keys import CreatedKey, create_key
from jobmeter.model.time import HOUR
from jobmeter.registry.open import open_registry
from jobmeter.server.app import Application, assemble
from jobmeter.settings import Settings
from jobmeter.store.base import Store
from jobmeter.store.window.store import WindowedStore
from tests.support.asgi import Reply, call
from tests.support.fakes import SetClock
from tests.support.frames import FRAMES
from tests.support.memory_store import MemoryStore

BASE = "/api/jobmeter/v1"


@dataclass
class Serving:
    """Application and its clock, with a method to call it."""

    application: Application
    clock: SetClock
    admin: CreatedKey

    def key(self, role: str, project: str | None = None) -> CreatedKey:
        services = self.application.services
        return create_key(services.registry, services.vault, self.clock, f"{role}-key", role, project)

    def call(
        self,
        method: str,
        path: str,
        body: Any = b"",
        key: CreatedKey | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        """Call the native API (``path`` below its base) with a key, by default the administrator's."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        credential = {"Authorization": f"Bearer {(key or self.admin).token}"}
        return call(self.application, method, BASE + path, content, {**credential, **(headers or {})})

    def raw(self, method: str, target: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> Reply:
        return call(self.application, method, target, body, headers)

    def ingest(self, body: bytes, key: CreatedKey | None = None) -> Reply:
        return self.call("POST", "/ingest", body, key, {"Content-Type": FRAMES})


def serving(folder: Path, store: Store | None = None, **options: Any) -> Serving:
    folder.mkdir(mode=0o700, exist_ok=True)
    settings = Settings(data=folder, **options)
    clock = SetClock()
    registry = open_registry(settings.registry_url, settings.retention)
    if store is None:
        store = WindowedStore(MemoryStore(), clock, length_ms=2 * HOUR, bound=2**24)
    application = assemble(settings, clock, registry, store)
    services = application.services
    return Serving(application, clock, create_key(registry, services.vault, clock, "admin", "admin"))
