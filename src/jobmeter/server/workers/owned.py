"""Placeholders for the parts of the storage process, in objects and in modules of a worker process.

A worker has about half of the server's code. Modules that only the storage process uses, and the libraries below them,
would take a third of a worker's memory. They are replaced before anything imports them: each name in them is a class
that cannot be used. So annotations and imports work, and every use raises OwnerNeededError, which forwards the call.
"""

import sys
from types import ModuleType
from typing import Any, Never


class OwnerNeededError(Exception):
    """Error: only the storage process can answer this call."""


class OwnedPart:
    """Placeholder for a part that only the storage process has: every use raises OwnerNeededError."""

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - never returns
        """Raise OwnerNeededError."""
        raise OwnerNeededError(name)


class _OwnedName(type):
    """Type of the names in a replaced module."""

    def __call__(cls, *_: object, **__: object) -> Never:
        raise OwnerNeededError(cls.__name__)

    def __getattr__(cls, name: str) -> Never:
        if name.startswith("__"):
            raise AttributeError(name)
        raise OwnerNeededError(f"{cls.__name__}.{name}")

    def __iter__(cls) -> Never:
        raise OwnerNeededError(cls.__name__)

    def __contains__(cls, _: object) -> Never:
        raise OwnerNeededError(cls.__name__)


class _OwnedModule(ModuleType):
    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the module has
        if name.startswith("__"):
            raise AttributeError(name)
        return _OwnedName(name, (), {})


OWNED_MODULES = frozenset(
    {
        "jobmeter.alerts.messages",
        "jobmeter.alerts.muting",
        "jobmeter.alerts.notify",
        "jobmeter.ingest.pipeline",
        "jobmeter.registry.base",
        "jobmeter.registry.batched",
        "jobmeter.registry.emit",
        "jobmeter.registry.finding_filter",
        "jobmeter.registry.finding_list",
        "jobmeter.registry.interval_cache",
        "jobmeter.registry.keys",
        "jobmeter.registry.rates",
        "jobmeter.registry.signatures",
        "jobmeter.registry.statements",
        "jobmeter.server.alerting",
        "jobmeter.server.backup",
        "jobmeter.server.tasks",
        "jobmeter.server.telemetry",
        "jobmeter.ship.shipping",
    }
)
"""Modules that a worker imports for annotations, or for calls that it forwards."""


def replace_modules() -> None:
    """Replace ``OWNED_MODULES`` in this process. Call it before anything imports them."""
    sys.modules.update((name, _OwnedModule(name)) for name in OWNED_MODULES)
