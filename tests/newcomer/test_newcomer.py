"""Tests of a newcomer's steps: clone, build wheels, install them in a new environment, and type the pages' commands.

The test ignores other installed packages: the clone creates its own environment with ``make setup``, and the pages use
the programs of the wheel. pip and uv use their caches where possible.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.documents import PROGRAM, ROOT, blocks, commands, end_server, environment, type_in

PAGES = ("README", *(f"docs/how-to/{name}" for name in ("quickstart", "install", "run", "page", "terminal", "python")))
PAGES += tuple(f"docs/how-to/{name}" for name in ("import", "diagnose", "agent", "serve", "keys"))
ELSEWHERE = "names a server that the reader has elsewhere"
AS_ROOT = "writes to folders of the system, as root"
UNTIL_CTRL_C = "runs until Ctrl-C"
LEFT_OUT = {
    "README": {
        "make test": "runs every test, and so this one",
        "jobmeter demo": f"{UNTIL_CTRL_C}: tests/e2e/test_demo.py",
    },
    "docs/how-to/quickstart": {
        "jobmeter demo": f"{UNTIL_CTRL_C}: tests/e2e/test_demo.py",
        "jobmeter serve --host 0.0.0.0 --data /srv/jobmeter --tls-cert cert.pem --tls-key key.pem": AS_ROOT,
        "jobmeter key create --name lin --role writer --project vision --data /srv/jobmeter": AS_ROOT,
        "jobmeter agent --server https://metrics.example:8400 --key TOKEN": ELSEWHERE,
    },
    "docs/how-to/run": {"jobmeter run --pid 4711 --name tuning": "names a process of the reader"},
    "docs/how-to/terminal": {
        'eval "$(_JOBMETER_COMPLETE=zsh_source jobmeter)"': "is for zsh, the test types in bash",
        "jobmeter delete resnet-20261122-k3v9qd": "asks for confirmation on a terminal: tests/e2e/test_cli_verbs.py",
    },
    "docs/how-to/import": {
        "jobmeter import --server https://jobmeter.example:8400 --key TOKEN big.parquet": ELSEWHERE,
        "jobmeter import wandb/offline-run-*/run-*.wandb": "needs files of W&B: tests/unit/cli/loading/test_wandb.py",
    },
    "docs/how-to/diagnose": {
        "jobmeter diagnose --task TASK --json": "the id of a task is made by the server",
        'curl -H "Authorization: Bearer $JOBMETER_KEY" "$JOBMETER_SERVER/api/jobmeter/v1/tasks/TASK"': (
            "the id of a task is made by the server"
        ),
        "python -m jobmeter.examples.faults": "takes minutes: tests/unit/benchmarks/faults/test_generated.py",
    },
    "docs/how-to/agent": {
        "jobmeter agent --server https://jobmeter.example:8400 --key TOKEN": ELSEWHERE,
        "python3 -m venv /opt/jobmeter && /opt/jobmeter/bin/pip install --find-links . jobmeter": AS_ROOT,
        "install -D -m 0644 deploy/systemd/jobmeter-agent.service /etc/systemd/system/jobmeter-agent.service": AS_ROOT,
        "install -D -m 0600 agent.env /etc/jobmeter/agent.env": AS_ROOT,
        "systemctl daemon-reload && systemctl enable --now jobmeter-agent": AS_ROOT,
    },
    "docs/how-to/serve": {
        "jobmeter serve": f"{UNTIL_CTRL_C}: tests/e2e/test_server.py",
        "jobmeter serve --processes 4": f"{UNTIL_CTRL_C}: tests/e2e/test_processes.py",
        "jobmeter serve --host 0.0.0.0 --tls-cert server.pem --tls-key server.key": "needs a certificate of the reader",
        "jobmeter backup /var/backups/jobmeter/2026-11-20": AS_ROOT,
        "jobmeter restore /var/backups/jobmeter/2026-11-20 --data /var/lib/jobmeter": AS_ROOT,
    },
    "docs/how-to/keys": {"jobmeter key revoke key-1f2e3d4c5b": "the id of a key is made by the program"},
}
"""Commands that the test does not run, and the reasons."""

_SAMPLES = """python - <<'END'
import csv, datetime, gzip, pathlib
import pyarrow.csv, pyarrow.parquet
now = int(datetime.datetime.now().timestamp()) * 1000 - 600_000
for name, metric in (("gpu", "gpu.utilization"), ("cpu", "cpu.usage"), ("old", "memory.usage")):
    with open(f"{name}.csv", "w") as file:
        rows = csv.writer(file)
        rows.writerow(("job_id", "replica", "node", "device", "metric", "time", "value"))
        device = "gpu0" if name == "gpu" else ""
        rows.writerows(("imported", "worker-0", "node-7", device, metric, now + 15_000 * n, 0.5) for n in range(40))
