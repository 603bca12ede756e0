"""The store as a whole: connections, schema, and the parts that do the work."""

import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from jobmeter.errors import ConflictError, JobmeterError
from jobmeter.model.batch import BucketColumns, SampleBatch, SeriesKeys
from jobmeter.model.move import MoveLine, MoveOrder
from jobmeter.model.retention import Retention
from jobmeter.model.server_group import OpenGroup, open_no_group
from jobmeter.model.time import Clock, TimeRange, read_clock
from jobmeter.store.base import (
    NEWEST,
    LogStore,
    OutboxStore,
    ReadBudget,
    SeriesPage,
    SeriesPlace,
    SeriesSelector,
    SpanStore,
    StoreMemory,
    StoreStatistics,
    Tier,
)
from jobmeter.store.clickhouse.catalog import Catalog
from jobmeter.store.clickhouse.commit import CommitLog, DirectInserts, Flusher
from jobmeter.store.clickhouse.damage import Damage, make_advice
from jobmeter.store.clickhouse.failures import translate_failures
from jobmeter.store.clickhouse.journal import Journal
from jobmeter.store.clickhouse.led_tables import make_table_commands, send_to_no_leader
from jobmeter.store.clickhouse.lock import FolderLock
from jobmeter.store.clickhouse.logs import LogTable
from jobmeter.store.clickhouse.lookup import Lookup
from jobmeter.store.clickhouse.maintenance import Maintenance
from jobmeter.store.clickhouse.membership import NodeMembership
from jobmeter.store.clickhouse.mend import mend
from jobmeter.store.clickhouse.migrate import create_database, migrate
from jobmeter.store.clickhouse.move import MoveSource, move
from jobmeter.store.clickhouse.move_marks import mark_departure, read_marks, require_usable
from jobmeter.store.clickhouse.node_log import NodeLog
from jobmeter.store.clickhouse.nodes import Nodes
from jobmeter.store.clickhouse.outbox import OutboxTable
from jobmeter.store.clickhouse.peer_place import OFF, parse_listen
from jobmeter.store.clickhouse.peers import PeerService
from jobmeter.store.clickhouse.pending import NOTHING, Pending
from jobmeter.store.clickhouse.pool import WRITE_SILENCE_SECONDS, Pool
from jobmeter.store.clickhouse.reader import SampleReader
from jobmeter.store.clickhouse.replica_repair import ReplicaRepair
from jobmeter.store.clickhouse.rollup import RollupJob
from jobmeter.store.clickhouse.rollup_state import RollupState
from jobmeter.store.clickhouse.rows import JobHour, SampleRuns
from jobmeter.store.clickhouse.servers import ServerRows, ServerTable
from jobmeter.store.clickhouse.shard_record import read_place_records, require_whole
from jobmeter.store.clickhouse.shared_replicas import SharedReplicaSet, join_replicas
from jobmeter.store.clickhouse.spans import SpanTable
from jobmeter.store.clickhouse.target import EngineTarget
from jobmeter.store.clickhouse.write_fence import fence_server
from jobmeter.store.clickhouse.write_gate import WriteGate
from jobmeter.store.shards.placement import is_on

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client

    from jobmeter.store.clickhouse.replicas import ReplicaSet

_log = logging.getLogger(__name__)
_JOURNAL = "journal"
_READERS = 12
"""Read connections: more than long queries and raw exports together may use (``jobmeter.server.admission``)."""
_WRITERS = 4
_READ_SILENCE_SECONDS = 60
"""Seconds after which a read ends if a ClickHouse server sends nothing: it is frozen, or its network is."""
_MEMBERSHIP_SILENCE_SECONDS = 5
_MARKS_SILENCE_SECONDS = 10


