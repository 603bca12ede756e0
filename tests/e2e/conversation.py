"""Keeps SDK processes that answer one line of JSON with another, so that a module loads each SDK only once."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

_running: dict[tuple[Path, Path], "subprocess.Popen[str]"] = {}
"""Processes by environment and script, until ``end_all``."""


def converse(python: Path, script: Path, asked: Any) -> Any:
    """Return the script's answer. The first question starts its process, which then stays."""
    process = _running.get((python, script))
    if process is None:
        process = _running[python, script] = subprocess.Popen(
            [python, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=_own_environment()
        )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{json.dumps(asked)}\n")
    process.stdin.flush()
    answer = process.stdout.readline()
    if not answer:
        end_all()
    assert answer, f"{script.name} ended: see its standard error"
    return json.loads(answer)


def _own_environment() -> dict[str, str]:
    """Return this process's environment without OpenTelemetry's variables, because each question sets its own."""
    return {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}


def end_all() -> None:
    """Stop the processes. A script exits at the end of its standard input."""
    for process in _running.values():
        process.communicate()
    _running.clear()


def has_package(python: Path, name: str) -> bool:
    """Return True if an environment contains a package. Importing it instead would take a second."""
    return any(python.parents[1].glob(f"lib/python*/site-packages/{name}"))
