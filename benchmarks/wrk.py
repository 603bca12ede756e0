"""Many connections at once: wrk on one thread, every contestant with the same script and the same list of questions."""

import json
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.client import Request
from benchmarks.install import installed

SCRIPT = Path(__file__).parent / "rotate.lua"


@dataclass(frozen=True)
class Load:
    """Answers a second, and milliseconds as wrk counts them."""

    rate: float
    p50: float
    p99: float


def load(requests: Sequence[Request], connections: int, seconds: float) -> Load | None:
    """Ask the list around on that many connections for whole seconds; None when wrk is not installed.

    Raises RuntimeError when an answer was no 2xx or a connection broke: errors must not count as answers.
    """
    if not installed("wrk"):
        return None
    with tempfile.TemporaryDirectory() as place:
        paths = write_paths(requests, Path(place) / "paths")
        command = [*_command(requests[0], connections, seconds), "--", str(paths)]
        finished = subprocess.run(command, capture_output=True, text=True, check=False)
    return read_report(finished.stdout, finished.stderr)


def write_paths(requests: Sequence[Request], file: Path) -> Path:
    """The file that the script reads: a path a line."""
    file.write_text("".join(f"{one.path}\n" for one in requests))
    return file


def read_report(output: str, errors: str = "") -> Load:
    """What the script printed. Raises RuntimeError where something went wrong."""
    line = next((line for line in output.splitlines() if line.startswith("{")), None)
    report = json.loads(line) if line else None
    if report is None or report["refused"] or report["broken"] or not report["requests"]:
        raise RuntimeError(f"wrk: {output}{errors}")
    return Load(report["requests"] / report["seconds"], report["p50"], report["p99"])


def _command(request: Request, connections: int, seconds: float) -> list[str]:
    headers = [part for name, value in request.headers.items() for part in ("-H", f"{name}: {value}")]
    duration = f"-d{max(1, round(seconds))}s"
    return [
        "wrk",
        "-t1",
        f"-c{connections}",
        duration,
        "-s",
        str(SCRIPT),
        *headers,
        f"http://127.0.0.1:{request.port}/",
    ]
