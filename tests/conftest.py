"""Fixtures and pytest hooks of all tests."""

import gc
import os
import signal
import sys
from collections import Counter
from typing import TYPE_CHECKING, cast

import pytest
from hypothesis import HealthCheck, settings

from jobmeter.model.time import SystemClock
from jobmeter.server.memory import freeze_objects
from jobmeter.store.registry import open_store
from tests.suite import deal
from tests.support.loopback import Guard

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jobmeter.store.clickhouse import ClickHouseStore

# A slow machine must not fail a test. Every run tries the same examples, so that its result depends on the change
# alone. `make search` looks for new examples with the hypothesis profile "search".
settings.register_profile("search", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=False)
settings.register_profile("repeat", settings.get_profile("search"), derandomize=True, database=None)
settings.register_profile("few", settings.get_profile("repeat"), max_examples=25)
settings.load_profile("repeat")

# A shell or nohup starts background programs with these signals ignored. Programs that the tests start would inherit
# that, and ignore the tests' signals.
for _ignored in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
    if signal.getsignal(_ignored) is signal.SIG_IGN:
        signal.signal(_ignored, signal.default_int_handler if _ignored is signal.SIGINT else signal.SIG_DFL)


# Without this cache Python compiles a module for each process that imports it, which is half of a start.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# The collection creates 700,000 objects that live as long as the process. Searching them for garbage is wasteful.
gc.disable()

_GUARD = Guard()
_GUARD.install()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of this project."""
    text = "tests/unit/server: encode each question and each result, as between processes"
    parser.addoption("--encode-questions", action="store_true", help=text)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Order the tests for the processes of pytest-xdist."""
    processes = getattr(config, "workerinput", {}).get("workercount", 1)
    if processes > 1:
        items[:] = deal(items, processes)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop() -> None:
    """Collect garbage from now on, but exclude the objects of the tests themselves."""
    freeze_objects()


@pytest.fixture(autouse=True)
def _no_network() -> "Iterator[None]":
    """Fail a test that tried to reach another machine, even if its code ignored the refusal."""
    yield
    assert _GUARD.refused() == []


@pytest.fixture(scope="session")
def chdb_store(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[ClickHouseStore]":
    """Yield the embedded store of this worker process, which can have only one. It contains rows of other tests."""
    store = open_store(f"chdb://{tmp_path_factory.mktemp('store') / 'telemetry'}", SystemClock())
    yield cast("ClickHouseStore", store)
    store.close()


@pytest.fixture
def empty_store(chdb_store: "ClickHouseStore") -> "ClickHouseStore":
    """Empty the embedded store of this worker process, and return it."""
    chdb_store.erase()
    return chdb_store


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Report which tests were skipped here, and the remedy."""
    reasons = Counter(
        str(report.longrepr[2]).removeprefix("Skipped: ")
        for report in terminalreporter.stats.get("skipped", [])
        if isinstance(report.longrepr, tuple)
    )
    for reason, count in sorted(reasons.items()):
        terminalreporter.write_line(f"{count} skipped: {reason}")
