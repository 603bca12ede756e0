"""Agreement of the servers that use one ClickHouse node: which one acknowledges from its journal.

- The *leader* acknowledges samples once they are in its journal and in the memory of each follower. It answers from
  memory, and it alone inserts samples into the node. A leader without followers is *alone*.
- A *follower* has a copy of every sample that the node lacks. It sends samples to the leader, and answers from memory.
- A *direct* server, among other direct ones, acknowledges samples once the node has them, and reads the node.
- An *idle* server neither acknowledges nor answers.

The rules, and why no answer lacks an acknowledged sample and none is lost:

- A server writes its row, then reads the rows of the others. Each statement sees all earlier ones, so of two servers
  at least one sees the other. To lead, a server writes ``journals`` and reads again: all others must be idle. Before a
  server is direct, it writes so and reads again: nobody may have ``journals``.
- A server that starts beside a leader joins it as a follower. If it cannot reach the leader, its row loses its
  ``peer``. The leader then inserts its journal into the node and clears ``journals``, and all servers become direct.
- Leader and follower ask each other twice a second for a sign of life. Answers count for ``FENCE_SECONDS`` after the
  last question to which the other one replied, and are refused later. The leader signs only while its own answers
  count.
- The leader drops a silent follower: it writes ``EXPELLED``, reads that it is not expelled itself, and waits until the
  follower's answers do not count. A follower succeeds a silent leader by the same steps. Of two servers that expel each
  other at least one sees it. So a leader that lost its followers acknowledges nothing, and one of them succeeds it.
- The follower with the lowest number inserts its copies into the node and writes ``SUCCEEDED``, which voids the old
  leader's journal. Then one of the servers leads.
- Copies or a journal are inserted once the former leader is expelled, so that the engine refuses its inserts, and once
  those that the engine has begun have ended. So no late insert replaces newer values.
- A leader that died without followers left samples in its folder. Its next start inserts them. So does any server that
  reaches the folder and gets its lock, which a living process holds.
- The others expel a server whose beat in the table has not changed, except the leader.
"""

import logging
import secrets
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from jobmeter.errors import JobmeterError, UnavailableError
from jobmeter.model.time import read_clock
from jobmeter.store.clickhouse.journal_owner import (
    discard_journals,
    has_ended,
    read_owner,
    recover_ended,
    write_owner,
)
from jobmeter.store.clickhouse.roles import Duties, Joining, ServerPeers, ServerRole, describe_role
from jobmeter.store.clickhouse.servers import (
    DEPARTED,
    DIRECT,
    FOLLOWING,
    IDLE,
    LIVE,
    SUCCEEDED,
    SUCCESSION,
    UNCONFIRMED,
    ServerRow,
    ServerRows,
    describe_apart,
    describe_missing,
    describe_unreachable,
)
from jobmeter.store.clickhouse.silence import (
    FENCE_SECONDS,
    SUSPECT_SECONDS,
    SilentServers,
    drop_silent,
    find_fence,
    is_live,
)

_log = logging.getLogger(__name__)
TICK_SECONDS = 1.0
SUCCEED_SECONDS = FENCE_SECONDS + 1.5
"""Seconds after its last sign to the leader after which a follower succeeds a leader that it cannot reach."""
UNREACHABLE_SECONDS = 10.0
"""Seconds for which a server tries to reach a leader before it asks for direct use of the engine."""
_CLAIM_SECONDS, _CLAIM_AGAIN_SECONDS = 5.0, 30.0
JOIN_SECONDS = 30.0
"""Seconds for which a start waits for the journal of another server."""
_JOIN_AGAIN_SECONDS = 0.25
_RETRY_AFTER_MS = 1_000