class ClickHouseStore:
    """``jobmeter.store.base.Store`` on ClickHouse.

    The constructor creates and migrates the database. Raises ConfigurationError if an embedded store is in use
    elsewhere or was made by a newer program, UnavailableError if it cannot be reached. A process that forks must do so
    before: the embedded engine does not survive a fork.
    """

    memory: StoreMemory | None = None
    """Always None: this engine has no window."""

    node_log: NodeLog | None = None
    """Commit log of a ClickHouse node; None for an embedded engine and for a cluster."""

    def __init__(
        self,
        target: EngineTarget,
        clock: Clock,
        journals: Path | None = None,
        *,
        discard: bool = False,
        for_move: bool = False,
        peer_listen: str = OFF,
        open_group: OpenGroup = open_no_group,
        joinable: bool = True,
    ) -> None:
        """``journals``: the folder for the journal of a ClickHouse node; without it the node commits each request.

        ``peer_listen``: address for the other servers of the node, see ``parse_listen``. ``open_group`` opens the table
        of the servers that share a registry, for replicas. Unless ``joinable``, no other server may use these.

        ``discard`` gives up the journals of other servers that cannot be reached. ``for_move`` opens an engine whose
        data were moved elsewhere, too.
        """
        self.target = target
        self._clock = clock
        self._for_move = for_move
        self._peer_listen = peer_listen if joinable else OFF
        self._joinable = joinable
        self._open_group = open_group
        self.peers: PeerService | None = None
        """Connections with the other servers of the node; None without them."""
        self._lock = FolderLock(target.path) if target.path is not None else None
        self.membership: NodeMembership | None = None
        """Membership of this server among the servers of its ClickHouse node; None if there is no ``node_log``."""
        self._gate = WriteGate()
        self._closing = threading.Lock()
        self._beginning = threading.Lock()
        self._committing = threading.Lock()  # one commit or deletion at a time
        self._pools: list[Pool] = []
        self._nodes: Nodes | None = None
        self.replicas: ReplicaSet | None = None
        """Replicas that this server writes; None for a single server, a cluster and an embedded engine."""
        self._repair: ReplicaRepair | None = None
        self.commit_log: CommitLog | None = None
        try:
            self._open(target, clock, journals, discard=discard)
        except BaseException:
            self.close()
            raise

    def _open(self, target: EngineTarget, clock: Clock, journals: Path | None, *, discard: bool) -> None:
        self._start_nodes(target, journals, discard=discard)
        read, write = self._pool(_READERS, _READ_SILENCE_SECONDS), self._pool(_WRITERS)
        # Each connection takes a while to open: the one that creates the database is the first that is used.
        first = write.connect()
        write.add(first)
        self._create_schema(first)
        if not self._for_move:
            require_usable(write, target)
        if not target.shard:
            require_whole(write, target)
        journal = target.path / _JOURNAL if target.path is not None else self._lock_journal_folder(write, journals)
        if target.journaled:
            self.commit_log = self.node_log = NodeLog(write, journal, target.siblings, self._shared)
            self._committing = self.node_log.writing
        # A commit may have to write marks: a frozen node must not block the commit for long.
        marks = self._pool(2, _MARKS_SILENCE_SECONDS) if target.journaled else write
        self.rollup_state = RollupState(marks, target, clock, self._is_alone, self._may_write)
        self._damage = _damage(target, read, write, journal)
        if mend(self._damage.list_parts(), write, target, clock):
            self.rollup_state.reload()
        self.catalog = Catalog(read, clock, self._get_pending, self._is_alone)
        if self.node_log is not None:
            self.node_log.bind(self.rollup_state, self.catalog)
            self.commit_log = self.node_log
            self._join(self.node_log, (read, marks), clock, journal, discard=discard)
            if not self._for_move:
                require_usable(write, target)  # again: moves and growth check first which servers have joined
            if not target.shard:
                require_whole(write, target)
        else:
            self.commit_log = self._open_log(target, write)
        self.reader = SampleReader(read, self.commit_log.get_pending)
        self._lookup = Lookup(read, self.reader, self.rollup_state, self.commit_log.get_pending)
        self.rollup_job = RollupJob(write, self.rollup_state, self.commit_log.flush, self._gate)
        log, led = self.node_log, self._shared is not None
        send = log.send_rows if log is not None and led else send_to_no_leader
        self.logs: LogStore = LogTable(write, read, self.reader, self._gate, send)
        self._span_table = SpanTable(write, read, self._gate, send)
        self.spans: SpanStore = self._span_table
        self.outbox: OutboxStore = OutboxTable(write, read, target, self._gate, send)
        self.maintenance = Maintenance(
            write, target, self.rollup_state, self.catalog, self.rollup_job, self.commit_log, self._gate
        )
        self._bind_parts()
        if target.path is not None:
            self._warm(read)
        if self._repair is not None:
            self._repair.start()

    def _create_schema(self, client: "Client") -> None:
        """Create and migrate the database, over a connection without one. The leader does it for shared replicas."""
        if self._shared is None:
            create_database(client, self.target)
        client.database = self.target.database
        if self._shared is None:
            migrate(client, self.target, self._clock)

    def _start_nodes(self, target: EngineTarget, journals: Path | None, *, discard: bool) -> None:
        """Choose the servers for statements: one, any of a cluster, or all replicas."""
        if target.cluster and len(target.places) > 1:
            self._nodes = Nodes(target)
        elif target.journaled:
            read_place_records(target)  # servers of several shards are no replicas
            self._nodes = self.replicas = join_replicas(
                target, self._clock, journals, self._open_group, discard=discard, beside_others=self._joinable
            )
        if self._nodes is not None:
            self._nodes.start()
        if self.replicas is not None:
            self._repair = ReplicaRepair(self.replicas, self._clock)

    def _pool(self, size: int, silence_seconds: int = WRITE_SILENCE_SECONDS) -> Pool:
        opening = None if self._nodes is None else self._nodes.open
        pool = Pool(self.target, size, silence_seconds=silence_seconds, opening=opening)
        self._pools.append(pool)
        return pool

    @property
    def _shared(self) -> SharedReplicaSet | None:
        """Replicas that several servers use; None without them."""
        return self.replicas if isinstance(self.replicas, SharedReplicaSet) else None

    def _may_write(self) -> bool:
        """Return False while another server may write to the replicas."""
        return self._shared is None or self._shared.is_writer

    @property
    def engine_use(self) -> NodeLog | None:
        """Use of the engine by other servers, which the log of a node reports; None if that never changes."""
        return self.node_log

    def hide_others(self, shard: int, count: int) -> None:
        """Leave the rows of other shards out of answers. ``shard`` counts from 0, among ``count`` shards."""
        for part, table in ((self.catalog, "series"), (self._span_table, "spans")):
            part.shown = is_on(table, shard, count) if count > 1 else "1"

    def is_answering(self) -> bool:
        """Return False while it certainly cannot be read: no replica with all data answers."""
        return self.replicas is None or any(map(self.replicas.is_up, self.replicas.list_readable()))

    def _is_alone(self) -> bool:
        """Return True while no other process can write to the engine."""
        return self.target.exclusive if self.node_log is None else self.node_log.is_alone

    def _lock_journal_folder(self, write: Pool, journals: Path | None) -> Path | None:
        """Return the folder of this server's journal for a ClickHouse node, locked; None for no journal.

        The UUID of the database names the folder: samples of one database never go into another. All replicas have the
        name that the first one had.
        """
        if journals is None or not self.target.journaled or not self.target.journal:
            return None
        with translate_failures("read its identity"), write.borrow_client() as client:
            sql = "SELECT toString(uuid) FROM system.tables WHERE database = currentDatabase() AND name = 'servers'"
            (row,) = client.query(sql).result_rows
        folder = journals / (str(row[0]) if self.replicas is None else self.replicas.identity)
        self._lock = FolderLock(folder)
        return folder

    def _join(
        self, log: NodeLog, checked: Sequence[Pool], clock: Clock, journal: Path | None, *, discard: bool
    ) -> None:
        shared, listen = self._shared, None
        if journal is not None and (self.replicas is None or shared is not None):
            listen = parse_listen(self._peer_listen, self.target.places, max(self.target.shard, 1))
        if listen is not None and journal is not None:
            self.peers = PeerService(listen, self.target.places, journal, log, read_clock)
            self.peers.followed.read_intent = self.rollup_state.read_intent
            log.connect(self.peers, self, make_table_commands(self))
        table: ServerRows = shared.servers if shared else ServerTable(self._pool(1, _MEMBERSHIP_SILENCE_SECONDS), clock)
        shares = self.replicas is None or shared is not None
        membership = self.membership = NodeMembership(
            table, log, journal, peers=self.peers, shares=shares, direct=shared is None
        )
        log.get_valid_until = membership.get_valid_until
        if self.replicas is None:
            log.fence = self.rollup_state.fence = lambda: fence_server(membership.number)
        if self.peers is not None:
            self.peers.followed.may_sign = membership.is_current
        self.membership.join(discard=discard)
        log.check = self.membership.check
        if shared is not None:
            shared.check_leading = log.check_leading
            shared.may_repair = lambda: log.is_alone and membership.is_current()
        for one in checked:
            one.check = self.membership.check
        self.membership.start()
        if log.damaged:
            self._damage.refresh()

    def _bind_parts(self) -> None:
        """Make methods of the parts methods of the store."""
        catalog = self.catalog
        self.lacks_descriptor, self.find, self.list_names = catalog.lacks_descriptor, catalog.find, catalog.list_names
        self.use_series = catalog.use_series
        self.read = self.reader.read
        lookup = self._lookup
        self.read_buckets, self.read_previous, self.read_last_times = (
            lookup.read_buckets,
            lookup.read_previous,
            lookup.read_last_times,
        )
        self.find_rolled_up_ranges = self.rollup_job.find_rolled_up_ranges
        maintenance = self.maintenance
        self.backup = maintenance.backup
        self.list_damaged = self._damage.list_parts
        self.check_writable = self._gate.check

    def _warm(self, read: Pool) -> None:
        """Run trivial statements: the first ones after a start of the engine take many times as long."""
        # Two connections: while the window is filled over one, the first query does not wait for another.
        with suppress(JobmeterError), read.borrow_client(), read.borrow_client():
            pass
        keys, span = SeriesKeys(np.zeros(1, np.uint64), np.zeros(1, np.uint64)), TimeRange(0, 1)
        with suppress(JobmeterError):  # the next statement reports it
            self.find(SeriesSelector(jobs=(0,)))
            for _ in self.read(keys, span, ReadBudget()):
                pass
            self.read_buckets(keys, span, Tier.HOUR, ReadBudget())

    def _open_log(self, target: EngineTarget, pool: Pool) -> CommitLog:
        if target.path is None:
            return DirectInserts(pool)  # a cluster
        flusher = Flusher(pool)

        def insert(group: Sequence[SampleRuns]) -> None:
            self.rollup_state.write_marks()
            flusher(group)

        journal = self.commit_log = Journal(target.path / _JOURNAL, insert)
        state = self.rollup_state
        # Marks of the dead process that were not yet written are made again.
        journal.recover(lambda rows: state.mark_before(rows.find_late_hours(state.read_intent())), self.catalog)
        if journal.damaged:
            self._damage.refresh()
        return journal

    def _get_pending(self) -> Pending:
        return NOTHING if self.commit_log is None else self.commit_log.get_pending()

    def append_all(
        self,
        batches: Sequence[SampleBatch],
        retention: Retention = Retention(),  # noqa: B008 - it is frozen
    ) -> None:
        """Append each batch in order. On return all of them are durable."""
        batches = [batch for batch in batches if len(batch)]
        if not batches or self.commit_log is None:
            return
        log = self.node_log
        if log is None or log.has_mirror:  # the mirror forwards, and waits for followers
            with self._gate.admit_write(), self._committing:
                self._append(batches, retention, self.commit_log)
        elif log.forward(batches, retention):
            with log.confirm(), self._gate.admit_write(), self._committing:
                self._append(batches, retention, log)

    def _append(self, batches: Sequence[SampleBatch], retention: Retention, log: CommitLog) -> None:
        intent = self.rollup_state.compute_intent(min(batch.span[0] for batch in batches))
        with self._beginning:  # no other call stores samples of a new series before ``begin``
            # The log of a node does not use new series, and commits do not wait for an unreachable node.
            missing = self.catalog.find_missing(batches, retention, seeks_new=self.node_log is None)
            if len(missing.new) and any(batch.span[0] < intent for batch in batches):
                log.begin(missing.new)
        group = [SampleRuns.from_batch(*one, retention) for one in zip(batches, missing.descriptors, strict=True)]
        hours = _find_late_hours(group, intent)
        before = self.rollup_state.mark_before(hours)
        log.append(group)
        self.catalog.note(missing)
        # A roll-up may have started since, and may have read before these samples were visible.
        intent_now = self.rollup_state.read_intent()
        hours = hours if intent_now == intent else _find_late_hours(group, intent_now)
        if hours:
            self.rollup_state.mark_after(hours, before)

    def list_live_series(self, since_ms: int, most: int, place: SeriesPlace = NEWEST) -> SeriesPage:
        """Return a page of series that may have samples since a time."""
        if place == NEWEST and self.commit_log is not None:
            with suppress(JobmeterError):
                self.commit_log.flush()
        return self.catalog.list_live(since_ms, most, place)

    def read_imported_buckets(self, keys: SeriesKeys, span: TimeRange, step_ms: int) -> BucketColumns | None:
        """Return all samples of series that were imported lately in buckets; None if they are not in memory."""
        return self._get_pending().read_buckets(keys, span, step_ms)

    def roll_up(self, until_ms: int) -> int:
        """Compute missing roll-ups up to a time, and marked hours. Return the number of hours."""
        log = self.node_log
        done = None if log is None else log.run_command("roll_up", until_ms)
        if done is not None:
            return done
        hours = self.rollup_job.roll_up(until_ms)
        if hours and log is not None:
            log.note_change(None, dropped=False)
        if self.commit_log is not None and not self.rollup_state.any_marked:
            if hours:  # without hours it may have run between ``begin`` of some series and their marks
                self.commit_log.forget()
            self.catalog.close_new_jobs()
        return hours

    def delete_job(self, job: int) -> None:
        """Delete every sample, roll-up, series, log line and span of a job key."""
        log = self.node_log
        if log is not None and log.run_command("delete_job", job) is not None:
            self.catalog.forget()
            return
        with self._committing:  # no sample arrives between the deletion of its job's rows and of its series
            self.maintenance.delete_job(job)
        if log is not None:
            log.note_change((job,), dropped=True)

    def erase(self) -> None:
        """Delete everything, and start as on the first start."""
        self.maintenance.erase()
        if self.node_log is not None:
            self.node_log.note_change(None, dropped=True)

    def restore(self, directory: Path) -> None:
        """Restore a backup into an empty store. Raises ConflictError beside other servers."""
        if self.membership is not None and self.membership.list_others():
            raise ConflictError("other servers use this engine: stop them, restore the backup, and start them again")
        self.maintenance.restore(directory)

    def get_revision(self, jobs: Sequence[int] | None) -> None:
        """Return None: this engine does not count changes, and others may write to the same samples."""

    def read_statistics(self) -> StoreStatistics:
        """Return the sizes of the stored data. A rewritten sample counts twice until its copies are merged."""
        states = {} if self.replicas is None else self.replicas.list_states()
        role = "" if self.membership is None else self.membership.role
        return replace(self.maintenance.read_statistics(), damaged=self._damage.refresh(), replicas=states, role=role)

    def move(self, order: MoveOrder) -> Iterator[MoveLine]:
        """Move all data to another engine. See ``StoreAdministration.move``."""
        return move([self.move_source()], self.target, order, self._clock)

    def move_source(self) -> MoveSource:
        """Return this engine as the source of a move."""
        others = (lambda: ()) if self.membership is None else self.membership.list_others
        return MoveSource(self.maintenance, others, self.replicas)

    def cancel_move(self) -> str:
        """Let servers use this engine again after a move. Return the name of the other engine; empty without a move."""
        gone_to = read_marks(self.maintenance.pool).gone_to
        if gone_to:
            mark_departure(self.maintenance.pool, gone_to, moved=False)
            self._gate.reset("")
        return gone_to

    def close(self) -> None:
        """Finish running work, and close all connections."""
        with self._closing:
            if self.membership is not None:
                self.membership.stop()
            if self._repair is not None:
                self._repair.stop()
            if self.commit_log is not None:
                self.commit_log.close()
            if (
                self.membership is not None
                and self.node_log is not None
                and not self.node_log.read_statistics().get("rows")
            ):
                self.membership.depart()
            peers, self.peers = self.peers, None
            if peers is not None:
                peers.close()
            for pool in self._pools:
                pool.close()
            if self._nodes is not None:
                self._nodes.stop()
            if self._lock is not None:
                self._lock.release()


def _find_late_hours(group: Sequence[SampleRuns], before_ms: int) -> set[JobHour]:
    return set[JobHour]().union(*(rows.find_late_hours(before_ms) for rows in group))


def _damage(target: EngineTarget, read: Pool, write: Pool, journal: Path | None) -> Damage:
    """Read and log the damaged parts of the engine."""
    damage = Damage(write, target, journal)
    for pool in (read, write):
        pool.watch(damage.note)
    for part in damage.refresh():
        _log.error("%s", make_advice(part))
    return damage
