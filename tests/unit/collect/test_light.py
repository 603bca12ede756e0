"""Tests of the agent's footprint: it imports no server code, and every metric that it sends is in the catalogue."""

import subprocess
import sys
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest
from tests.programs import find

from jobmeter.collect.base import NodeIdentity
from jobmeter.collect.clock import SampleClock
from jobmeter.collect.discover.classify import NodeClassifier
from jobmeter.collect.registry import create_host_collectors, create_job_collectors
from jobmeter.model.catalog import CATALOG
from jobmeter.model.time import SystemClock

ROOT = Path(__file__).parents[3]
HEAVY = {
    "alembic",
    "chdb",
    "clickhouse_connect",
    "cryptography",
    "httptools",
    "jobmeter.kernel",
    "numpy",
    "pandas",
    "psycopg",
    "pyarrow",
    "sqlalchemy",
    "zstandard",
}


@pytest.mark.parametrize(
    "modules", ["jobmeter.collect.agent, jobmeter.cli.agent", "jobmeter.cli.run, jobmeter.cli.local"]
)
def test_nothing_heavy_is_imported(modules):
    code = f"import sys, jobmeter.collect.loop, {modules}; print(sorted({HEAVY!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_the_agent_itself_needs_no_rich():
    code = "import sys, jobmeter.collect.agent; print('rich' in sys.modules, 'pynvml' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False False\n"


def test_every_described_metric_is_in_the_catalogue_and_every_collector_has_its_own_name():
    place = NodeIdentity("n1")
    jobs = create_job_collectors(place, NodeClassifier("n1"), SampleClock(SystemClock()), alone=False)
    planned = [*create_host_collectors(place), *jobs.planned]
    names = [entry.collector.name for entry in planned]
    assert len(set(names)) == len(names)
    described = [metric for entry in planned for metric in entry.collector.metrics]
    assert [metric for metric in described if metric not in CATALOG] == []
    vendors = [one.metrics for one in jobs.accelerators]
    others = [
        metric for entry in planned if entry.collector not in jobs.accelerators for metric in entry.collector.metrics
    ]
    assert len(set(others)) == len(others)
    assert [set(metrics) & set(others) for metrics in vendors] == [set() for _ in vendors]
    assert all(len(set(metrics)) == len(metrics) for metrics in vendors)


@pytest.mark.slow
def test_the_agent_starts_with_the_base_dependencies_alone(tmp_path):
    """The environment has only the pins of requirements/base.txt and the wheel of `make wheel`."""
    uv = Path(sys.executable).with_name("uv")
    if not uv.exists():
        pytest.skip("no uv beside this Python")
    python = tmp_path / "venv" / "bin" / "python"
    for command in (
        [uv, "venv", "--quiet", "--python", sys.executable, tmp_path / "venv"],
        [uv, "pip", "install", "--quiet", "--python", python, "--require-hashes", "-r", ROOT / "requirements/base.txt"],
        [uv, "build", "--quiet", "--wheel", "--out-dir", tmp_path / "dist", ROOT],
    ):
        subprocess.run(command, check=True, capture_output=True, timeout=240)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    if find("cc"):
        assert "jobmeter/kernel/_kernel.so" in zipfile.ZipFile(wheel).namelist()
    install = [uv, "pip", "install", "--quiet", "--python", python, "--no-deps", wheel]
    subprocess.run(install, check=True, capture_output=True, timeout=240)
    result = subprocess.run([python.with_name("jobmeter"), "--version"], capture_output=True, text=True, check=True)
    assert version("jobmeter") in result.stdout
    code = f"""
import importlib.util, jobmeter.collect, jobmeter.collect.agent
print([name for name in sorted({HEAVY - {"jobmeter.kernel"}!r}) if importlib.util.find_spec(name)])
"""
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
    command = [python, "-m", "jobmeter", "agent"]
    assert b"--server" in subprocess.run([*command, "--once", "--help"], capture_output=True, check=True).stdout
    started = subprocess.run(
        [*command, "--once", "--server", "http://127.0.0.1:9", "--key", "k", "--spool", tmp_path / "spool"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert started.returncode == 1
    assert "not delivered" in started.stderr
    assert "Traceback" not in started.stderr
    assert list((tmp_path / "spool").glob("*.frames"))