class NodeMembership:
    """Membership of one server in the agreement: ``join`` at the start, then ``tick`` on a thread."""

    def __init__(
        self,
        table: ServerRows,
        duties: Duties,
        folder: Path | None,
        now: Callable[[], float] | None = None,
        *,
        peers: ServerPeers | None = None,
        shares: bool = True,
        direct: bool = True,
    ) -> None:
        """``folder`` has the journal; None for a server without a journal, which never leads.

        Without ``peers`` others cannot reach this server. Without ``shares`` no other server may use the engine.
        Without ``direct`` only a leader writes: a server that cannot follow it is idle.
        """
        self._table = table
        self._duties = duties
        self._folder = folder
        self._now = now or read_clock
        self._peers = None if folder is None else peers
        self._shares = shares
        self._direct = direct
        self._row = self._make_row()
        self._confirmed = float("-inf")
        self._silence = SilentServers(table, self._now)
        self._answered = float("-inf")  # the last sign to the former leader
        self._unreachable: dict[int, float] = {}  # leaders that cannot be reached, each with the time of the first try
        self._claimed = float("-inf")
        self._claims = False
        self._owes = False  # the journal may have samples that the engine lacks
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def role(self) -> str:
        """Role of this server among the servers of the engine, as a phrase for operators."""
        return describe_role(self._duties.role, 0 if self._peers is None else len(self._peers.list_followers()))

    @property
    def number(self) -> int:
        """Number of this server in the table, until it is expelled."""
        return self._row.id

    def appear(self) -> None:
        """Write that this server lives and does not use its journal."""
        self._write(journals=self._claims or self._owes)

    def join(self, seconds: float = JOIN_SECONDS, *, discard: bool = False) -> None:
        """Return when this server has a role, and so every sample that any server acknowledged.

        Waits for a leader, and recovers the journals of dead ones where their folders can be reached. ``discard`` gives
        up the journals that are still missing after ``seconds``: a running server has inserted its journal by then.
        Raises UnavailableError naming the server that has the journal.
        """
        before = 0 if self._folder is None else read_owner(self._folder)
        self.appear()
        deadline = self._now() + seconds
        while not self._recover_own(before):
            if self._now() >= deadline:
                self._write(state=DEPARTED)
                raise UnavailableError(SUCCESSION)
            self._over.wait(_JOIN_AGAIN_SECONDS)
            self.appear()
        with suppress(JobmeterError):
            self._table.forget_old()
        self.tick()
        while self._duties.role is ServerRole.IDLE:
            if self._now() >= deadline:
                left = self._find_journals(self._table.read())
                if left and not discard:
                    self._write(state=DEPARTED)
                    raise UnavailableError(describe_missing(left, hands_over=self._direct))
                discard_journals(left, self._table)
                self.tick()
                break
            self._over.wait(_JOIN_AGAIN_SECONDS)
            self.tick()

    def start(self) -> None:
        """Start the thread that ticks."""
        self._thread = threading.Thread(target=self._run, name="jobmeter-membership", daemon=True)
        self._thread.start()

    def tick(self) -> None:
        """Read the table of servers once, and change the role if servers came or went."""
        began = self._now()
        if self._duties.role is not ServerRole.LEADER:
            self.appear()
        rows = self._table.read()
        if not is_live(rows, self.number):
            self._rejoin(rows)
            return
        others = [one for one in rows if one.id != self.number]
        if self._duties.role is ServerRole.LEADER:
            self._tick_leader(others)
        elif self._duties.role is ServerRole.FOLLOWER:
            self._tick_follower(others)
        elif self._row.leader:
            self._tick_successor(others)
        elif self._find_journals(others):
            self._tick_idle(others)
        else:
            self._tick_direct(others, began)

    def check(self) -> None:
        """Raise UnavailableError if earlier reads and writes may not count, because others expelled this server.

        Call ``check`` after the work, before its result is used. The thread that ticks is never refused: by it a server
        without a role inserts samples.
        """
        if self._shares and threading.current_thread() is not self._thread and not self.is_current():
            raise UnavailableError(UNCONFIRMED, _RETRY_AFTER_MS)

    def is_current(self) -> bool:
        """Return True if this server sees every sample that was acknowledged before the call."""
        return self.get_valid_until() >= self._now()

    def get_valid_until(self) -> float:
        """Return the time until which this server sees every sample that was acknowledged, if its role stays."""
        if self._duties.role is ServerRole.DIRECT:
            return self._confirmed + FENCE_SECONDS
        return find_fence(self._duties.role, self._peers, self._now())

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
        while not self._over.wait(TICK_SECONDS if self._duties.role is not ServerRole.IDLE else _JOIN_AGAIN_SECONDS):
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
        place = "" if self._peers is None else self._peers.place
        return ServerRow(secrets.randbits(63) or 1, host=socket.gethostname(), folder=folder, peer=place)

    def _write(self, **changes: object) -> None:
        # The number first: a write that failed may have been stored.
        self._row = replace(self._row, beat=self._row.beat + 1)
        row = replace(self._row, **changes)
        self._table.write(row)
        self._row = replace(row, state=LIVE)

    def list_others(self) -> Sequence[ServerRow]:
        """Return the rows of the other servers that have neither stopped nor been expelled."""
        return [one for one in self._table.read() if one.id != self.number and one.state == LIVE]

    def _find_journals(self, rows: Sequence[ServerRow]) -> Sequence[ServerRow]:
        """Return the other servers that may have acknowledged samples that the engine lacks."""
        return [one for one in rows if one.id != self.number and one.journals]

    def _recover_own(self, before: int) -> bool:
        """Recover the journal in this server's folder. Return False while its followers may do so."""
        if self._folder is None:
            return True
        state = self._table.get_state(before) if before else DEPARTED
        if state == SUCCEEDED:
            self._duties.void()
        elif state < DEPARTED:
            row = next((one for one in self._table.read() if one.id == before), ServerRow(before))
            has_ended = self._table.expel(replace(row, state=state))  # its followers need not wait
            if self._has_successors(row) or not has_ended:
                return False
        self._duties.recover(self._folder)
        if before and state < DEPARTED:
            self._table.write(ServerRow(before, beat=1, state=DEPARTED))
        write_owner(self._folder, self.number)
        return True

    def _has_successors(self, row: ServerRow) -> bool:
        followers = [one for one in self.list_others() if one.leader == row.id]
        self._silence.expel(followers)
        return bool(followers)

    def _rejoin(self, rows: Sequence[ServerRow]) -> None:
        """Begin again under another number: the others have expelled this server."""
        if self._owes:
            if self._peers is not None:
                self._peers.refuse()
            self._duties.be_idle()
            state = self._table.get_state(self.number)
            if state == SUCCEEDED:
                self._duties.void()
            elif any(one.leader == self.number and one.state == LIVE for one in rows):
                return  # a follower inserts the samples
            elif not self._direct and self._find_journals(rows):
                _log.error("another server leads, and the samples of this server's journal were given up")
                self._duties.void()
            else:
                self._duties.be_among_others()
                if state < DEPARTED:
                    self._table.write(replace(self._row, beat=self._row.beat + 1, state=DEPARTED, journals=False))
            self._owes = False
        _log.warning("other servers took this one for dead: it joins them again")
        self._stop_following()
        if self._peers is not None:
            for one in self._peers.list_followers():
                self._peers.drop(one.server)
        self._duties.drop_copies()
        row = self._make_row()
        if self._folder is not None:
            write_owner(self._folder, row.id)  # first: a row whose number no folder has would never be recovered
        self._row, self._claims = row, False
        self.appear()

    def _tick_leader(self, others: Sequence[ServerRow]) -> None:
        living = [one for one in others if one.state == LIVE]
        if not self._shares:
            return
        if self._direct and any(not one.peer or self._peers is None for one in living):
            self._leave_lead(others)
            return
        if self._peers is None:
            return
        if living:
            self._duties.note_alone(alone=False)
        self._peers.welcome(frozenset(one.id for one in living))
        if drop_silent(self._peers, self._table, others, self._row.id, self._now):
            members = {one.server for one in self._peers.list_followers()}
            self._silence.expel([one for one in living if one.id not in members])
            self._silence.await_expelled(others)
            if not others and not members:
                self._duties.note_alone(alone=True)

    def _leave_lead(self, others: Sequence[ServerRow]) -> None:
        if self._peers is not None:
            self._peers.refuse()
            if (
                not drop_silent(self._peers, self._table, others, self._row.id, self._now)
                or self._peers.list_followers()
            ):
                return
        self._confirmed = self._now()
        self._duties.be_among_others()
        self._confirmed = self._now()  # until here no other server could work
        self._owes = False
        self._write(journals=False, phase=DIRECT)
        _log.info("another server uses the telemetry engine: samples are acknowledged by the engine from now on")
        if self._peers is not None:
            _log.warning("%s", describe_apart([one for one in others if one.state == LIVE and not one.peer]))

    def _tick_follower(self, others: Sequence[ServerRow]) -> None:
        row = next((one for one in others if one.id == self._row.leader), None)
        link = None if self._peers is None else self._peers.leader
        is_new = link is not None and not link.is_closed and self._now() - link.since < SUSPECT_SECONDS
        if row is None or row.state != LIVE or not (is_new or self.is_current()):
            self._answered = self._stop_following()
            self._write(phase=IDLE)
            self._tick_successor(others)

    def _stop_following(self) -> float:
        """Answer nothing from now on. Return the time of the last sign to the leader."""
        answered = float("-inf")
        if self._duties.role is not ServerRole.IDLE:
            self._duties.be_idle()
        if self._peers is not None:
            link = self._peers.leader
            answered = answered if link is None else max(link.answered, link.since)
            self._peers.leave()
        return answered

    def _tick_successor(self, others: Sequence[ServerRow]) -> None:
        """Insert the copies if the leader is dead and no other follower has a lower number."""
        former = self._row.leader
        state = self._table.get_state(former)
        if state >= DEPARTED:
            self._resign()
            return
        row = next((one for one in others if one.id == former), ServerRow(former))
        if state == LIVE and not has_ended(row) and self._now() <= self._answered + SUCCEED_SECONDS:
            self._try_to_follow(row)
            return
        is_quiet = self._table.expel(replace(row, state=state))
        rows = self._table.read()
        if not is_live(rows, self.number):
            return  # the next tick joins again
        followed = [one for one in rows if one.leader == former]
        candidates = [one for one in followed if one.state == LIVE]
        self._silence.expel([one for one in candidates if one.id != self.number])
        is_quiet &= not any(self._table.is_inserting(one.id) for one in followed if one.state != LIVE)
        if not is_quiet or min(one.id for one in candidates) != self.number:
            return  # late rows would replace newer ones
        self._duties.insert_copies()
        self._table.write(replace(row, beat=row.beat + 2, state=SUCCEEDED, journals=False))
        _log.warning("server %s (%s) has ended: this one inserted its acknowledged samples", row.host, row.folder)
        self._resign()

    def _resign(self) -> None:
        """Give up the copies of the former leader."""
        self._write(phase=IDLE, leader=0)
        self._duties.drop_copies()

    def _try_to_follow(self, row: ServerRow) -> bool:
        if self._peers is None or not row.peer or not self._row.peer:
            return False
        found = self._peers.follow(row, self.number, self._resign if self._row.leader else lambda: None)
        if found is Joining.FOLLOWS:
            self._unreachable.clear()
            self._write(phase=FOLLOWING, leader=row.id)
            rows = self._table.read()
            if is_live(rows, self.number) and any(one.id == row.id and one.state == LIVE for one in rows):
                self._duties.note_alone(alone=False)
                self._duties.follow()
                _log.info(
                    "this server follows %s (%s): samples go to its journal, and are copied here", row.host, row.folder
                )
                return True
            self._answered = self._stop_following()
            self._write(phase=IDLE)
        elif found is Joining.REFUSED:
            self._unreachable.pop(row.id, None)
            if self._row.leader:
                self._resign()
        elif self._now() - self._unreachable.setdefault(row.id, self._now()) > UNREACHABLE_SECONDS:
            self._unreachable[row.id] = float("inf")
            if self._direct:
                _log.warning("%s", describe_apart([row]))
                self._write(peer="")
            else:
                _log.warning("%s", describe_unreachable([row]))
        return False

    def _tick_idle(self, others: Sequence[ServerRow]) -> None:
        """Follow the leader, or recover the journal of a dead one."""
        if self._duties.role is not ServerRole.IDLE or self._claims or self._row.phase != IDLE:
            self._duties.be_idle()
            self._claims = False
            self._write(phase=IDLE, journals=False)
        for row in self._find_journals(others):
            if row.state == LIVE and self._try_to_follow(row):
                return
            if not self._has_successors(row):
                recover_ended(row, self._table, self._duties)
        if not self._find_journals(self._table.read()):
            self.tick()

    def _tick_direct(self, others: Sequence[ServerRow], began: float) -> None:
        if self._direct and (self._duties.role is not ServerRole.DIRECT or self._row.phase != DIRECT):
            self._write(phase=DIRECT)
            rows = self._table.read()
            if not is_live(rows, self.number) or self._find_journals(rows):
                self._write(phase=IDLE)
                return
            self._duties.be_among_others()
            others = [one for one in rows if one.id != self.number]
        self._confirmed = began
        living = [one for one in others if one.state == LIVE]
        self._silence.expel(living)
        self._silence.await_expelled(others)
        if self._folder is not None and self._now() >= self._silence.waits_until and self._may_claim(living):
            self._try_lead()

    def _may_claim(self, living: Sequence[ServerRow]) -> bool:
        """Return True if this server is alone, or if all reach each other and its number is the lowest."""
        if not living or self._claims:
            return True
        reachable = [one for one in (self._row, *living) if one.peer]
        if self._direct and len(reachable) <= len(living):
            return False
        first = min(one.id for one in reachable or (self._row, *living))
        return self.number == first and self._now() - self._claimed > _CLAIM_AGAIN_SECONDS

    def _try_lead(self) -> None:
        if not self._claims:
            self._claimed = self._now()
        place = "" if self._peers is None else self._peers.place
        self._write(journals=True, peer=place)
        rows = self._table.read()
        others = [one for one in rows if one.id != self.number]
        living = [one for one in others if one.state == LIVE]
        able = is_live(rows, self.number) and not self._find_journals(rows)
        able &= not self._direct or all(one.peer and place for one in living)
        if able and all(one.phase == IDLE for one in living):
            self._claims, self._owes = False, True
            self._claimed = float("-inf")
            self._duties.lead()
            self._duties.note_alone(alone=not others)
            _log.info("this server leads: samples are acknowledged by its journal from now on")
            return
        self._claims = able and self._now() - self._claimed < _CLAIM_SECONDS
        if not self._claims:
            self.appear()
