"""Fixtures with a fixed clock, a vault, a registry, and their authenticator."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from jobmeter.access.authenticate import Authenticator
from jobmeter.access.vault import Vault
from jobmeter.model.retention import Retention
from jobmeter.registry.base import Registry
from jobmeter.registry.open import open_registry

NOW_MS = 1_795_188_836_000
"""2026-11-20T15:33:56Z."""


class FixedClock:
    """Clock that tests set."""

    def __init__(self) -> None:
        self.ms = NOW_MS

    def now_ms(self) -> int:
        return self.ms

    def monotonic(self) -> float:
        return self.ms / 1000


@pytest.fixture
def clock() -> FixedClock:
    return FixedClock()


@pytest.fixture
def vault() -> Vault:
    return Vault(bytes(range(32)))


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Registry]:
    opened = open_registry(f"sqlite:///{tmp_path / 'registry.db'}", Retention())
    yield opened
    opened.close()


@pytest.fixture
def authenticator(registry: Registry, vault: Vault, clock: FixedClock) -> Authenticator:
    # The nonce memory begins a day earlier, like the memory of a server that has run for a while.
    clock.ms -= 86_400_000
    made = Authenticator(registry.keys, vault, clock)
    clock.ms += 86_400_000
    return made
