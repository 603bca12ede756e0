"""Run a small program at low priority, with a limit on its time and on its output."""

import os
import selectors
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

_NICE = 19
_CHUNK = 65_536


class ChildOutput(NamedTuple):
    """Output of a program. ``problem`` is the reason why a part is missing, empty for the whole output."""

    out: bytes
    error: bytes
    problem: str = ""


def run_aside(command: Sequence[str], seconds: float, most: int, given: int | None = None) -> ChildOutput:
    """Run a program and return at most ``most`` bytes of its output. ``given`` is the descriptor of its input.

    The program is killed after ``seconds``, or after more bytes. Raises OSError if it cannot be started.
    """
    process = subprocess.Popen(
        list(command),
        stdin=subprocess.DEVNULL if given is None else given,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd="/",
        start_new_session=True,
    )
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, process.pid, _NICE)
    try:
        return _read(process, seconds, most)
    finally:
        # `jobmeter run` waits for any child in another thread: Popen then finds that the program is gone.
        process.kill()
        process.wait()
        for pipe in (process.stdout, process.stderr):
            if pipe:
                pipe.close()


def _read(process: "subprocess.Popen[bytes]", seconds: float, most: int) -> ChildOutput:
    found: dict[str, bytearray] = {"out": bytearray(), "error": bytearray()}
    end = time.monotonic() + seconds
    problem = ""
    with selectors.DefaultSelector() as selector:
        for name, pipe in (("out", process.stdout), ("error", process.stderr)):
            if pipe:
                selector.register(pipe, selectors.EVENT_READ, found[name])
        while selector.get_map() and not problem:
            ready = selector.select(max(end - time.monotonic(), 0.0))
            if not ready:
                problem = f"no end within {seconds:.0f} s"
            for key, _ in ready:
                part = os.read(key.fd, _CHUNK)
                if not part:
                    selector.unregister(key.fileobj)
                key.data.extend(part)
            if max(map(len, found.values())) > most:
                problem = f"more than {most} bytes of output"
    return ChildOutput(bytes(found["out"][:most]), bytes(found["error"][:most]), problem)
