import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def run(folder, *words):
    command = [sys.executable, "-m", "jobmeter.examples.faults", *words]
    return subprocess.run(command, check=False, cwd=folder, capture_output=True, text=True, timeout=120)


def test_a_clone_has_the_scripts():
    done = run(ROOT, "--help")
    assert done.returncode == 0, done.stderr
    assert "--seed" in done.stdout


def test_an_installation_without_the_scripts_reports_an_error(tmp_path):
    done = run(tmp_path)
    assert done.returncode == 1
    assert done.stderr == (
        "the scripts that measure the rules are not here: run this command in the top folder of a clone\n"
    )
