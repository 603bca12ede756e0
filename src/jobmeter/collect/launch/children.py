"""Start the replicas of a job, pass signals on to them, and wait for them and their orphans."""

import ctypes
import logging
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from jobmeter.collect import files
from jobmeter.collect.cgroup.paths import UNIFIED, Groups, Hierarchies, read_groups
from jobmeter.collect.process.stat import Key, read_stat

PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
LAST_SECONDS = 0.03
_SENT_BY_KERNEL = 0x80
_PR_SET_CHILD_SUBREAPER = 36
_OWNER = re.compile(r"jobmeter-.+-(\d+)-(\d+)")
"""Name of a run's group. It ends with the number and the start of the run's own process."""
_log = logging.getLogger(__name__)


class OwnGroups:
    """Group of each replica below the groups of this process, named after the job and this process.

    Empty groups that an earlier run left are removed. ``problem`` is the reason why no group counts CPU time, empty if
    one does.
    """

    def __init__(self, job: str, replicas: Sequence[str], hierarchies: Hierarchies, proc_root: str = "/proc") -> None:
        self._hierarchies = hierarchies
        self._proc = proc_root
        self._made: list[Path] = []
        self.paths: dict[str, Groups] = {}
        """Groups that could be created, by replica."""
        self.problem = "no control groups are mounted"
        own = self._own = read_groups(proc_root, os.getpid()) or {}
        stat = read_stat(proc_root, os.getpid())
        key = stat.key if stat else Key(os.getpid(), 0)
        # Beside version 1, the group of version 2 counts only pressure.
        self._counts_cpu = UNIFIED if hierarchies.find_top("memory") is None else "cpuacct"
        for controller in (UNIFIED,) if self._counts_cpu == UNIFIED else (UNIFIED, "memory", "cpuacct"):
            if controller in own:
                above = own[controller].rstrip("/")
                self._sweep(controller, above)
                problem = self._make(controller, f"{above}/jobmeter-{job}-{key.pid}-{key.start}", replicas)
                self.problem = problem if controller == self._counts_cpu else self.problem

    def list_entries(self, replica: str) -> list[str]:
        """Return the files into which a process writes its number to enter the groups of a replica."""
        directories = (
            self._hierarchies.find_directory(controller, path)
            for controller, path in self.paths.get(replica, {}).items()
        )
        return [f"{directory}/cgroup.procs" for directory in directories if directory]

    def find_entered(self, replica: str, pid: int) -> Groups:
        """Return the groups of a replica that contain the process."""
        found = read_groups(self._proc, pid) or {}
        entered = {name: path for name, path in self.paths.get(replica, {}).items() if found.get(name) == path}
        if not self.problem and self._counts_cpu not in entered:
            self.problem = "the control group could not be entered"
        return entered

    def find_replica(self, pid: int) -> tuple[str, bool] | None:
        """Return the replica of a process, which may have ended, by its groups, and True if it is in them.

        A process in the groups of this process was started by this process: None. Outside both, a process belongs to
        the only replica; None if there are several.
        """
        found = read_groups(self._proc, pid) or {}
        for replica, paths in self.paths.items():
            if any(f"{found.get(name, '')}/".startswith(f"{path}/") for name, path in paths.items()):
                return replica, True
        if len(self.paths) != 1:
            return None
        ((replica, paths),) = self.paths.items()
        left = any(found.get(name, self._own[name]) != self._own[name] for name in paths)
        return (replica, False) if left else None

    def list_remaining(self) -> set[int]:
        """Return the processes that are still in the groups."""
        return {int(word) for folder in self._made for word in (files.read(f"{folder}/cgroup.procs") or b"").split()}

    def remove(self) -> None:
        """Remove the groups. A later run removes a group that still has processes."""
        for directory in reversed(self._made):
            _remove(directory)

    def _sweep(self, controller: str, above: str) -> None:
        directory = self._hierarchies.find_directory(controller, above)
        if directory is None:
            return
        for folder in Path(directory).glob("jobmeter-*"):
            owner = _OWNER.fullmatch(folder.name)
            if owner is None:
                continue
            stat = read_stat(self._proc, int(owner[1]))
            if stat is None or stat.key.start != int(owner[2]):
                for inner in [*folder.glob("*/"), folder]:
                    _remove(inner)

    def _make(self, controller: str, path: str, replicas: Sequence[str]) -> str:
        """Create the groups. Return the reason of a failure, else an empty text."""
        for replica in ("", *replicas):
            directory = self._hierarchies.find_directory(controller, f"{path}/{replica}".rstrip("/"))
            if directory is None:
                return "the control group of this process is not visible here"
            try:
                Path(directory).mkdir()
            except OSError as error:
                return error.strerror or str(error)
            self._made.append(Path(directory))
            if replica:
                self.paths.setdefault(replica, {})[controller] = f"{path}/{replica}"
        return ""


