"""Starts the replicas of a job, passes signals on to them, and waits for them and for their orphans."""

import ctypes
import logging
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jobmeter.collect.launch.groups import enter

if TYPE_CHECKING:
    from collections.abc import Iterator

PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
LAST_SECONDS = 0.03
_SENT_BY_KERNEL = 0x80
_PR_SET_CHILD_SUBREAPER = 36

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ChildExit:
    """A process that was waited for: ``status`` as a shell shows it, 128 + n for signal n."""

    pid: int
    status: int
    cpu_seconds: float
    memory_peak: float


class Children:
    """Processes started by ``jobmeter run``. Create and use it in the main thread.

    From its creation on, signals to pass on and signals of ended children are blocked in this thread and in threads
    that it starts; ``wait`` takes them.
    """

    def __init__(self) -> None:
        self.signals: list[int] = []
        """Signals that were passed on, in order."""
        self._running: set[int] = set()
        self._own_group = not _has_terminal()
        self._late: list[int] = []
        # A signal that our caller ignores (nohup) stays ignored, here and in the replicas.
        self._passed = [number for number in PASSED_ON if signal.getsignal(number) is not signal.SIG_IGN]
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for number in self._passed:
            signal.signal(number, lambda caught, _frame: self._late.append(caught))
        self.resized: Callable[[], object] = lambda: None
        """Called when the size of the terminal changed; passes it on to the replicas."""
        self._waited = [*self._passed, signal.SIGCHLD, signal.SIGWINCH]
        self._before = signal.pthread_sigmask(signal.SIG_BLOCK, self._waited)
        _adopt_orphans()

    @property
    def running(self) -> frozenset[int]:
        """The replicas' first processes that have not ended."""
        return frozenset(self._running)

    def start(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        entries: Sequence[str],
        *,
        with_input: bool,
        output: Mapping[str, int],
    ) -> int:
        """Start one replica in the control groups whose files are ``entries``. Returns its process number.

        ``with_input`` hands on our standard input, which only one replica can read; ``output`` names descriptors to use
        for ``stdout`` and ``stderr`` instead of ours. Raises OSError when the command cannot be executed.
        """

        def prepare() -> None:
            enter(entries)
            signal.pthread_sigmask(signal.SIG_SETMASK, self._before)

        process = subprocess.Popen(
            list(command),
            env=dict(environment),
            stdin=None if with_input else subprocess.DEVNULL,
            stdout=output.get("stdout"),
            stderr=output.get("stderr"),
            close_fds=False,
            process_group=0 if self._own_group else None,
            preexec_fn=prepare,  # noqa: PLW1509 - it takes no lock that a thread may hold
        )
        process.returncode = 0  # waited for here, with its rusage; Popen has nothing left to do
        self._running.add(process.pid)
        return process.pid

    @contextmanager
    def unblocked(self) -> "Iterator[None]":
        """Let the calling thread start other processes, which would inherit the blocked signals."""
        blocked = signal.pthread_sigmask(signal.SIG_SETMASK, self._before)
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)

    def wait(self, timeout: float, ending: Callable[[int], None]) -> list[ChildExit]:
        """Pass on signals until some process ended or ``timeout`` seconds are over. Returns the ended processes.

        ``ending`` is called with the id of each process before it disappears from /proc.
        """
        found = signal.sigtimedwait(self._waited, timeout)
        if found is not None and found.si_signo == signal.SIGWINCH:
            # The replicas have the terminal's signal too, but may have read the size before theirs had the new one.
            self.resized()
            self.send(signal.SIGWINCH)
        elif found is not None and found.si_signo != signal.SIGCHLD:
            # What the terminal sent to its foreground group has reached the replicas already, they are in it.
            self._pass_on(found.si_signo, by_terminal=found.si_code == _SENT_BY_KERNEL)
        while self._late:
            number = self._late.pop(0)
            self._pass_on(number, by_terminal=number in {signal.SIGINT, signal.SIGQUIT})
        return self._reap(ending)

    def wait_for_orphans(self, ending: Callable[[int], None]) -> list[ChildExit]:
        """Return the processes that end together with the last replica, within ``LAST_SECONDS``.

        A process closes its files, for whose end a replica may have waited, a moment before it can be waited for.
        """
        ended: list[ChildExit] = []
        deadline = time.monotonic() + LAST_SECONDS
        while _has_children() and (left := deadline - time.monotonic()) > 0:
            ended += self.wait(left, ending)
        return ended

    def send(self, number: int) -> None:
        """Send a signal to every running replica.

        Terminating signals go to all processes of a replica, so that a shell does not leave its program behind.
        """
        for pid in self._running:
            try:
                if self._own_group and number not in {signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH}:
                    os.killpg(pid, number)
                else:
                    os.kill(pid, number)
            except ProcessLookupError:
                continue

    def _pass_on(self, number: int, *, by_terminal: bool) -> None:
        self.signals.append(number)
        if self._own_group or not by_terminal:
            self.send(number)

    def _reap(self, ending: Callable[[int], None]) -> list[ChildExit]:
        ended: list[ChildExit] = []
        while True:
            try:
                waiting = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
                if waiting is None:
                    return ended
                ending(waiting.si_pid)
                pid, status, used = os.wait4(waiting.si_pid, os.WNOHANG)
            except ChildProcessError:
                return ended
            if pid:
                self._running.discard(pid)
                code = os.waitstatus_to_exitcode(status)
                ended.append(
                    ChildExit(
                        pid, code if code >= 0 else 128 - code, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024.0
                    )
                )


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _has_terminal() -> bool:
    """True when this process has a controlling terminal: then job control there works on its process group."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True


def _adopt_orphans() -> None:
    """Become the parent of grandchildren whose parent ends, so that they stay in the measured tree."""
    try:
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    except (OSError, AttributeError) as error:
        _log.debug("orphans of the job cannot be adopted: %s", error)