pyarrow.parquet.write_table(pyarrow.csv.read_csv("cpu.csv"), "cpu.parquet")
pathlib.Path("old.csv.gz").write_bytes(gzip.compress(pathlib.Path("old.csv").read_bytes()))
record = b'{"job_id": "imported", "name": "resnet", "state": "Succeeded"}'
pathlib.Path("jobs.jsonl.gz").write_bytes(gzip.compress(record))
END
"""
_IMPORTED = f"{_SAMPLES} jobmeter import gpu.csv jobs.jsonl.gz\n"
_JOB = """jobmeter run --quiet --no-logs --job-id JOB --replicas 2 -- tail -f /dev/null & running=$!
trap 'kill $running; wait $running || true' EXIT
until jobmeter show JOB > shown 2>&1; do :; done
"""
BEFORE = {
    "README": "",
    "docs/how-to/page": "jobmeter run --quiet --job-id JOB -- python train.py\n",
    "docs/how-to/terminal": (
        f"{_SAMPLES}jobmeter import gpu.csv\n"  # a job on node-7
        "mkdir -p ~/.config/fish/completions\n"
        "jobmeter run --quiet --job-id resnet-20261122-k3v9qd --name resnet -- python train.py\n"
        "jobmeter run --quiet --project research -- python train.py\n"
        "jobmeter run --quiet -- python train.py\n"
    ),
    "docs/how-to/python": _IMPORTED,
    "docs/how-to/import": _SAMPLES + "jobmeter run --quiet -- python train.py\n",
    "docs/how-to/diagnose": _IMPORTED + _JOB,
    "docs/how-to/serve": "jobmeter run --quiet -- python train.py\n",
    "docs/how-to/keys": "jobmeter run --quiet -- python train.py\n",
}
"""Commands that the reader of a page typed before its first command."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif("NEWCOMER" not in os.environ, reason="too slow for each run: make test-newcomer"),
]


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    """Make a clean clone, and run the clone commands of the installation page in it."""
    folder = tmp_path_factory.mktemp("newcomer") / "jobmeter"
    subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", ROOT, folder], check=True)
    type_in("\n".join(blocks(folder / "docs/how-to/install.md", "sh")), folder)
    assert len(list((folder / "dist").glob("*.whl"))) == 2
    return folder


@pytest.fixture(scope="module")
def programs(clone, tmp_path_factory):
    """Install the wheel in a new environment as the page says, and return its folder of programs."""
    folder = tmp_path_factory.mktemp("machine")
    uv = clone / ".venv/bin/uv"
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, folder / "venv"], check=True)
    # Avoid the index for cached packages: pip of this environment is uv's, with the pinned versions.
    pip = folder / "venv/bin/pip"
    pip.write_text(f'#!/bin/sh\nexec {uv} pip "$@"\n')
    pip.chmod(0o755)
    for wheel in (clone / "dist").glob("*.whl"):
        shutil.copy(wheel, folder)
    variables = environment(folder, pip.parent)
    variables |= {"VIRTUAL_ENV": str(folder / "venv"), "UV_CONSTRAINT": str(clone / "requirements/dev.txt")}
    if cache := os.environ.get("UV_CACHE_DIR") or str(Path.home() / ".cache/uv"):
        variables["UV_CACHE_DIR"] = cache
    lines = [line for line in commands(clone / "docs/how-to/install.md") if line.startswith("pip ")]
    assert len(lines) >= 4
    type_in("\n".join(lines), folder, variables)
    return pip.parent


@pytest.fixture
def home(tmp_path):
    (tmp_path / "train.py").write_text(PROGRAM)
    yield tmp_path
    end_server(tmp_path)


@pytest.mark.parametrize("page", [page for page in PAGES if page not in {"README", "docs/how-to/install"}])
def test_the_commands_of_a_page_work_as_they_are_written(page, clone, programs, home):
    lines = [line for line in commands(clone / f"{page}.md") if line not in LEFT_OUT.get(page, {})]
    # the wheel is already installed
    lines = [line for line in lines if not line.startswith("pip ")]
    python = "".join(blocks(clone / f"{page}.md", "python")) if page == "docs/how-to/python" else ""
    (home / "page.py").write_text(python)
    script = BEFORE.get(page, "") + "\n".join([*lines, "python page.py" if python else ""])
    type_in(script, home, environment(home, programs))


def test_the_commands_of_the_readme_work_in_the_clone(clone, home):
    shutil.copy(home / "train.py", clone)
    lines = [line for line in commands(clone / "README.md") if line not in LEFT_OUT["README"]]
    assert lines[0] == "make demo"
    output = type_in("\n".join(lines), clone, environment(home, clone / ".venv/bin"))
    assert len(re.findall(r"all \d+ values agree", output)) >= 1
    assert "/#/" not in output, "a link to the page of a server that has ended"


def test_every_command_that_is_left_out_is_on_its_page():
    for page, lines in LEFT_OUT.items():
        assert [line for line in lines if line not in set(commands(ROOT / f"{page}.md"))] == [], page
    assert set(LEFT_OUT) <= set(PAGES)


def test_a_test_that_a_reason_names_exists():
    reasons = " ".join(why for lines in LEFT_OUT.values() for why in lines.values())
    named = set(re.findall(r"tests/\S+\.py", reasons))
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []
