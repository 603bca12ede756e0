"""Tests of the modules that a start loads: none that only few servers need."""

import subprocess
import sys
from pathlib import Path

import pytest

LOADED = """
import sys
from pathlib import Path
import jobmeter.server.run
from jobmeter.server.app import build
from jobmeter.settings import Settings
application = build(Settings(data=Path(sys.argv[1])))
application.services.alerting.round()
application.close()
print("\\n".join(sys.modules))
"""


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Return the modules of a server on SQLite and the embedded engine that has evaluated the shipped alert rules."""
    folder = tmp_path_factory.mktemp("started")
    _started(folder / "data")  # creates the tables
    return _started(folder / "data")


def _started(data: Path) -> set[str]:
    done = subprocess.run([sys.executable, "-c", LOADED, str(data)], check=True, capture_output=True, text=True)
    return set(done.stdout.splitlines())


@pytest.mark.parametrize(
    "module", ["alembic", "grpc", "pandas", "psycopg", "pyarrow", "sqlalchemy.dialects.postgresql", "starlette"]
)
def test_a_start_does_not_load_what_few_servers_need(loaded: set[str], module: str) -> None:
    assert "jobmeter.server.run" in loaded
    assert module not in loaded
