"""Tests of a start: it opens the engine while it loads the rest, and leaves nothing open if it ends early."""

import socket
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest
from tests.support.memory_store import MemoryStore

import jobmeter.server.run
import jobmeter.store.registry
from jobmeter.errors import ConfigurationError, UnavailableError
from jobmeter.server.opening import Opening
from jobmeter.server.run import run
from jobmeter.settings import Settings

LOADED = """
import sys
import jobmeter.server.run
print("\\n".join(sys.modules))
"""
APART = """
import sys
from functools import partial
import jobmeter.server.run, jobmeter.server.opening
from jobmeter.model.time import SystemClock
from jobmeter.store.registry import find_opener
open_store = partial(find_opener("chdb://" + sys.argv[1]), SystemClock())
before = set(sys.modules)
if sys.argv[2] == "engine":
    open_store().close()
else:
    import jobmeter.server.serving
    from jobmeter.dialects.registry import list_dialects
    list_dialects()
print("\\n".join(set(sys.modules) - before))
"""


class _Store(MemoryStore):
    closed = 0

    def close(self) -> None:
        self.closed += 1
        super().close()


def _modules(program: str, *arguments: str) -> set[str]:
    done = subprocess.run([sys.executable, "-c", program, *arguments], check=True, capture_output=True, text=True)
    return set(done.stdout.splitlines())


def test_the_folder_is_claimed_before_anything_large_is_loaded() -> None:
    assert _modules(LOADED).isdisjoint({"numpy", "sqlalchemy", "clickhouse_connect", "chdb", "jobmeter.server.app"})


def test_the_thread_that_opens_the_engine_loads_no_module_that_the_rest_of_the_start_loads(tmp_path: Path) -> None:
    engine, rest = (_modules(APART, str(tmp_path / part), part) for part in ("engine", "rest"))
    assert "chdb" in engine
    assert "jobmeter.server.app" in rest
    # Two threads that import modules of one package in different orders can deadlock; ``xml`` itself is empty.
    assert engine & rest <= {"xml"}


def test_who_takes_the_engine_closes_it() -> None:
    store = _Store()
    opening = Opening(lambda: store)
    assert opening.wait() is store
    opening.close()
    assert store.closed == 0


def test_an_engine_that_nobody_took_is_closed_once() -> None:
    store = _Store()
    opening = Opening(lambda: store)
    opening.close()
    opening.close()
    assert store.closed == 1


def test_an_engine_that_could_not_be_opened_says_why() -> None:
    def refuse() -> MemoryStore:
        raise UnavailableError("the disk is full")

    opening = Opening(refuse)
    with pytest.raises(UnavailableError, match="the disk is full"):
        opening.wait()
    opening.close()


@pytest.fixture
def _unstoppable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disable the forced end after the grace time, because these starts run in the process of the tests."""
    monkeypatch.setattr(jobmeter.server.run, "Stopping", nullcontext)


@pytest.mark.usefixtures("_unstoppable")
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"registry": "redis://127.0.0.1"}, "sqlite or postgresql"),
        ({"query_budgets": "nonsense"}, "budget"),
    ],
)
def test_a_start_that_ends_early_leaves_no_engine_open(tmp_path: Path, monkeypatch, wrong, message: str) -> None:
    store = _Store()
    opened = []

    def opener(dsn: str):
        opened.append(dsn)
        return lambda *_, **__: store

    monkeypatch.setattr(jobmeter.store.registry, "find_opener", opener)
    with pytest.raises(ConfigurationError, match=message):
        run(Settings(data=tmp_path, **{"port": 0, **wrong}), 0, print)
    assert store.closed == len(opened) == 1


@pytest.mark.usefixtures("_unstoppable")
def test_a_port_in_use_is_reported_before_the_data_folder_is_made(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(ConfigurationError, match="cannot listen"):
            run(Settings(data=tmp_path / "data", port=other.getsockname()[1]), 0, print)
    assert not (tmp_path / "data").exists()
