"""Agreement of the servers that use one ClickHouse node: a server that is alone acknowledges from its journal.

A server is *alone* or *among others*. A server that is alone acknowledges samples once they are in its journal, and
answers from its memory. A server among others acknowledges samples once the node has them, and reads the node.

- A server first writes its row, then reads the others' rows. To be alone it writes ``journals`` and reads again; if it
  then sees another server, it clears ``journals``. Each statement sees all earlier ones, so of two servers at least one
  sees the other.
- A server that starts beside one that is alone neither reads nor writes until the first server has inserted its journal
  into the node and has cleared ``journals``. No time-out replaces this consent. So no answer lacks an acknowledged
  sample, however long a server or the network is frozen.
- A server that died with ``journals`` set left samples in its folder. Its next start on this folder inserts them. So
  does any server that reaches the folder and gets its lock, which a living process holds.
- The others expel a server whose beat has not changed, so that a remaining server can be alone. An expelled server may
  still run. Its answers and receipts count for ``FENCE_SECONDS`` after its last confirmed beat and are refused later;
  the others wait longer than that before one of them is alone.
"""

import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from msgspec.structs import replace

from jobmeter.errors import JobmeterError, UnavailableError
from jobmeter.store.clickhouse.failures import make_unavailable
from jobmeter.store.clickhouse.lock import FolderLock
from jobmeter.store.clickhouse.servers import DEPARTED, EXPELLED, LIVE, ServerRow, ServerTable

_log = logging.getLogger(__name__)
TICK_SECONDS = 1.0
SILENT_SECONDS = 15.0
"""Seconds after which a server among others is expelled if its beat has not changed."""
FENCE_SECONDS = 10.0
"""Seconds for which a server among others answers after its last confirmed beat."""
EXPELLED_SECONDS = 15.0
"""Seconds between the expulsion of a server and the moment at which another may be alone; over ``FENCE_SECONDS``."""
JOIN_SECONDS = 30.0
"""Seconds for which a start waits for the journal of another server."""
_JOIN_AGAIN_SECONDS = 0.25
_RETRY_AFTER_MS = 1_000
_OWNER = "owner"
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Duties(Protocol):
    """The parts of a store that depend on whether its server is alone."""

    @property
    def is_alone(self) -> bool:
        """True while samples are acknowledged from the journal and the memory is trusted."""
        ...

    def be_alone(self) -> None:
        """Acknowledge from the journal and trust the memory from now on."""
        ...

    def be_among_others(self) -> None:
        """Insert the journal into the engine. From now on use neither the journal nor the memory.

        Raises UnavailableError if the engine does not accept the samples; the server is then still alone.
        """
        ...

    def recover(self, folder: Path) -> None:
        """Insert the samples of a journal whose process has ended. Raises UnavailableError if some are left."""
        ...


