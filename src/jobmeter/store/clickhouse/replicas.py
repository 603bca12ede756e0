"""Replicas that Jobmeter writes: several ClickHouse servers without ClickHouse Keeper, each with all rows.

Every statement that changes data runs on each *complete* replica before it is answered. A replica that did not take a
statement is not complete any more. A durable record says so before the statement is answered (``replica_state``).
Questions go to complete replicas only, always to the first one that answers. So no answer lacks an acknowledged row,
and answers do not alternate between replicas. ``replica_repair`` makes the other replicas complete again.

One Jobmeter server writes at a time, and each statement in the same order to all replicas. Only so the last written row
wins on each of them.
"""

import logging
import secrets
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing, nullcontext
from typing import Any

from clickhouse_connect.driver.client import Client
from msgspec.structs import replace

from jobmeter.errors import ConfigurationError, UnavailableError
from jobmeter.model.time import Clock
from jobmeter.store.clickhouse.failures import find_damaged_part, translate_failures
from jobmeter.store.clickhouse.group_record import GROUP_OWNER, GroupRecord
from jobmeter.store.clickhouse.migrate import create_database, migrate
from jobmeter.store.clickhouse.nodes import LOST, SILENCE_SECONDS, Nodes, NodesClient
from jobmeter.store.clickhouse.pool import Pool, connect
from jobmeter.store.clickhouse.replica_state import (
    RecordFile,
    ReplicaContent,
    ReplicaSetState,
    create_record,
    read_content,
    write_record,
)
from jobmeter.store.clickhouse.servers import LIVE, ServerTable, describe_other_server
from jobmeter.store.clickhouse.target import EngineTarget, Place, format_place
from jobmeter.store.statement_lock import StatementLock

_log = logging.getLogger(__name__)
_ID = "SELECT toString(uuid) FROM system.tables WHERE database = {database:String} AND name = 'replicas'"
_RETRY_AFTER_MS = 2_000
_NO_RECORD = ReplicaSetState(identity="", owner="", number=0, complete={})


