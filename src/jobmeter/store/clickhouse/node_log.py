"""The commit log of a ClickHouse node, by the role of this server: its journal, the leader's journal, or the node."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from time import monotonic

import msgspec
import numpy as np

from jobmeter.errors import JobmeterError, UnavailableError
from jobmeter.model.batch import SampleBatch, SeriesKeys
from jobmeter.model.retention import Retention
from jobmeter.model.time import MAX_TIME_MS, read_clock
from jobmeter.store.clickhouse.catalog import Catalog
from jobmeter.store.clickhouse.commit import CommitLog, DirectInserts, Flusher
from jobmeter.store.clickhouse.followed_rows import FollowedRows, make_batch
from jobmeter.store.clickhouse.journal import Journal, JournalLimits
from jobmeter.store.clickhouse.leader_link import LeaderLink
from jobmeter.store.clickhouse.native import encode
from jobmeter.store.clickhouse.peer_work import LeaderCommands, PeerWork
from jobmeter.store.clickhouse.peers import PeerService
from jobmeter.store.clickhouse.pending import NOTHING, Pending
from jobmeter.store.clickhouse.pool import Pool, accept_all
from jobmeter.store.clickhouse.replica_state import ReplicaSetState
from jobmeter.store.clickhouse.roles import ServerRole
from jobmeter.store.clickhouse.rollup_state import RollupState
from jobmeter.store.clickhouse.rows import JobHour, JournalBlock, SampleRuns
from jobmeter.store.clickhouse.shared_replicas import SharedReplicaSet
from jobmeter.store.clickhouse.write_fence import find_no_fence
from jobmeter.store.mirror import LeaderStore, MirroredMemory

_JOBS = msgspec.msgpack.Decoder(list[str])
_NEVER = -1
"""Number that no roll-up state has, so that the second mark is always made."""
_IDLE_SECONDS, _IDLE_STEP_SECONDS = 5.0, 0.1
"""Seconds for which a commit waits while this server has no role, and between two checks of the role."""
_RETRY_AFTER_MS = 1_000
_NO_ROLE = "the servers of the telemetry engine are agreeing on the one that leads: try again"


class NodeLog(CommitLog):
    """Commit log of a ClickHouse node, which also has the ``Duties`` of ``membership``.

    ``check`` and ``get_valid_until`` belong to ``NodeMembership``; like ``peers`` they are set once the server has a
    membership. ``fence`` is that of inserts of samples into a node; replicas have their own. ``writing`` is
    locked while a commit runs: the role changes between two commits only.
    """

    def __init__(
        self, pool: Pool, folder: Path | None, siblings: int = 1, replicas: SharedReplicaSet | None = None
    ) -> None:
        """``folder`` has this server's journal; None for a server without a journal.

        ``siblings`` shards share the memory for rows that wait. To ``replicas`` only the leader writes.
        """
        self._replicas = replicas
        self._recovers = False  # True while this server inserts samples without a role
        most = JournalLimits()
        self._limits = replace(most, most_rows=most.most_rows // siblings, most_bytes=most.most_bytes // siblings)
        # The other shards must not wait for the agreement about this one.
        self._idle_seconds = _IDLE_SECONDS if siblings == 1 else 0.0
        self.role = ServerRole.IDLE
        self.writing = threading.Lock()
        self.check: Callable[[], None] = accept_all
        self.fence = find_no_fence
        self.get_valid_until: Callable[[], float] = lambda: float("inf" if self.role is ServerRole.LEADER else "-inf")
        self.peers: PeerService | None = None
        self.damaged = False
        """True if a recovered journal had lost samples."""
        self._direct = DirectInserts(pool)
        self._flusher = Flusher(pool, encode)
        self._folder = folder
        self._journal: Journal | None = None
        self._announcing = threading.Lock()  # guards the next three attributes
        self._listeners: list[Callable[[bool], None]] = []
        self._announced = False
        self._mirror: MirroredMemory | None = None
        self._copies = FollowedRows()
        self._role_changed = threading.Event()
        self._role_number = 0
        self._drop_records: Callable[[Sequence[str]], None] = lambda _: None
        self._state: RollupState | None = None
        self._catalog: Catalog | None = None

    @property
    def is_alone(self) -> bool:
        """True while this server leads: no other server writes samples, marks or series to the node."""
        return self.role is ServerRole.LEADER

    @property
    def is_following(self) -> bool:
        """True while samples go to a leader."""
        return self.role is ServerRole.FOLLOWER

    def bind(self, state: RollupState, catalog: Catalog) -> None:
        """Set the other parts of the store. They are created after the log, because they read its pending rows."""
        self._state, self._catalog = state, catalog
        state.waiting_hours = self._find_waiting_hours

    def watch(self, changed: Callable[[bool], None]) -> None:
        """Call a function with True while this server is alone, now and after each change.

        The call comes before new servers may read or write, and after the last other server has gone. The function must
        not append samples.
        """
        with self._announcing:
            self._listeners.append(changed)
            changed(self._announced)

    def mirror(self, memory: MirroredMemory) -> None:
        """Set the memory that answers while this server leads or follows."""
        with self.writing:
            self._mirror = memory
        memory.trust(trusted=self._is_mirrored)

    @property
    def has_mirror(self) -> bool:
        """True if a memory with the newest samples forwards the batches."""
        return self._mirror is not None

    @property
    def _is_mirrored(self) -> bool:
        return self.role in {ServerRole.LEADER, ServerRole.FOLLOWER}

    def connect(self, peers: PeerService, store: LeaderStore, tables: LeaderCommands) -> None:
        """Use connections with other servers: ``store`` does their work, ``tables`` stores their other rows."""
        self.peers = peers
        if self._replicas is not None:
            self._replicas.announce = self._announce_replicas
            peers.followed.replicas = lambda: None if self._replicas is None else self._replicas.record

        def choose() -> LeaderStore:
            return store if self._mirror is None else self._mirror

        commands: LeaderCommands = {
            "announce": lambda command: self._announce_records(_JOBS.decode(command.content)),
            "flush": lambda command: self.flush(command.argument),
            "roll_up": lambda command: choose().roll_up(command.argument or 0),
            "delete_job": lambda command: choose().delete_job(command.argument or 0),
            **tables,
        }
        peers.followed.work = PeerWork(lambda batches, retention: choose().append_all(batches, retention), commands)
        peers.renew = self._renew

    @contextmanager
    def confirm(self) -> Iterator[None]:
        """Wait at the end of the block until all followers have what was stored or sent inside.

        Raises UnavailableError if they may have it, but others may have expelled this server.
        """
        number = 0 if self.peers is None else self.peers.followed.term
        yield
        if self.peers is not None:
            self.peers.followed.await_followers(number)

    def forward(self, batches: Sequence[SampleBatch], retention: Retention) -> Sequence[SampleBatch]:
        """Have the leader store batches. Return them if this server does not follow one.

        Waits some seconds while this server has no role. Raises UnavailableError after that.
        """
        self._await_role()
        if self.role is not ServerRole.FOLLOWER:
            return batches
        self._leader().append(batches, retention)
        return ()

    def _await_role(self) -> None:
        deadline = monotonic() + self._idle_seconds
        while self.role is ServerRole.IDLE and self.peers is not None and monotonic() < deadline:
            self._role_changed.wait(_IDLE_STEP_SECONDS)

    def get_membership(self) -> int | None:
        """Return the number of this server's role while it leads or follows, and its answers count.

        See ``RecordGroup``.
        """
        number = self._role_number
        is_member = self._is_mirrored and self.get_valid_until() >= read_clock()
        return number if is_member and number == self._role_number else None

    def hear(self, drop: Callable[[Sequence[str]], None]) -> None:
        """Call a function with the ids of jobs whose records another server has changed."""
        self._drop_records = drop

    def announce(self, jobs: Sequence[str]) -> None:
        """Return when no server answers from earlier records of jobs with these ids. See ``RecordGroup``.

        Direct servers read the changes before each answer. Waits some seconds while this server has no role.
        """
        self._await_role()
        if self.run_command("announce", None, msgspec.msgpack.encode(jobs)) is None:
            self._announce_records(jobs)

    def _announce_records(self, jobs: Sequence[str]) -> int:
        """Announce a change of this server, or as the leader that of a follower."""
        number = self._role_number
        if self.role in {ServerRole.LEADER, ServerRole.DIRECT}:
            self._drop_records(jobs)
            self.note_change((), dropped=False, records=jobs)
            self.check()
            if number == self._role_number:
                return 0
        raise UnavailableError(_NO_ROLE, _RETRY_AFTER_MS)

    def run_command(self, name: str, argument: int | None, content: bytes = b"") -> int | None:
        """Run a command of the leader's store. Return None if this server does not follow one."""
        return self._leader().run_command(name, argument, content) if self.role is ServerRole.FOLLOWER else None

    def send_rows(self, name: str, shipper: int, rows: Callable[[], object]) -> bool:
        """Have the leader store rows of another table. See ``SendRows``."""
        if self.role is not ServerRole.FOLLOWER:
            return False
        self._leader().run_command(name, shipper, msgspec.msgpack.encode(rows()))
        return True

    def _leader(self) -> LeaderLink:
        link = None if self.peers is None else self.peers.leader
        if link is None:
            raise UnavailableError(_NO_ROLE, _RETRY_AFTER_MS)
        return link

    def _announce_replicas(self, record: ReplicaSetState) -> None:
        """Tell the followers which replicas have all data, and wait until they know."""
        if self.peers is not None and self.role is ServerRole.LEADER:
            with self.confirm():
                self.peers.followed.announce(record)

    def use_replicas(self, record: ReplicaSetState) -> None:
        """Read only the replicas that the leader's record names."""
        if self._replicas is not None:
            self._replicas.take(record)

    def check_leading(self) -> None:
        """Raise UnavailableError unless this server leads and is not expelled, or recovers a journal or copies."""
        if self.role is ServerRole.LEADER:
            self.check()
        elif not self._recovers:
            raise UnavailableError(_NO_ROLE, _RETRY_AFTER_MS)

    def _begin_writing(self) -> None:
        if self._replicas is not None:
            self._replicas.begin_writing()
        self._recovers = True

    @contextmanager
    def _recovering(self) -> Iterator[None]:
        """Insert samples without a role inside the block, once writing has begun."""
        try:
            yield
        finally:
            self._recovers = False

    def note_change(self, jobs: Sequence[int] | None, *, dropped: bool, records: Sequence[str] = ()) -> None:
        """Tell the followers that other data of some jobs changed, None for all, and wait until they know.

        ``records`` are the ids of jobs whose records changed.
        """
        if self.peers is not None and self.role is ServerRole.LEADER:
            with self.confirm():
                self.peers.followed.send_change(jobs, dropped=dropped, records=records)

    def append(self, group: Sequence[SampleRuns]) -> None:
        """Make the rows durable: in the journal, or in the node."""
        if self._journal is not None and self.role is ServerRole.LEADER:
            self._journal.append(group)
        elif self.role is ServerRole.DIRECT:
            self._direct.append(group)
            self.check()
        else:
            raise UnavailableError(_NO_ROLE, _RETRY_AFTER_MS)

    def get_pending(self) -> Pending:
        """Return the durable rows that may not be in the node yet."""
        if self.role is ServerRole.FOLLOWER:
            return self._copies.get_pending()
        return NOTHING if self._journal is None else self._journal.get_pending()

    def flush(self, before_ms: int | None = None) -> None:
        """Return when earlier rows are in the node."""
        if self.run_command("flush", before_ms) is None and self._journal is not None:
            self._journal.flush(before_ms)

    def read_statistics(self) -> dict[str, int]:
        """Return the sizes of the journal."""
        return {} if self._journal is None else self._journal.read_statistics()

    def close(self) -> None:
        """Flush and close. Rows that the node does not accept now stay in the journal."""
        if self._journal is not None:
            self._journal.close()

    def register(self, take: Callable[[Sequence[SampleRuns]], None]) -> None:
        """Call ``take`` with the rows of the journal while no row is added or removed."""
        if self._journal is not None:
            self._journal.register(take)

    def begin_copies(self) -> None:
        """Begin with no copies of the leader's rows."""
        self._copies.clear()

    def copy(self, group: Sequence[SampleRuns], intent: int) -> None:
        """Add copies of rows of the leader's journal."""
        self._copies.add([JournalBlock(rows) for rows in group])
        if self._mirror is not None:
            self._mirror.apply([make_batch(rows) for rows in group], intent)

    def drop_oldest(self, blocks: int) -> None:
        """Drop the oldest copies: the engine has them."""
        self._copies.drop_oldest(blocks)

    def change(self, jobs: Sequence[int] | None, *, dropped: bool, records: Sequence[str]) -> None:
        """Tell the memory that other data of some jobs changed."""
        if records:
            self._drop_records(records)
            return
        _, catalog = self._parts()
        if dropped:
            catalog.forget()
        if self._mirror is not None:
            self._mirror.invalidate(jobs, dropped=dropped)

    def recover(self, folder: Path) -> None:
        """Insert the samples of a journal whose process has ended, and mark their hours.

        Raises UnavailableError if the node does not accept them.
        """
        state, catalog = self._parts()
        found: set[JobHour] = set()

        def prepare(rows: SampleRuns) -> None:
            self._begin_writing()
            found.update(rows.find_late_hours(MAX_TIME_MS + 1))
            state.mark_before(rows.find_late_hours(state.read_intent()))

        own = folder == self._folder
        copies = self.peers.followed if own and self.peers is not None else None
        journal = Journal(folder, self._insert, self._limits, copies)
        with self._recovering():
            try:
                journal.recover(prepare, catalog)
                journal.flush()
            except BaseException:
                journal.close()
                raise
            # A roll-up of another server may have begun with these hours before the samples were there.
            intent = state.read_intent()
            state.mark_after({pair for pair in found if pair[1] < intent}, _NEVER)
        self.damaged |= journal.damaged
        if own:
            self._journal = journal
        else:
            journal.close()

    def void(self) -> None:
        """Delete the rows of the journal: another server has inserted them."""
        if self._journal is not None:
            self._journal.void()
        elif self._folder is not None:
            journal = Journal(self._folder, self._insert)
            journal.void()
            journal.close()

    def lead(self) -> None:
        """Use the journal from the next commit on."""
        state, catalog = self._parts()
        with self._recovering():
            self._begin_writing()
            with self.writing:
                state.reload()
                catalog.forget()
                self._change_role(ServerRole.LEADER)
        self._trust()
        # Commits need the list of all series. Read it now: a later commit must not wait for an unreachable node.
        with self.writing, suppress(JobmeterError):
            catalog.lacks_descriptor(SeriesKeys(np.empty(0, np.uint64), np.empty(0, np.uint64)))

    def note_alone(self, *, alone: bool) -> None:
        """Tell the listeners whether there are other servers."""
        if alone != self._announced:
            self._announce(alone=alone)

    def follow(self) -> None:
        """Send samples to the leader from the next commit on."""
        _, catalog = self._parts()
        if self._replicas is not None:
            self._replicas.end_writing()
        with self.writing:
            catalog.forget()
            self._change_role(ServerRole.FOLLOWER)
        self._trust()

    def be_idle(self) -> None:
        """Refuse commits and answers from now on."""
        with self.writing:
            self._change_role(ServerRole.IDLE)
        self._trust()
        self.note_alone(alone=False)

    def be_among_others(self) -> None:
        """Use the node from the next commit on, once it has every row of the journal.

        Servers on replicas do not use them directly: then this server is idle from the next commit on.
        """
        state, catalog = self._parts()
        was_alone = self._announced
        self._announce(alone=False)
        if self._mirror is not None:
            self._mirror.trust(trusted=False)
        try:
            with self._recovering():
                if self.read_statistics().get("rows"):
                    self._begin_writing()
                self.flush()  # most rows, before commits have to wait
                with self.writing:
                    self.flush()
                    state.write_marks()
                    self._change_role(ServerRole.DIRECT if self._replicas is None else ServerRole.IDLE)
                    catalog.forget()
        except BaseException:
            self._trust()
            self._announce(alone=was_alone and self.is_alone)
            raise

    def insert_copies(self) -> None:
        """Insert the copies, with the marks of their hours."""
        state, _ = self._parts()
        groups = [block.rows for block in self._copies.list_blocks()]
        if not groups:
            return
        with self._recovering():
            self._begin_writing()
            before = state.read_intent()
            hours = set[JobHour]().union(*(rows.find_late_hours(MAX_TIME_MS + 1) for rows in groups))
            state.mark_before({pair for pair in hours if pair[1] < before})
            self._flusher(groups, self.fence())
            intent = state.read_intent()
            state.mark_after({pair for pair in hours if pair[1] < intent}, _NEVER)

    def drop_copies(self) -> None:
        """Drop the copies."""
        self._copies.clear()

    def _change_role(self, role: ServerRole) -> None:
        self._role_number += 1  # first: with the new role nobody reads the old number
        self.role = role
        self._recovers = False
        self._role_changed.set()
        self._role_changed.clear()

    def _trust(self) -> None:
        """Tell the memory whether to answer. Not while commits wait: they hold its lock."""
        if self._mirror is not None:
            self._mirror.trust(trusted=self._is_mirrored)

    def _renew(self) -> None:
        if self._mirror is not None:
            self._mirror.renew()

    def _find_waiting_hours(self, before_ms: int) -> set[JobHour]:
        """Return the late hours of copies. The leader's marks of these may not be in the node yet."""
        if self.role is not ServerRole.FOLLOWER:
            return set()
        return set[JobHour]().union(*(block.rows.find_late_hours(before_ms) for block in self._copies.list_blocks()))

    def _announce(self, *, alone: bool) -> None:
        with self._announcing:
            self._announced = alone
            for listener in self._listeners:
                listener(alone)

    def _insert(self, group: Sequence[SampleRuns]) -> None:
        state, _ = self._parts()
        leads = self.role is ServerRole.LEADER
        self.check_leading()  # an expelled leader may have been frozen: newer rows may be in the node
        state.write_marks()
        # An expelled server inserts its journal without a fence, once nobody else inserts.
        self._flusher(group, self.fence() if leads else None)

    def _parts(self) -> tuple[RollupState, Catalog]:
        if self._state is None or self._catalog is None:
            raise UnavailableError("the telemetry store is not open yet")
        return self._state, self._catalog