class NodeMembership:
    """Membership of one server in the agreement: ``join`` at the start, then ``tick`` on a thread."""

    def __init__(
        self,
        table: ServerTable,
        duties: Duties,
        folder: Path | None,
        now: Callable[[], float] = lambda: time.clock_gettime(_CLOCK),
        *,
        shares: bool = True,
    ) -> None:
        """``folder`` has the journal; None for a server without a journal, which is never alone.

        Without ``shares`` no other server may use the engine at the same time.

        ``now`` returns seconds of a clock that goes on while the process or the machine sleeps.
        """
        self._table = table
        self._duties = duties
        self._folder = folder
        self._now = now
        self._shares = shares
        self._row = self._make_row()
        self._confirmed = float("-inf")
        self._beats: dict[int, tuple[int, float]] = {}  # the last beat of each other server, and the time of its change
        self._waits_until = 0.0  # the time until which expelled servers may answer
        self._expelled: set[int] = set()
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def is_alone(self) -> bool:
        """True while this server is alone."""
        return self._duties.is_alone

    @property
    def number(self) -> int:
        """Number of this server in the table, until it is expelled."""
        return self._row.id

    def appear(self) -> None:
        """Write that this server lives and does not use its journal."""
        self._write(journals=False)

    def join(self, seconds: float = JOIN_SECONDS, *, discard: bool = False) -> None:
        """Return when every sample that any server acknowledged is in the engine, or in this server's own journal.

        Waits for a server that is alone, and recovers the journals of dead ones where their folders can be reached.
        ``discard`` gives up the journals that are still missing after ``seconds``: a running server has inserted its
        journal by then. Raises UnavailableError naming the server that has the journal.
        """
        before = self._read_last_id()
        self.appear()
        if self._folder is not None:
            self._duties.recover(self._folder)
            if before:
                self._table.write(ServerRow(before, beat=1, state=DEPARTED))
            _write_owner(self._folder, self.number)
        deadline = self._now() + seconds
        while left := [one for one in self.others() if one.journals and not self._take_over(one)]:
            if self._now() >= deadline:
                if not discard:
                    self._write(state=DEPARTED)
                    raise UnavailableError(_describe_missing(left))
                self._discard(left)
            self._over.wait(_JOIN_AGAIN_SECONDS)
            self.appear()
        with suppress(JobmeterError):
            self._table.forget_old()
        self.tick()

    def start(self) -> None:
        """Start the thread that ticks."""
        self._thread = threading.Thread(target=self._run, name="jobmeter-membership", daemon=True)
        self._thread.start()

    def tick(self) -> None:
        """Read the table of servers once, and change between alone and among others if servers came or went."""
        began = self._now()
        if not self.is_alone:
            self.appear()
        rows = self._table.read()
        if not any(one.id == self.number and one.state == LIVE for one in rows):
            self._rejoin()
            return
        others = [one for one in rows if one.id != self.number]
        living = [one for one in others if one.state == LIVE]
        if self.is_alone:
            if living and self._shares:
                self._leave_alone()
            return
        if any(one.journals for one in living):
            return  # this server was expelled and came back: its time runs out until the other one has consented
        self._confirmed = began
        self._expel(living)
        self._await_expelled([one for one in others if one.state == EXPELLED])
        if not living and self._folder is not None and self._now() >= self._waits_until:
            self._try_alone()

    def check(self) -> None:
        """Raise UnavailableError if earlier reads and writes may not count, because others expelled this server.

        Call ``check`` after the work, before its result is used.
        """
        if self._shares and not self.is_alone and self._now() - self._confirmed > FENCE_SECONDS:
            raise UnavailableError(
                "this server cannot confirm that it sees what other servers store: the telemetry engine did not answer "
                "for some seconds, try again",
                _RETRY_AFTER_MS,
            )

    def stop(self) -> None:
        """End the thread. Without ``depart`` the next start, or another server, recovers the journal."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def depart(self) -> None:
        """Remove this server, whose journal is empty, from the agreement."""
        with suppress(JobmeterError):
            self._write(state=DEPARTED, journals=False)

    def _run(self) -> None:
        failing = False
        while not self._over.wait(TICK_SECONDS):
            try:
                self.tick()
                failing = False
            except JobmeterError as error:
                if not failing:
                    _log.warning("which servers use the telemetry engine is unknown: %s", error.message)
                failing = True
            except Exception:  # noqa: BLE001 - without this thread no other server could start
                _log.exception("which servers use the telemetry engine is unknown")

    def _make_row(self) -> ServerRow:
        folder = "" if self._folder is None else str(self._folder)
        return ServerRow(secrets.randbits(63) or 1, host=socket.gethostname(), folder=folder)

    def _write(self, **changes: object) -> None:
        # The number first: a write that failed may have been stored.
        self._row = replace(self._row, beat=self._row.beat + 1)
        row = replace(self._row, **changes)
        self._table.write(row)
        self._row = replace(row, state=LIVE)

    def _read_last_id(self) -> int:
        """Return the number of the process that used the folder before; 0 for none."""
        if self._folder is None:
            return 0
        try:
            return int((self._folder / _OWNER).read_text())
        except (OSError, ValueError):
            return 0

    def others(self) -> Sequence[ServerRow]:
        """Return the rows of the other servers that have neither stopped nor been expelled."""
        return [one for one in self._table.read() if one.id != self.number and one.state == LIVE]

    def _take_over(self, row: ServerRow) -> bool:
        """Recover the journal of a server that has ended. Return False if its folder is out of reach or in use."""
        folder = Path(row.folder)
        try:
            if not row.folder or int((folder / _OWNER).read_text()) != row.id:
                return False
            lock = FolderLock(folder)
        except (OSError, ValueError, JobmeterError):
            return False
        try:
            self._duties.recover(folder)
        finally:
            lock.release()
        self._table.write(ServerRow(row.id, beat=row.beat + 1, state=DEPARTED))
        _log.warning("the samples in %s, the journal of a server that has ended, are in the engine now", folder)
        return True

    def _discard(self, rows: Sequence[ServerRow]) -> None:
        for row in rows:
            _log.warning("samples of the journal %s on %s are given up", row.folder, row.host)
            self._table.write(ServerRow(row.id, beat=row.beat + 1, state=EXPELLED))

    def _rejoin(self) -> None:
        """Begin again under another number: the others have expelled this server."""
        _log.warning("other servers took this one for dead: it joins them again")
        if self.is_alone:
            self._duties.be_among_others()
        row = self._make_row()
        if self._folder is not None:
            _write_owner(self._folder, row.id)  # first: a row whose number no folder has would never be recovered
        self._row = row
        self.appear()

    def _leave_alone(self) -> None:
        self._confirmed = self._now()
        self._duties.be_among_others()
        self._confirmed = self._now()  # until here no other server could be alone
        self.appear()
        _log.info("another server uses the telemetry engine: samples are acknowledged by the engine from now on")

    def _try_alone(self) -> None:
        self._write(journals=True)
        if self.others():
            self.appear()
            return
        self._duties.be_alone()
        _log.info("no other server uses the telemetry engine: samples are acknowledged by the journal from now on")

    def _expel(self, living: Sequence[ServerRow]) -> None:
        now = self._now()
        before, self._beats = self._beats, {}
        for row in living:
            beat, since = before.get(row.id, (-1, now))
            self._beats[row.id] = (row.beat, since if row.beat == beat else now)
            if now - self._beats[row.id][1] > SILENT_SECONDS:
                _log.warning("server %s (%s) does not answer any more", row.host, row.folder or "no journal")
                self._table.write(replace(row, beat=row.beat + 1, state=EXPELLED))

    def _await_expelled(self, rows: Sequence[ServerRow]) -> None:
        """Wait until no expelled server can answer any more, then remove their rows."""
        fresh = {row.id for row in rows} - self._expelled
        if fresh:
            self._waits_until = self._now() + EXPELLED_SECONDS
        elif rows and self._now() >= self._waits_until:
            for row in rows:
                self._table.write(replace(row, beat=row.beat + 1, state=DEPARTED))
        self._expelled |= fresh


def _write_owner(folder: Path, number: int) -> None:
    """Store durably which process uses a folder."""
    draft = folder / f".{_OWNER}"
    try:
        with draft.open("w") as file:
            file.write(str(number))
            file.flush()
            os.fsync(file.fileno())
        draft.replace(folder / _OWNER)
    except OSError as error:
        raise make_unavailable(str(error), f"write {folder}") from error


def _describe_missing(rows: Sequence[ServerRow]) -> str:
    places = ", ".join(f"{row.folder} on {row.host}" for row in rows)
    return (
        f"another server has samples in its journal that the telemetry engine lacks: {places}. If it runs, it hands "
        "them over within seconds; otherwise start it again, or bring the folder here under the same path. To give "
        "these samples up: jobmeter serve --discard-journals"
    )