class ReplicaSet(Nodes):
    """The replicas of one store. ``join`` first."""

    no_answer = Nodes.no_answer | {60, 81}
    """Also an unknown table or database: the server lost its disk."""

    def __init__(self, target: EngineTarget, clock: Clock, file: RecordFile | GroupRecord | None) -> None:
        """``file`` has this server's record; without it all replicas must be reachable at the start."""
        super().__init__(target)
        self.statements = StatementLock()
        self._clock = clock
        self._file = file
        self._recording = threading.Lock()  # guards the next two attributes
        self._record = _NO_RECORD
        self._is_saved = True
        self._ids: dict[Place, str] = {}

    @property
    def identity(self) -> str:
        """The name of the data, which stays when replicas come and go."""
        return self._record.identity

    @property
    def record(self) -> ReplicaSetState:
        """The newest record."""
        return self._record

    def join(self, *, discard: bool = False) -> None:
        """Choose a replica with all data, and note that the others may lack rows.

        A server that was killed may have left a statement that only some replicas took. Raises UnavailableError if no
        reachable replica is certain to have all data, or if another Jobmeter server may use them, unless ``discard``
        is set. Raises ConfigurationError if a replica has other data.
        """
        contents, away = self._contents()
        mine = None if self._file is None else self._file.read()
        records = [one.record for one in contents.values()]
        newest = max((one for one in (mine, *records) if one), key=lambda one: one.number, default=None)
        owner = mine.owner if mine else secrets.token_hex(16)
        if newest is not None and newest.owner == GROUP_OWNER and not discard:
            raise ConfigurationError(
                "the servers of a registry in PostgreSQL use these replicas: start with --registry and its address. "
                "To use them without it, once all these servers have stopped: jobmeter serve --discard-journals"
            )
        if away and (newest is None or newest.owner != owner):
            raise UnavailableError(
                f"{list_places(away)} cannot be reached: all replicas of the telemetry store must be reachable when a "
                "data folder uses them first"
            )
        chosen = self._choose(contents, newest, away)
        if newest is not None and newest.owner != owner and not discard:
            self._require_unused(chosen)
        self._record = self._make_record(chosen, contents, newest, owner)
        with translate_failures("note its replicas"):
            self._save([place for place in contents if self._ids[place]], None)

    def _choose(
        self, contents: Mapping[Place, ReplicaContent], newest: ReplicaSetState | None, away: Collection[Place]
    ) -> Place:
        """Return a replica with all data. Raises as ``join``."""
        for place, content in contents.items():
            self.require_ours(place, content, newest)
        return self._holder(contents) if newest is None else self._complete_one(contents, newest, away)

    def _make_record(
        self, chosen: Place, contents: Mapping[Place, ReplicaContent], newest: ReplicaSetState | None, owner: str
    ) -> ReplicaSetState:
        """Give a replica this program's schema. Return the record by which it alone has all data."""
        content = self.prepare(chosen, None)
        self._ids = {place: one.id for place, one in contents.items()} | {chosen: content.id}
        identity, number = (newest.identity, newest.number) if newest else (content.data, 0)
        complete = {content.id: format_place(chosen)}
        return ReplicaSetState(identity=identity, owner=owner, number=number + 1, complete=complete)

    def _contents(self) -> tuple[dict[Place, ReplicaContent], dict[Place, Exception]]:
        contents: dict[Place, ReplicaContent] = {}
        away: dict[Place, Exception] = {}
        for place in self.target.places:
            try:
                with closing(connect(self.target.with_server(place), None, SILENCE_SECONDS)) as client:
                    contents[place] = read_content(client, self.target)
            except LOST as error:
                away[place] = error
                self.lose(place, error)
        return contents, away

    def require_ours(self, place: Place, content: ReplicaContent, newest: ReplicaSetState | None) -> None:
        """Raise ConfigurationError if a server has data that do not belong to these replicas."""
        other = content.record is not None and newest is not None and content.record.identity != newest.identity
        if other or (newest is not None and content.data and content.record is None):
            raise ConfigurationError(
                f"{format_place(place)} has other data in the database {self.target.database}: name "
                "another database, or "
                "drop that one there, so that it is filled from the other replicas"
            )

    def _holder(self, contents: Mapping[Place, ReplicaContent]) -> Place:
        """Return the server whose data the others get."""
        holders = [place for place, content in contents.items() if content.data]
        if len(holders) > 1:
            raise ConfigurationError(
                f"{list_places(holders)} have a database {self.target.database} each, which were no replicas until "
                "now: drop it on all but one, so that they are filled from that one"
            )
        return (holders or self.target.places)[0]

    def _complete_one(
        self, contents: Mapping[Place, ReplicaContent], newest: ReplicaSetState, away: Collection[Place]
    ) -> Place:
        found = [place for place, content in contents.items() if content.id in newest.complete]
        if found:
            return min(found, key=lambda place: bool(contents[place].broken))
        names = " or ".join(newest.complete.values())
        if away:
            raise UnavailableError(f"only {names} has all data of the telemetry store, and cannot be reached")
        raise ConfigurationError(
            f"only {names} has all data of the telemetry store, none of {self.target.name} has: name that host in "
            "--store too"
        )

    def _require_unused(self, place: Place) -> None:
        """Raise UnavailableError if a server with another data folder has not departed."""
        with closing(Pool(self.target.with_server(place), 1, silence_seconds=SILENCE_SECONDS)) as pool:
            rows = [row for row in ServerTable(pool, self._clock).read() if row.state == LIVE]
        if rows:
            raise UnavailableError(describe_other_server(rows))

    def prepare_schema(self, place: Place) -> str:
        """Give a server this program's schema, unless it has other data. Return its ID."""
        with (
            closing(connect(self.target.with_server(place), None, SILENCE_SECONDS)) as client,
            translate_failures("read its replicas"),
        ):
            content = read_content(client, self.target)
        self.require_ours(place, content, self._record)
        return self.prepare(place, self._record).id

    def prepare(self, place: Place, record: ReplicaSetState | None) -> ReplicaContent:
        """Give a server this program's schema. Return its content.

        ``record`` is written before the schema: a server with a schema and without a record has other data.
        """
        target = self.target.with_server(place)
        with closing(connect(target, None, SILENCE_SECONDS)) as client, translate_failures("note its replicas"):
            create_database(client, target)
            create_record(client, target)
            if record is not None:
                write_record(client, target, record)
            client.database = target.database
            migrate(client, target, self._clock)
            return read_content(client, target)

    def list_readable(self) -> Sequence[Place]:
        """Return the complete replicas, in the order of the address, those that do not answer last."""
        complete = self._record.complete
        return self.order_by_answer([place for place in self.target.places if self._ids.get(place) in complete])

    def list_stale(self) -> Sequence[Place]:
        """Return the replicas that answer and may lack rows."""
        complete = self._record.complete
        return [place for place in self.target.places if self.is_up(place) and self._ids.get(place) not in complete]

    def list_states(self) -> dict[str, int]:
        """Return for each replica 1 if it answers and has all data, else 0."""
        readable = set(self.list_readable())
        return {format_place(place): int(place in readable and self.is_up(place)) for place in self.target.places}

    def lacks_answer(self, error: Exception) -> bool:
        """Return True if another replica may answer: this one is away, has lost its disk, or has a damaged part."""
        return super().lacks_answer(error) or find_damaged_part(error) is not None

    def lose(self, place: Place, error: Exception) -> None:
        """Note that a replica does not answer, or that its data are damaged."""
        if find_damaged_part(error) is None:
            super().lose(place, error)
        elif self._exclude(place):
            _log.error("%s has a damaged part, and is compared with the other replicas: %s", format_place(place), error)

    def greet(self, place: Place, client: Client) -> None:
        """Exclude a replica that came back without some of its parts."""
        content = read_content(client, self.target)
        if content.broken and content.id in self._record.complete and self._exclude(place):
            _log.error("%s came back without %d broken parts", format_place(place), content.broken)

    def _exclude(self, place: Place) -> bool:
        """Note durably that a replica lacks rows. Return False if no other replica has all data and answers."""
        others = [one for one in self.list_readable() if one != place]
        if not any(map(self.is_up, others)):
            return False
        with closing(NodesClient(self, None, SILENCE_SECONDS)) as client:
            self._keep({self._ids[one] for one in others}, client)
        return True

    def check(self, place: Place, client: Client) -> None:
        """Ask a server for its ID. After the loss of its disk it has another one."""
        rows = client.query(_ID, parameters={"database": self.target.database}).result_rows
        self._ids[place] = str(rows[0][0]) if rows else ""

    def write(self, client: NodesClient, sql: str, call: Callable[[Client], Any]) -> Any:  # noqa: ANN401 - as read
        """Run a statement on every complete replica that answers. From then on the others are not complete.

        Raises the error of a replica if none took it.
        """
        verb = sql.split(None, 1)[0].upper()
        if verb == "BACKUP":
            return self.read(client, call)
        with self.statements.lock_shared() if verb == "INSERT" else self.statements.lock_exclusive():
            complete = self.list_readable()
            places = [place for place in complete if self.is_up(place)] or complete
            # A copy of a folder of one machine: the other replicas get its rows later.
            return self._run(client, call, places[:1] if verb == "RESTORE" else places)

    def _run(self, client: NodesClient, call: Callable[[Client], Any], places: Sequence[Place]) -> Any:  # noqa: ANN401 - as read
        ids = dict(self._ids)
        answers: dict[Place, Any] = {}
        failures: dict[Place, Exception] = {}
        for place in places:
            if answers and not self.may_go_on():
                failures[place] = UnavailableError("this server may not write any more")
                continue
            try:
                answers[place] = call(client.connect_to(place))
            except LOST as error:
                failures[place] = error
                if self.lacks_answer(error):
                    client.drop(place)
                    self.lose(place, error)
        if answers:
            self._keep({ids[place] for place in answers}, client)
            return next(iter(answers.values()))
        if not failures:
            raise UnavailableError(f"no server of {self.target.name} has all data", _RETRY_AFTER_MS)
        # Any of them may have taken the statement in part: only one counts as complete from now on.
        refused = [place for place, error in failures.items() if not self.lacks_answer(error)]
        last = (refused or list(failures))[0]
        self._keep({ids[last]}, client)
        raise failures[last]

    def may_repair(self) -> bool:
        """Return False if another server repairs the replicas."""
        return True

    def may_go_on(self) -> bool:
        """Return False if a statement that some replicas took must not go to the others."""
        return True

    def _keep(self, ids: Collection[str], client: NodesClient) -> None:
        """Note durably that no other replicas are complete."""
        with self._recording:
            record = self._record
            complete = {one: name for one, name in record.complete.items() if one in ids}
            if not complete:
                raise UnavailableError("the replicas of the telemetry store fail in turn: try again", _RETRY_AFTER_MS)
            if complete == record.complete and self._is_saved:
                return
            for one in record.complete.keys() - complete.keys():
                _log.warning(
                    "%s lacks rows from now on: no question reads it until it is repaired", record.complete[one]
                )
            self._record = replace(record, number=record.number + 1, complete=complete)
            self._is_saved = False
            with translate_failures("note which replicas have all data"):
                self._save(self.list_readable(), client)

    def include(self, place: Place, replica_id: str) -> None:
        """Note durably that a replica has all data. No statement runs meanwhile."""
        with (
            closing(NodesClient(self, self.target.database, SILENCE_SECONDS)) as client,
            self._recording,
            translate_failures("note which replicas have all data"),
        ):
            complete = self._record.complete | {replica_id: format_place(place)}
            record = replace(self._record, number=self._record.number + 1, complete=complete)
            write_record(client.connect_to(place), self.target, record)
            self._record, before = record, self._record
            try:
                self._save(self.list_readable(), client)
            except BaseException:
                self._record, self._is_saved = replace(before, number=record.number), False
                raise
            self._ids[place] = replica_id

    def _save(self, places: Iterable[Place], client: NodesClient | None) -> None:
        """Write the record to the file, and to some replicas. Raises the error of the last one if none took it."""
        if self._file is not None:
            self._file.write(self._record)
        failure: Exception | None = None
        saved = 0
        with nullcontext(client) if client else closing(NodesClient(self, None, SILENCE_SECONDS)) as own:
            for place in places:
                try:
                    write_record(own.connect_to(place), self.target, self._record)
                    saved += 1
                except LOST as error:
                    own.drop(place)
                    failure = error
        if failure is not None and (client is None or (self._file is None and not saved)):
            raise failure
        self._is_saved = True


def list_places(places: Iterable[Place]) -> str:
    """Return the names of servers for a message."""
    return ", ".join(map(format_place, places))
