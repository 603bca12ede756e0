"""Both wheels of ``make wheel``, each in an empty environment: the program starts, takes samples and answers."""

import json
import subprocess
import sys
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.processes import running
from tests.programs import find

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
    """The folder with both, made as a user makes them; twine has checked what an index would."""
    folder = tmp_path_factory.mktemp("wheels") / "dist"
    done = subprocess.run(
        ["make", "wheel", f"DIST={folder}"], cwd=ROOT, capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("PASSED") == len(list(folder.glob("*.whl")))
    return folder


def installed(folder: Path, wheel: Path) -> Path:
    """The Python of an environment that has what the server needs, pinned, and that wheel."""
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
    """What a verb prints that is run outside of the clone."""
    command = [str(python.with_name("jobmeter")), *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["manylinux", "any"])
def test_a_wheel_is_all_that_it_takes(tmp_path, wheels, kind):
    if kind == "manylinux" and not find("cc"):
        pytest.skip("there is no C compiler: only the wheel without the kernel is made")
    (wheel,) = wheels.glob(f"*-py3-none-{kind}*.whl" if kind == "manylinux" else "*-py3-none-any.whl")
    assert ("jobmeter/kernel/_kernel.so" in zipfile.ZipFile(wheel).namelist()) is (kind == "manylinux")
    python = installed(tmp_path, wheel)
    assert version("jobmeter") in called(tmp_path, python, "--version")
    (tmp_path / "samples.csv").write_text(SAMPLES)
    with running(tmp_path / "data", environment=OLD_SAMPLES, python=str(python)) as server:
        reach = ("--server", server.url, "--key", server.token)
        called(tmp_path, python, "import", "samples.csv", *reach)
        asked = ("metrics", "job-1", "--metric", "gpu.power", "--by", "device", "--format", "csv")
        lines = called(tmp_path, python, *asked, *reach).splitlines()
        kernel = json.loads(called(tmp_path, python, "status", "--json", *reach))["kernel"]
        log = server.output()
    assert {line.split(",")[2] for line in lines[1:]} == {"gpu0", "gpu1"}
    assert ("this is the wheel without it" in kernel) is (kind == "any")
    assert ("the compiled kernel is missing" in log) is (kind == "any")


def test_the_wheel_with_the_kernel_is_for_every_linux(wheels):
    if not find("cc"):
        pytest.skip("there is no C compiler: only the wheel without the kernel is made")
    (wheel,) = wheels.glob("*manylinux*.whl")
    shown = subprocess.run(
        [sys.executable, "-m", "auditwheel", "show", str(wheel)], capture_output=True, text=True, check=True
    )
    assert '"manylinux_2_17_' in shown.stdout
