"""Fixtures for the tests of the agent."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.nvml import FakeNvml


@pytest.fixture
def make_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], FakeNvml]]:
    """Return a function that makes the machine's fake driver with ``count`` GPUs; its library is not installed yet."""
    made: list[FakeNvml] = []

    def make(devices: int) -> FakeNvml:
        driver = FakeNvml(tmp_path, devices)
        for name, value in driver.environment.items():
            monkeypatch.setenv(name, value)
        made.append(driver)
        return driver

    yield make
    for driver in made:
        driver.close()


@pytest.fixture
def driver(make_driver: Callable[[int], FakeNvml]) -> FakeNvml:
    """Return the installed fake driver of a machine with eight GPUs."""
    made = make_driver(8)
    made.install()
    return made
