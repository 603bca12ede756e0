"""Replicas without ClickHouse Keeper that several Jobmeter servers use: the leading one writes, the others read.

The record of the complete replicas is in the registry that the servers share. The server that leads takes it: from then
on no other server can change it. So a former leader that wakes up excludes nothing, and its statements are refused. As
at each start, the complete set then shrinks to one replica, because the former leader may have run a statement on some
replicas only.

A replica refuses the inserts and deletions of a former leader: the server that takes the record first stores its term
on each replica that answers, and waits until none of them runs an earlier one. The other replicas get the term by the
repair that makes them complete.

The leader tells the followers each change, and waits until they know it, before it answers the statement that made it.
So no follower reads a replica that lacks an acknowledged row.
"""

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

from clickhouse_connect.driver.client import Client
from msgspec.structs import replace

from jobmeter.errors import UnavailableError
from jobmeter.model.server_group import OpenGroup, ServerGroup
from jobmeter.model.time import Clock
from jobmeter.store.clickhouse.failures import translate_failures
from jobmeter.store.clickhouse.group_record import GROUP_OWNER, GroupRecord, GroupServerTable
from jobmeter.store.clickhouse.journal_owner import has_ended
from jobmeter.store.clickhouse.migrate import list_missing
from jobmeter.store.clickhouse.nodes import SILENCE_SECONDS, NodesClient
from jobmeter.store.clickhouse.pool import accept_all, connect
from jobmeter.store.clickhouse.replica_state import (
    RecordFile,
    ReplicaContent,
    ReplicaSetState,
    read_content,
    write_record,
)
from jobmeter.store.clickhouse.replicas import ReplicaSet, list_places
from jobmeter.store.clickhouse.servers import LIVE
from jobmeter.store.clickhouse.target import EngineTarget, Place, format_place
from jobmeter.store.clickhouse.write_fence import WriteFence, begin_term, fence_writer, read_term

_log = logging.getLogger(__name__)
_NOT_LEADING = "this server does not lead, so it does not write to the telemetry engine: try again"
_RETRY_AFTER_MS = 1_000