def _remove(directory: Path) -> None:
    try:
        directory.rmdir()
    except OSError as error:
        _log.debug("a control group stays: %s", error)


def enter(entries: Sequence[str]) -> None:
    """Put the calling process into groups, as far as possible. Runs between fork and exec."""
    for entry in entries:
        try:
            descriptor = os.open(entry, os.O_WRONLY)
        except OSError:
            continue
        try:
            os.write(descriptor, b"0")
        except OSError:
            continue
        finally:
            os.close(descriptor)


@dataclass(frozen=True, slots=True)
class ChildExit:
    """Process that was waited for. ``status`` is as a shell shows it, 128 + n for signal n."""

    pid: int
    status: int
    cpu_seconds: float
    memory_peak: float


class Children:
    """Processes started by ``jobmeter run``. For the main thread.

    From its creation on, signals to pass on and signals of ended children are blocked in this thread and in threads
    that it starts; ``wait`` takes them.
    """

    def __init__(self) -> None:
        self.signals: list[int] = []
        """Signals that were passed on, in order."""
        self._running: set[int] = set()
        self._own_group = not _has_terminal()
        self._late: list[int] = []
        # A signal that the caller ignores (nohup) stays ignored, here and in the replicas.
        self._passed = [number for number in PASSED_ON if signal.getsignal(number) is not signal.SIG_IGN]
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for number in self._passed:
            signal.signal(number, lambda caught, _frame: self._late.append(caught))
        self.resized: Callable[[], object] = lambda: None
        """Function that gives the replicas the new size of the terminal."""
        self._waited = [*self._passed, signal.SIGCHLD, signal.SIGWINCH]
        self._before = signal.pthread_sigmask(signal.SIG_BLOCK, self._waited)
        _adopt_orphans()

    @property
    def running(self) -> frozenset[int]:
        """First processes of the replicas that have not ended."""
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
        """Start one replica in the control groups whose files are ``entries``. Return its process number.

        ``with_input`` passes our standard input, which only one replica can read. ``output`` has descriptors for
        ``stdout`` and ``stderr`` in place of ours. Raises OSError if the command cannot be executed.
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
    def unblock_signals(self) -> Iterator[None]:
        """Let the calling thread start other processes, which would inherit the blocked signals."""
        blocked = signal.pthread_sigmask(signal.SIG_SETMASK, self._before)
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)

    def wait(self, timeout: float, ending: Callable[[int], None]) -> list[ChildExit]:
        """Pass on signals until a process ended or ``timeout`` seconds are over. Return the ended processes.

        ``ending`` is called with the number of each process before it disappears from /proc.
        """
        found = signal.sigtimedwait(self._waited, timeout)
        if found is not None and found.si_signo == signal.SIGWINCH:
            # The replicas got the terminal's signal too, but maybe before their own terminals had the new size.
            self.resized()
            self.send(signal.SIGWINCH)
        elif found is not None and found.si_signo != signal.SIGCHLD:
            # A signal of the terminal has reached the replicas, because they are in its foreground group.
            self._pass_on(found.si_signo, by_terminal=found.si_code == _SENT_BY_KERNEL)
        while self._late:
            number = self._late.pop(0)
            self._pass_on(number, by_terminal=number in {signal.SIGINT, signal.SIGQUIT})
        return self._reap(ending)

    def wait_for_orphans(self, ending: Callable[[int], None]) -> list[ChildExit]:
        """Return the processes that end together with the last replica, within ``LAST_SECONDS``.

        A process closes its files, for which a replica may have waited, a moment before it can be waited for.
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
    """Return True if this process has a controlling terminal, whose job control works on its process group."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True


def _adopt_orphans() -> None:
    """Become the parent of orphaned grandchildren, so that they stay in the measured tree."""
    try:
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    except (OSError, AttributeError) as error:
        _log.debug("orphans of the job cannot be adopted: %s", error)
