"""Receive datagrams on a Unix socket, with the process number of each sender from the kernel.

``SO_PASSCRED`` (unix(7)) attaches the sender's process number, as this process's namespace numbers it: no sender can
claim another one. A process outside this namespace has the number 0. Only root with CAP_SYS_ADMIN may send another
number.
"""

import contextlib
import logging
import os
import secrets
import select
import socket
import stat
import struct
from collections.abc import Callable
from pathlib import Path
from threading import Thread

from jobmeter.collect.budget import MeasuringBudget
from jobmeter.collect.reports.settings import BURST_SECONDS, SHARE
from jobmeter.errors import ConflictError
from jobmeter.wire.program import places

_CREDENTIALS = struct.Struct("3i")
_ANCILLARY = socket.CMSG_SPACE(_CREDENTIALS.size)
_LONGEST = 65_536
_BUFFER = 4 * 2**20
"""Bytes of the kernel's buffer that are requested."""
_LAST_READS = 1_000

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


class DatagramSocket:
    """Socket and the thread that reads from it. ``take`` gets each sender's process number and bytes.

    Raises OSError if the socket cannot be made, ConflictError if another process receives there.
    """

    def __init__(self, place: str, take: Callable[[int, bytes], None], budget: MeasuringBudget | None = None) -> None:
        """``place`` is a value of ``JOBMETER_SOCKET``. ``budget`` bounds the CPU time; the default is ``SHARE``.

        While the budget is overdrawn nothing is read. The kernel's queue fills, and senders count what they cannot
        send.
        """
        self._budget = budget or MeasuringBudget(SHARE, BURST_SECONDS)
        self.place = place
        self._take = take
        self._address = places.make_address(place)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
            self._bind()
        except BaseException:
            self._socket.close()
            raise
        self._reader, self._writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._thread = Thread(target=self._run, name="program reports", daemon=True)

    def start(self) -> None:
        """Begin to receive."""
        self._thread.start()

    def stop(self) -> None:
        """Take what has arrived, and remove the socket."""
        os.write(self._writer, b"x")
        if self._thread.ident is not None:
            self._thread.join(timeout=5.0)
        for descriptor in (self._reader, self._writer):
            os.close(descriptor)
        self._socket.close()
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
        try:
            data, ancillary, _, _ = self._socket.recvmsg(_LONGEST, _ANCILLARY, socket.MSG_DONTWAIT)
        except OSError:
            return False
        for level, kind, content in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS) and len(content) >= _CREDENTIALS.size:
                process = _CREDENTIALS.unpack_from(content)[0]
                break
        else:
            process = 0
        try:
            self._take(process, data)
        except Exception:  # noqa: BLE001 - a message must not stop the others
            _log.exception("a message of process %d cannot be taken", process)
        return True