class SharedReplicaSet(ReplicaSet):
    """Replicas of several servers. ``join`` first, then ``begin_writing`` or ``take``."""

    def __init__(self, target: EngineTarget, clock: Clock, group: ServerGroup, former: RecordFile) -> None:
        """``former`` has the record of the time when this server was the only one."""
        super().__init__(target, clock, None)
        self.check_leading: Callable[[], None] = accept_all
        """Raises UnavailableError if the statements of this server may not count."""
        self.may_repair: Callable[[], bool] = lambda: False
        """Returns True while this server leads."""
        self.announce: Callable[[ReplicaSetState], None] = lambda _: None
        """Tells the followers a record, and returns when they know it."""
        self._group = group
        self._former = former
        self._is_writer = False
        self._term = 0
        self._announced: ReplicaSetState | None = None
        self._beginning = threading.Lock()

    @property
    def is_writer(self) -> bool:
        """True while this server may write to the replicas."""
        return self._is_writer

    @property
    def servers(self) -> GroupServerTable:
        """The table of the servers that use these replicas."""
        return GroupServerTable(self._group, self._record.identity, self._clock)

    def join(self, *, discard: bool = False, beside_others: bool = True) -> None:
        """Read the record, or make the first one. Writes nothing to replicas that other servers may write.

        Unless ``beside_others``, raises UnavailableError if other servers run. See ``ReplicaSet.join``.
        """
        with self._group.lock(self.target.database):
            contents, away = self._contents()
            records = [one.record for one in contents.values() if one.record]
            newest = max(records, key=lambda one: one.number, default=None)
            stored = None
            if newest is not None and newest.owner == GROUP_OWNER:
                self._file = GroupRecord(self._group, newest.identity)
                stored = self._file.read()
            if stored is None:
                self._create(contents, away, newest, discard=discard)
            else:
                self._attach(contents, away, stored)
            if not (beside_others or discard):
                self._require_alone("the number of shards is to change")

    def _require_alone(self, reason: str) -> None:
        hosts = sorted({one.host for one in self.servers.read() if one.state == LIVE and not has_ended(one)})
        if hosts:
            raise UnavailableError(f"{reason}: stop all servers (there are some on {', '.join(hosts)}), then start one")

    def _attach(
        self, contents: Mapping[Place, ReplicaContent], away: Collection[Place], stored: ReplicaSetState
    ) -> None:
        chosen = self._choose(contents, stored, away)
        self._record = stored
        with closing(connect(self.target.with_server(chosen), self.target.database, SILENCE_SECONDS)) as client:
            outdated = list_missing(client, self.target)
        if outdated:
            self._require_alone("servers of an earlier version use these replicas, whose tables this version changes")
            self.prepare(chosen, stored)
        self._ids = {place: one.id for place, one in contents.items()}

    def _create(
        self,
        contents: Mapping[Place, ReplicaContent],
        away: Collection[Place],
        newest: ReplicaSetState | None,
        *,
        discard: bool,
    ) -> None:
        """Make the first record of the group, from that of this server if it was the only one."""
        former = self._former.read()
        is_ours = former is not None and newest is not None and former.owner == newest.owner
        if former is not None and is_ours:
            newest = max(former, newest or former, key=lambda one: one.number)
        elif away:
            raise UnavailableError(
                f"{list_places(away)} cannot be reached: all replicas of the telemetry store must be reachable when "
                "the servers of a registry use them first"
            )
        chosen = self._choose(contents, newest, away)
        record = self._make_record(chosen, contents, newest, GROUP_OWNER)
        if contents[chosen].data and not is_ours and not discard:
            self._require_unused(chosen)
        self._file = GroupRecord(self._group, record.identity)
        self._record = record = self._file.create(record)
        for place in contents:
            if self._ids[place]:
                with closing(connect(self.target.with_server(place), None, SILENCE_SECONDS)) as client:
                    write_record(client, self.target, record)
        self._former.remove()

    def begin_writing(self) -> None:
        """Take the record, and note that only one replica has all data. From now on this server writes.

        Raises UnavailableError if no replica with all data answers.
        """
        with self._beginning:
            file = self._own_file
            if self._is_writer and file.is_own(self._record.number):
                return
            self._is_writer = False
            contents, away = self._contents()
            record = file.take()
            chosen = self._complete_one(contents, record, away)
            content = self.prepare(chosen, None)
            # Servers without tables get the term with them, by the repair.
            term = self._begin_term([one for one, found in contents.items() if found.data or one == chosen], record)
            with self._recording:
                self._ids |= {place: one.id for place, one in contents.items()} | {chosen: content.id}
                complete = {content.id: format_place(chosen)}
                self._record = replace(record, owner=GROUP_OWNER, number=record.number + 1, complete=complete)
                self._is_saved = False
                with translate_failures("note which replicas have all data"):
                    self._save([place for place in contents if self._ids[place]], None)
                self._announced = self._record  # who follows later gets it when it joins
                self._is_writer, self._term = True, term

    def _begin_term(self, places: Iterable[Place], record: ReplicaSetState) -> int:
        """Have some replicas refuse the writes of former writers. Return the new term."""
        with ExitStack() as stack, translate_failures("begin to write to its replicas"):
            clients = [
                stack.enter_context(
                    closing(connect(self.target.with_server(one), self.target.database, SILENCE_SECONDS))
                )
                for one in places
            ]
            # Higher than any of them, even if the registry was lost and counts from the start.
            term = max(record.number, *(read_term(client, record.identity) + 1 for client in clients))
            for client in clients:
                begin_term(client, record.identity, term)
        return term

    @property
    def fence(self) -> WriteFence:
        """The fence of writes since this server last took the record."""
        return fence_writer(self._record.identity, self._term)

    def end_writing(self) -> None:
        """Write no more: another server leads."""
        self._is_writer = False

    def stop(self) -> None:
        """End the threads, and close the table of servers."""
        super().stop()
        self._group.close()

    def take(self, record: ReplicaSetState) -> None:
        """Use a record of the leader."""
        if not self._is_writer:
            self._record = record

    @property
    def _own_file(self) -> GroupRecord:
        assert isinstance(self._file, GroupRecord)  # noqa: S101 - set by ``join``
        return self._file

    def write(self, client: NodesClient, sql: str, call: Callable[[Client], Any]) -> Any:  # noqa: ANN401 - as read
        """Run a statement as ``ReplicaSet.write``. Raises UnavailableError if this server does not lead."""
        if not sql.lstrip().upper().startswith("BACKUP"):
            if not self._is_writer:
                raise UnavailableError(_NOT_LEADING, _RETRY_AFTER_MS)
            self.check_leading()
        return super().write(client, sql, call)

    def may_go_on(self) -> bool:
        """Return False if a statement that some replicas took must not go to the others."""
        try:
            self.check_leading()
        except UnavailableError:
            return False
        return self._is_writer

    def _keep(self, ids: Collection[str], client: NodesClient) -> None:
        super()._keep(ids, client)
        self._announce_once()

    def _announce_once(self) -> None:
        record = self._record
        if record is not self._announced:
            self.announce(record)
            self._announced = record

    def include(self, place: Place, replica_id: str) -> None:
        """Note durably that a replica has all data. Followers that do not confirm may read it later."""
        super().include(place, replica_id)
        with suppress(UnavailableError):
            self._announce_once()

    def list_stale(self) -> Sequence[Place]:
        """Return the replicas that this server should repair."""
        return super().list_stale() if self._is_writer and self.may_repair() else ()

    def _exclude(self, place: Place) -> bool:
        """Read a replica no more: for a leader as ``ReplicaSet``, else until the leader's next record."""
        if self._is_writer:
            return super()._exclude(place)
        with self._recording:
            complete = self._record.complete
            others = {one: name for one, name in complete.items() if one != self._ids.get(place)}
            if others:
                self._record = replace(self._record, complete=others)
            return bool(others) and others != complete


def join_replicas(
    target: EngineTarget,
    clock: Clock,
    journals: Path | None,
    open_group: OpenGroup,
    *,
    discard: bool,
    beside_others: bool,
) -> ReplicaSet | None:
    """Return the replicas of a target, joined; None for a whole store on a server that never was one of several.

    ``journals`` is the folder for the record, ``open_group`` opens the table of servers that may share the replicas.
    See ``SharedReplicaSet.join`` for ``discard`` and ``beside_others``.
    """
    number = f".{target.shard}" if target.shard > 1 else ""
    file = None if journals is None else RecordFile(journals / f"{target.database}{number}.replicas")
    if len(target.places) == 1 and not target.shard and (file is None or file.read() is None):
        with closing(connect(target, None)) as client, translate_failures("read its replicas"):
            if not read_content(client, target).id:
                return None
    group = open_group() if file is not None and target.journal else None
    shared = None if group is None or file is None else SharedReplicaSet(target, clock, group, file)
    replicas = shared or ReplicaSet(target, clock, file)
    try:
        if shared is None:
            replicas.join(discard=discard)
        else:
            shared.join(discard=discard, beside_others=beside_others)
    except BaseException:
        replicas.stop()
        raise
    return replicas
