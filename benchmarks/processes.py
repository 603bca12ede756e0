"""Starting and stopping the contestants, each on its own free port and in its own folder."""

import contextlib
import http.client
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

INSTALL = "apt-get install victoria-metrics prometheus wrk"


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def installed(program: str) -> bool:
    """True when the program can be started."""
    return shutil.which(program) is not None


@contextlib.contextmanager
def running(command: Sequence[str], port: int, ready: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The process, from the moment when ``ready`` answers 200 until the block ends."""
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env=os.environ)
        try:
            _wait(process, port, ready, log)
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait(process: subprocess.Popen[bytes], port: int, ready: str, log: Path) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        with contextlib.suppress(OSError, http.client.HTTPException):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
            connection.request("GET", ready)
            if connection.getresponse().status == 200:
                return
        time.sleep(0.05)
    sys.exit(f"{process.args!r} did not become ready:\n{log.read_text(errors='replace')[-2000:]}")


def resident_megabytes(pid: int) -> float:
    """Resident memory of a process and its children, in MiB."""
    total = 0
    for status in Path("/proc").glob("[0-9]*/status"):
        with contextlib.suppress(OSError):
            fields = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
            if pid in {int(fields["Pid"]), int(fields["PPid"])}:
                total += int(fields.get("VmRSS", "0 kB").split()[0])
    return total / 1024


def folder_bytes(folder: Path) -> int:
    """Bytes on disk below a folder."""
    return sum(path.lstat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())


@contextlib.contextmanager
def running_plain(command: Sequence[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that listens to nobody; a second later it must still live."""
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
        try:
            time.sleep(1)
            if process.poll() is not None:
                sys.exit(f"{command!r} ended:\n{log.read_text(errors='replace')[-2000:]}")
            yield process
        finally:
            process.terminate()
            process.wait(20)
