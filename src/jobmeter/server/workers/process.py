"""Worker processes: forked while the server loads, or spawned in place of dead ones.

A forked worker shares the memory of the modules that its server has loaded by then. Nothing is forked once the engine
opens, because the engine does not survive it.
"""

import logging
import os
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from itertools import pairwise

_POLL_SECONDS = 0.01
_STANDARD = (0, 1, 2)
"""Standard input, output and errors."""


class ForkedProcess:
    """Forked child of this process, with the methods of ``subprocess.Popen`` that a server needs."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def wait(self, timeout: float = float("inf")) -> int:
        """Wait for the end and return its status. Raises ``subprocess.TimeoutExpired``."""
        until = time.monotonic() + timeout
        while self.returncode is None:
            ended, status = os.waitpid(self.pid, 0 if timeout == float("inf") else os.WNOHANG)
            if ended:
                self.returncode = os.waitstatus_to_exitcode(status)
            elif time.monotonic() >= until:
                raise subprocess.TimeoutExpired("worker", timeout)
            else:
                time.sleep(_POLL_SECONDS)
        return self.returncode

    def kill(self) -> None:
        """Kill the process unless its end is known."""
        if self.returncode is None:
            os.kill(self.pid, signal.SIGKILL)


class WorkerProcess:
    """Process with one end of a socket pair. It inherits the other end, and the listening socket."""

    def __init__(self, bound: socket.socket, *, forked: bool = False) -> None:
        """Start the worker; with ``forked`` from the modules of this process, which must have no open engine."""
        self.started = time.monotonic()
        self.socket, theirs = socket.socketpair()
        level = logging.getLogger("jobmeter").getEffectiveLevel()
        try:
            start = _fork if forked else _spawn
            self.process: ForkedProcess | subprocess.Popen[bytes] = start(theirs.fileno(), bound.fileno(), level)
        except BaseException:
            self.socket.close()
            raise
        finally:
            theirs.close()

    def end(self) -> None:
        """Kill the process unless it has ended. Workers have no acknowledged samples that the storage process lacks."""
        self.socket.close()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(1.0)  # a worker without its connection ends
        self.process.kill()
        self.process.wait()


def fork_workers(bound: socket.socket, count: int, stack: ExitStack) -> list[WorkerProcess]:
    """Start workers before the engine opens. They end with the stack, and wait for ``WorkerPool.serve``."""
    workers = []
    for _ in range(count):
        workers.append(WorkerProcess(bound, forked=sys.platform == "linux"))
        stack.callback(workers[-1].end)
    return workers


def _spawn(connection: int, bound: int, level: int) -> "subprocess.Popen[bytes]":
    # -P: a file of the working directory must not stand in for a module.
    command = [sys.executable, "-P", "-m", "jobmeter.server.workers.main", *map(str, (connection, bound, level))]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=(connection, bound))


def _fork(connection: int, bound: int, level: int) -> ForkedProcess:
    pid = os.fork()
    if pid:
        return ForkedProcess(pid)
    status = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        _close_others((*_STANDARD, connection, bound))
        from jobmeter.server.workers.main import run  # noqa: PLC0415 - it replaces modules of this process

        run(connection, bound, level)
        status = 0
    except BaseException:  # noqa: BLE001 - what follows in this process belongs to the server
        traceback.print_exc()
    finally:
        logging.shutdown()
        os._exit(status)


def _close_others(descriptors: Iterable[int]) -> None:
    """Close every other descriptor, such as the lock of the data folder. Standard input is empty from now on."""
    for before, after in pairwise((*sorted(descriptors), os.sysconf("SC_OPEN_MAX"))):
        os.closerange(before + 1, after)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
