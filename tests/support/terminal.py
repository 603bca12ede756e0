"""Runs a command in a real pseudo-terminal of a given size, and keeps its screen."""

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from contextlib import suppress

import pyte

from tests.support.waiting import SECONDS


class Terminal:
    """``jobmeter`` on its own terminal. It keeps the longest screen and the lines that scrolled out of it."""

    def __init__(self, columns: int, rows: int, *arguments: str, **environment: str) -> None:
        self.screen = pyte.HistoryScreen(columns, rows, history=10_000)
        self.written = b""
        """All bytes that reached the terminal."""
        self._stream = pyte.ByteStream(self.screen)
        self._master, own = pty.openpty()
        fcntl.ioctl(own, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        given = {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "LINES", "NO_COLOR"}}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "jobmeter", *arguments],
            stdin=own, stdout=own, stderr=own, env={**given, "TERM": "xterm-256color", **environment},
            start_new_session=True,
        )  # fmt: skip
        os.close(own)
        self._waiting = select.poll()  # `select` refuses descriptors above 1023, which a long test run has
        self._waiting.register(self._master, select.POLLIN)

    def read(self, until: Callable[[], bool] = lambda: False) -> None:
        """Read output until the condition is true or the output ends."""
        while not until():
            assert self._waiting.poll(1000 * SECONDS), "nothing more was written"
            try:
                written = os.read(self._master, 65_536)
            except OSError:  # a pseudo-terminal raises this at its end
                return
            if not written:
                return
            self.written += written
            self._stream.feed(written)

    def press(self, keys: str) -> None:
        """Type keys."""
        os.write(self._master, keys.encode())

    @property
    def lines(self) -> list[str]:
        """Return the scrolled-out and the visible lines without trailing blanks."""
        past = ["".join(line[at].data for at in range(self.screen.columns)) for line in self.screen.history.top]
        return [line.rstrip() for line in (*past, *self.screen.display)]

    def hang_up(self) -> None:
        """Close the terminal without a signal to the program."""
        os.close(self._master)

    def close(self) -> int:
        """Return the exit status. Kill a process that still runs."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(10)
        if self.process.poll() is None:
            self.process.kill()
        os.close(self._master)
        return self.process.wait()
