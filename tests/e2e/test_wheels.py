"""Tests of both wheels of ``make wheel`` in empty environments: one serves, the other measures and queries."""

import json
import subprocess
import sys
import zipfile
from importlib.metadata import version
from pathlib import Path
from socket import gethostname

import pytest

from tests.support.processes import running

ROOT = Path(__file__).parents[2]
UV = Path(sys.executable).with_name("uv")
OLD_SAMPLES = {"JOBMETER_RETENTION_RAW_DAYS": "36500"}
SAMPLES = "job_id,replica,node,device,metric,time,value\n" + "".join(
    f"job-1,worker-0,n1,gpu{device},gpu.power,{1_767_225_600_000 + 15_000 * at},{100 * device + at}\n"
    for device in range(2)
    for at in range(8)
)


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    """Build the wheels as a user does, check them with twine, and return their folder."""
    folder = tmp_path_factory.mktemp("wheels") / "dist"
    done = subprocess.run(
        ["make", "wheel", f"DIST={folder}"], cwd=ROOT, capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("PASSED") == len(list(folder.glob("*.whl")))
    return folder


def installed(folder: Path, wheel: Path) -> Path:
    """Return the Python of an environment with the server's pinned dependencies and that wheel."""
    python = folder / "venv" / "bin" / "python"
    pins = ROOT / "requirements" / "server.txt"
    commands: tuple[list[str | Path], ...] = (
        [UV, "venv", "--quiet", "--python", sys.executable, folder / "venv"],
        [UV, "pip", "install", "--quiet", "--python", python, "--require-hashes", "-r", pins],
        [UV, "pip", "install", "--quiet", "--python", python, "--offline", "--no-deps", wheel],
    )
    for command in commands:
        subprocess.run(command, check=True, capture_output=True, timeout=240)
    return python


def called(folder: Path, python: Path, *arguments: str) -> str:
    """Return the output of a command that runs outside of the clone."""
    command = [str(python.with_name("jobmeter")), *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_one_wheel_serves_and_the_other_is_for_agents_and_clients(tmp_path, wheels):
    pythons = {}
    for kind in ("manylinux", "any"):
        (wheel,) = wheels.glob(f"*-py3-none-{kind}*.whl")
        assert ("jobmeter/kernel/_kernel.so" in zipfile.ZipFile(wheel).namelist()) is (kind == "manylinux")
        (tmp_path / kind).mkdir()
        pythons[kind] = installed(tmp_path / kind, wheel)
        assert version("jobmeter") in called(tmp_path, pythons[kind], "--version")
    (tmp_path / "samples.csv").write_text(SAMPLES)
    with running(tmp_path / "data", environment=OLD_SAMPLES, python=str(pythons["manylinux"])) as server:
        reach = ("--server", server.url, "--key", server.token)
        called(tmp_path, pythons["any"], "import", "samples.csv", *reach)
        asked = ("metrics", "job-1", "--metric", "gpu.power", "--by", "device", "--format", "csv", *reach)
        lines = called(tmp_path, pythons["any"], *asked).splitlines()
        called(tmp_path, pythons["any"], "agent", "--once", "--spool", "spool", *reach)
        nodes = json.loads(called(tmp_path, pythons["any"], "nodes", "--json", *reach))
        assert json.loads(called(tmp_path, pythons["any"], "status", "--json", *reach))["kernel"] == "loaded"
    assert {line.split(",")[2] for line in lines[1:]} == {"gpu0", "gpu1"}
    assert gethostname() in {node["name"] for node in nodes}
    for verb in (("serve", "--port", "0"), ("jobs",)):
        command = [str(pythons["any"].with_name("jobmeter")), *verb, "--data", "none"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 1
        assert "this is the wheel without it" in done.stderr
        assert not (tmp_path / "none").exists()


def test_the_wheel_with_the_kernel_is_for_every_linux(wheels):
    (wheel,) = wheels.glob("*manylinux*.whl")
    shown = subprocess.run(
        [sys.executable, "-m", "auditwheel", "show", str(wheel)], capture_output=True, text=True, check=True
    )
    assert '"manylinux_2_17_' in shown.stdout
