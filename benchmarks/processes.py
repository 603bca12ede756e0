"""Start and stop of the contestants' processes, and their CPU time, memory and disk as the kernel counts them."""

import contextlib
import http.client
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_PATIENCE = 120.0
_COMPILED = {"PYTHONDONTWRITEBYTECODE": ""}
"""Environment that lets Python write bytecode files: an empty variable counts as not set."""


def exit_on_sigterm() -> None:
    """Make SIGTERM raise SystemExit, so that ``with`` blocks stop the processes that they started."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


def free_port() -> int:
    """Return a port that is free at the moment."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def start(
    command: Sequence[str], port: int, ready: str, log: Path, environment: Mapping[str, str]
) -> tuple[subprocess.Popen[bytes], float]:
    """Start a process, and return it with the seconds until the path ``ready`` answered 200.

    Raises RuntimeError with the log if the process ends or is not ready after two minutes. Python writes its bytecode
    files, which pip writes when a user installs: a start must not compile the source again.
    """
    with log.open("ab") as output:
        variables = {**os.environ, **_COMPILED, **environment}
        begin = time.perf_counter()
        process = subprocess.Popen(command, stdout=output, stderr=output, env=variables)
        try:
            _wait(process, port, ready, log)
        except BaseException:
            stop(process)
            raise
    return process, time.perf_counter() - begin


def stop(process: subprocess.Popen[bytes]) -> None:
    """Terminate a process, and kill it if it still runs after 30 seconds."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _wait(process: subprocess.Popen[bytes], port: int, ready: str, log: Path) -> None:
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        with contextlib.suppress(OSError, http.client.HTTPException):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
            try:
                connection.request("GET", ready)
                if connection.getresponse().status == 200:
                    return
            finally:
                connection.close()
        time.sleep(0.01)
    raise RuntimeError(f"{process.args!r} did not become ready:\n{log.read_text(errors='replace')[-2000:]}")


def family(pid: int) -> list[int]:
    """Return the ids of a process and of all its descendants."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    found = [pid]
    for one in found:  # the list grows during the loop
        found += [child for child, parent in parents.items() if parent == one]
    return found


def resident_megabytes(pid: int) -> float:
    """Return the memory of a process and its descendants in MiB. Memory that they share counts once."""
    return sum(_kilobytes(one, "smaps_rollup", "Pss") for one in family(pid)) / 1024


def peak_megabytes(pid: int) -> float:
    """Return the peak resident memory since ``forget_peak`` in MiB, summed over a process and its descendants."""
    return sum(_kilobytes(one, "status", "VmHWM") for one in family(pid)) / 1024


def forget_peak(pid: int) -> None:
    """Reset ``peak_megabytes`` of a process and its descendants to their current memory."""
    for one in family(pid):
        with contextlib.suppress(OSError):
            Path(f"/proc/{one}/clear_refs").write_text("5")


def cpu_seconds(pid: int) -> float:
    """Return the CPU seconds of a process and its descendants, with all threads."""
    total = 0
    for one in family(pid):
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
            total += int(fields[11]) + int(fields[12])
    return total / _TICKS


def folder_bytes(folder: Path) -> int:
    """Return the bytes on disk of all files below a folder."""
    total = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):  # merges delete files meanwhile
            if path.is_file():
                total += path.lstat().st_blocks * 512
    return total


@contextlib.contextmanager
def running_plain(command: Sequence[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process that has no port to wait for, while the context lasts.

    Raises RuntimeError if the process ends within the first second.
    """
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
        try:
            time.sleep(1)
            if process.poll() is not None:
                raise RuntimeError(f"{command!r} ended:\n{log.read_text(errors='replace')[-2000:]}")
            yield process
        finally:
            stop(process)


def _kilobytes(pid: int, file: str, field: str) -> int:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/{file}").read_text().splitlines():
            if line.startswith(f"{field}:"):
                return int(line.split()[1])
    return 0
