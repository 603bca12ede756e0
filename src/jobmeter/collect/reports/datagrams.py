"""Receive datagrams of programs, with the process number of each sender.

On a Unix socket the kernel attaches the sender's process number (``SO_PASSCRED``, unix(7)), as this process's namespace
numbers it: no sender can claim another one. A process outside this namespace has the number 0. Only root with
CAP_SYS_ADMIN may send another number.
"""

import contextlib
import logging
import os
import secrets
import select
import socket
import stat
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Thread
from typing import Any

from jobmeter.collect.budget import MeasuringBudget
from jobmeter.collect.reports.settings import BURST_SECONDS, SHARE
from jobmeter.errors import ConflictError
from jobmeter.wire.program import places

_CREDENTIALS = struct.Struct("3i")
_ANCILLARY = socket.CMSG_SPACE(_CREDENTIALS.size)
_LONGEST = 65_536
_BUFFER = 4 * 2**20
"""Bytes of the kernel's buffer that are requested."""
_LAST_READS = 10_000

_log = logging.getLogger(__name__)


def run_socket(process: int) -> str:
    """Return a value of ``JOBMETER_SOCKET`` for a run: a path in the user's folder, else an abstract name."""
    user = os.getuid()
    folder = Path(places.find_own_folder(user))
    try:
        _prepare(folder, user)
    except (OSError, ConflictError) as error:
        _log.debug("the socket of programs gets an abstract name: %s", error)
        return f"@jobmeter-run-{process}-{secrets.token_hex(8)}"
    # Containers that share the folder number their processes alike.
    return str(folder / f"run-{process}-{secrets.token_hex(4)}.sock")


def find_agent_socket() -> str:
    """Return the path of the agent's socket, in the folder of this user. Raises OSError or ConflictError."""
    folder = Path(places.find_own_folder(os.getuid()))
    _prepare(folder, os.getuid())
    return str(folder / places.AGENT_SOCKET)


def _prepare(folder: Path, user: int) -> None:
    with contextlib.suppress(FileExistsError):
        folder.mkdir()
        folder.chmod(0o755)  # whatever the umask is, programs of other users must find the socket
    if not places.is_safe(str(folder), user):
        raise ConflictError(f"the folder {folder} belongs to another user, or others may change it")
    for other in folder.glob("run-*.sock"):
        # A run that was killed leaves its socket.
        with contextlib.suppress(OSError):
            if not _has_receiver(str(other)):
                other.unlink()


def _has_receiver(address: str) -> bool:
    """Return False for a socket that no process reads. Raises OSError if that cannot be known."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(address)
        except ConnectionRefusedError:
            return False
    return True


class DatagramReceiver:
    """Datagram socket and the thread that reads it. ``take`` gets each sender's process number and bytes.

    A subclass binds the socket and finds the process, 0 for an unknown one. While the budget is overdrawn nothing is
    read, and the kernel's queue fills.
    """

    def __init__(
        self,
        family: socket.AddressFamily,
        option: int,
        name: str,
        take: Callable[[int, bytes], None],
        budget: MeasuringBudget | None,
    ) -> None:
        """``option`` attaches the ancillary data to each datagram. ``name`` is the thread's. Raises OSError.

        ``budget`` bounds the CPU time; the default is ``SHARE``.
        """
        self._budget = budget or MeasuringBudget(SHARE, BURST_SECONDS)
        self._take = take
        self._socket = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, option, 1)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
            self._bind()
        except BaseException:
            self._socket.close()
            raise
        self._reader, self._writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._thread = Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin to receive."""
        self._thread.start()

    def stop(self) -> None:
        """Take what has arrived, and close the socket."""
        os.write(self._writer, b"x")
        if self._thread.ident is not None:
            self._thread.join(timeout=5.0)
        for descriptor in (self._reader, self._writer):
            os.close(descriptor)
        self._socket.close()

    def _bind(self) -> None:
        raise NotImplementedError

    def _find_sender(self, ancillary: Mapping[int, bytes], sender: Any) -> int:  # noqa: ANN401 - as of the family
        """Return the process number of a sender by its address and by the ancillary data of its datagram."""
        raise NotImplementedError

    def _run(self) -> None:
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        poll.register(self._reader, select.POLLIN)
        while True:
            ready = {descriptor for descriptor, _ in poll.poll()}
            stopping = self._reader in ready
            self._budget.begin()
            for _ in range(_LAST_READS if stopping else 64):
                if not self._read():
                    break
            pause = self._budget.end()
            if stopping:
                return
            if pause:
                select.select([self._reader], [], [], pause)

    def _read(self) -> bool:
        """Read one datagram. False if none waits."""
        try:
            data, ancillary, _, sender = self._socket.recvmsg(_LONGEST, _ANCILLARY, socket.MSG_DONTWAIT)
        except OSError:
            return False
        own = {kind: content for level, kind, content in ancillary if level == socket.SOL_SOCKET}
        try:
            self._take(self._find_sender(own, sender), data)
        except Exception:  # noqa: BLE001 - a message must not stop the others
            _log.exception("a message of a program cannot be taken")
        return True


class DatagramSocket(DatagramReceiver):
    """Unix socket at ``place``, a value of ``JOBMETER_SOCKET``.

    Raises OSError if the socket cannot be made, ConflictError if another process receives there.
    """

    def __init__(self, place: str, take: Callable[[int, bytes], None], budget: MeasuringBudget | None = None) -> None:
        self.place = place
        self._address = places.make_address(place)
        super().__init__(socket.AF_UNIX, socket.SO_PASSCRED, "program reports", take, budget)

    @property
    def environment(self) -> dict[str, str]:
        """Variable by which programs find the socket."""
        return {places.VARIABLE: self.place}

    def stop(self) -> None:
        """Take what has arrived, and remove the socket."""
        super().stop()
        if not self._address.startswith("\0"):
            with contextlib.suppress(OSError):
                Path(self._address).unlink()

    def _bind(self) -> None:
        path = None if self._address.startswith("\0") else Path(self._address)
        if path is not None and path.exists():
            if not stat.S_ISSOCK(path.lstat().st_mode):
                raise ConflictError(f"{path} is no socket: remove it, or name another path")
            if _has_receiver(self._address):
                raise ConflictError(f"another process receives at {path}: stop it, or name another path")
            path.unlink()
        self._socket.bind(self._address)
        if path is not None:
            path.chmod(0o666)  # the kernel says who sends, so that everybody may

    def _find_sender(self, ancillary: Mapping[int, bytes], sender: Any) -> int:  # noqa: ANN401, ARG002
        content = ancillary.get(socket.SCM_CREDENTIALS, b"")
        return int(_CREDENTIALS.unpack_from(content)[0]) if len(content) >= _CREDENTIALS.size else 0
