"""Tests that servers on one node agree on their roles in writing journals, whatever stops, dies or wakes up.

They also announce changed records to each other, so that each may cache them.
"""

import os
import random
import time
from contextlib import suppress
from unittest.mock import patch

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace

from jobmeter.errors import UnavailableError
from jobmeter.store.clickhouse.lock import FolderLock
from jobmeter.store.clickhouse.membership import NodeMembership
from jobmeter.store.clickhouse.roles import Joining, ServerRole
from jobmeter.store.clickhouse.servers import DEPARTED, EXPELLED, LIVE, ServerRow, ServerTable
from jobmeter.store.clickhouse.silence import EXPELLED_SECONDS, FENCE_SECONDS, SILENT_SECONDS


class World(ServerTable):
    """Node with its table of servers, its samples and a clock, and a registry with one record."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.rows: dict[int, dict[int, ServerRow]] = {}
        self.samples: set[int] = set()
        self.record = 0
        self.away = False
        self.table_away = False
        self.writer: object = None
        self.places: dict[str, Server] = {}
        self.sent: list[tuple[int, set[int]]] = []
        """Inserts on their way to the node: the number of their server, and their samples."""
        self.inserts: list[tuple[int, set[int]]] = []
        """Inserts that the node has begun."""

    def begin_insert(self, at):
        """Start an insert that was sent; refuse it from an expelled server."""
        number, samples = self.sent.pop(at)
        if not (self.away or self.table_away) and self.get_state(number) == LIVE:
            self.inserts.append((number, samples))

    def end_insert(self, at):
        """Store the samples of an insert. Its server still has its journal: no newer sample is stored yet."""
        number, samples = self.inserts.pop(at)
        assert max(self.rows[number]) < DEPARTED
        self.samples |= samples

    def end_inserts(self, number):
        """Finish the inserts of a server."""
        self.sent = [one for one in self.sent if one[0] != number]
        for at in reversed(range(len(self.inserts))):
            if self.inserts[at][0] == number:
                self.end_insert(at)

    def is_inserting(self, number):
        self.answer()
        return any(one == number for one, _ in self.inserts)

    def read(self):
        self.answer_table()
        found = []
        for states in self.rows.values():
            newest = max(states.values(), key=lambda row: row.beat)
            state = max(states)
            if state < DEPARTED:
                found.append(replace(newest, state=state))
        return found

    def get_state(self, number):
        self.answer_table()
        return max(self.rows.get(number, {LIVE: None}))

    def write(self, row):
        self.answer_table()
        states = self.rows.setdefault(row.id, {})
        if row.state not in states or states[row.state].beat <= row.beat:
            states[row.state] = row

    def forget_old(self):
        self.answer_table()

    def answer(self):
        if self.away:
            raise UnavailableError("the node is away")

    def answer_table(self):
        if self.table_away:
            raise UnavailableError("the table of servers is away")


class End:
    """End of a connection: messages of the other end wait until this server runs."""

    def __init__(self, owner, server):
        self.owner, self.server = owner, server
        self.other: End
        self.is_closed = self.is_expelled = self.has_worked = False
        self.confirmed = self.answered = float("-inf")
        self.since = owner.world.seconds
        self.position = 0
        self.waiting: list[tuple[str, object]] = []

    def send(self, what, about=None):
        if not self.is_closed and not self.other.is_closed:
            self.other.waiting.append((what, about))

    def close(self):
        self.send("closed")
        self.is_closed = True


class Network:
    """Connections of a server, as ``PeerService`` has them."""

    def __init__(self, server) -> None:
        self.server = server
        self.place = str(server.folder)
        self.accepts = False
        self.allowed = frozenset[int]()
        self.links: list[End] = []  # of servers that want to follow
        self.ready: dict[int, End] = {}
        self.members: dict[int, End] = {}
        self.position = self.term = 0
        self.leader: End | None = None

    def welcome(self, servers):
        self.accepts, self.allowed = True, servers
        for number, link in list(self.ready.items()):
            if number in servers and not link.is_closed:
                del self.ready[number]
                self.members[number] = link
                link.send("welcome")

    def list_followers(self):
        return tuple(self.members.values())

    def drop(self, server):
        link = self.members.pop(server, None)
        if link is not None:
            link.close()

    def refuse(self):
        self.accepts, self.allowed = False, frozenset()
        self.term += 1
        for link in self.links:
            link.close()

    def follow(self, leader, number, resign):
        self.leave()
        other = self.server.world.places.get(leader.peer)
        if other is None or not other.reaches(self.server) or other.membership.number != leader.id:
            return Joining.UNREACHABLE
        if not other.network.accepts:
            return Joining.REFUSED
        resign()
        ours, theirs = End(self.server, leader.id), End(other, number)
        ours.other, theirs.other = theirs, ours
        other.network.drop(number)
        other.network.links.append(theirs)
        self.server.copies = set(other.journal)
        theirs.position = other.network.position
        other.network.ready[number] = theirs
        self.leader = ours
        if number not in other.network.allowed and self.server.patient:
            other.try_tick()
        if other.network.accepts:
            other.network.welcome(other.network.allowed)
        ours.send("ping", self.server.world.seconds)
        theirs.send("ping", self.server.world.seconds)
        self.server.receive()
        if number in other.network.members and not ours.is_closed and ("welcome", None) in self.server.heard:
            return Joining.FOLLOWS
        self.leave()
        return Joining.REFUSED

    def leave(self):
        link, self.leader = self.leader, None
        if link is not None:
            link.close()


class Server:
    """Duties of a server whose journal is a list; the journal outlives the process, as a file does."""

    def __init__(self, world: World, folder, *, peers: bool = False, direct: bool = True) -> None:
        self.world, self.folder, self.peers, self.direct = world, folder, peers, direct
        self.journal: set[int] = set()
        self.others = dict[object, Server]()
        self.patient = True
        self.start()

    def start(self):
        folder = self.folder
        folder.mkdir(exist_ok=True)
        self.lock = FolderLock(folder)
        self.role = ServerRole.IDLE
        self.is_running, self.is_frozen = True, False
        self.alone = False
        self.copies: set[int] = set()
        self.unsettled: list[tuple[object, int, int]] = []
        self.unannounced: list[int] = []  # committed changes of the record
        self.cached: int | None = None
        self.generation = self.role_number = 0
        self.read_in: int | None = None
        self.reading: tuple[int, int] | None = None
        self.heard: list[object] = []
        self.cut_from: set[Server] = getattr(self, "cut_from", set())
        self.network = Network(self)
        network = self.network if self.peers else None
        if self.peers:
            self.world.places[self.network.place] = self
        self.writes = self.direct
        self.membership = NodeMembership(
            self.world, self, folder, now=lambda: self.world.seconds, peers=network, direct=self.direct
        )

    def die(self):
        self.is_running = False
        for link in [*self.network.links, *([self.network.leader] if self.network.leader else [])]:
            link.close()
        self.lock.release()

    @property
    def is_alone(self):
        return self.role is ServerRole.LEADER and self.alone

    def reaches(self, other):
        return self.is_running and not self.is_frozen and other not in self.cut_from and self not in other.cut_from

    def try_tick(self):
        with suppress(UnavailableError):
            self.membership.tick()

    # Methods that the duties call

    @property
    def role(self):
        return self._role

    @role.setter
    def role(self, role):
        self.role_number = getattr(self, "role_number", 0) + 1
        self._role = role

    def begin_writing(self):
        """Exclude other servers from writing to replicas."""
        if not self.direct:
            self.world.answer()
            self.world.writer, self.writes = self, True

    def lead(self):
        self.begin_writing()
        self.role = ServerRole.LEADER

    def note_alone(self, *, alone):
        self.alone = alone

    def follow(self):
        self.writes = self.direct
        self.role = ServerRole.FOLLOWER

    def be_idle(self):
        self.role, self.alone = ServerRole.IDLE, False

    def be_among_others(self):
        self.world.answer()
        self.world.end_inserts(self.membership.number)  # one flush runs at a time
        self.recover(self.folder)
        self.role, self.alone = ServerRole.DIRECT if self.direct else ServerRole.IDLE, False

    def insert_copies(self):
        self.begin_writing()
        self.world.answer()
        self.world.samples |= self.copies

    def drop_copies(self):
        self.copies = set()

    def void(self):
        self.journal.clear()

    def recover(self, folder):
        self.world.answer()
        owner = self if folder == self.folder else self.others[folder]
        if owner.journal:
            self.begin_writing()
        self.world.samples |= owner.journal
        owner.journal.clear()

    # Connections

    def ends(self):
        return [*self.network.links, *([self.network.leader] if self.network.leader else [])]

    def receive(self):
        """Process the messages of other servers, unless this one is frozen or cut off."""
        for end in self.ends():
            while end.waiting and not end.is_closed and self.reaches(end.other.owner):
                what, about = end.waiting.pop(0)
                self.heard = [*self.heard[-5:], (what, about)]
                if what == "closed":
                    end.is_closed = True
                elif what == "ping":
                    if end is self.network.leader or self.membership.is_current():
                        end.answered = self.world.seconds
                        end.send("pong", about)
                elif what == "pong":
                    end.confirmed = max(end.confirmed, about)
                else:
                    self.take(end, what, about)

    def take(self, end, what, about):
        if what == "copy":
            sample, position = about
            self.copies = self.copies | {sample}
            end.send("confirm", position)
        elif what == "record":
            self.drop_record()
            end.send("confirm", about)
        elif what == "confirm":
            end.position = about
        elif what == "flushed":
            self.copies = self.copies - about

    def ping(self):
        for end in self.ends():
            end.send("ping", self.world.seconds)

    def flush(self):
        may_write = self.direct or (self.writes and self.world.writer is self)
        if self.role is ServerRole.LEADER and may_write and not self.world.away and self.membership.is_current():
            self.world.samples |= self.journal
            for end in self.network.links:
                end.send("flushed", set(self.journal))
            self.journal.clear()

    def append(self, sample):
        """Accept a sample. Return True if it is acknowledged at once; otherwise ``settled`` returns it later."""
        if self.role is ServerRole.LEADER:
            self.journal.add(sample)
            self.network.position += 1
            for end in self.network.links:
                end.send("copy", (sample, self.network.position))
            self.unsettled.append((sample, self.network.position, self.network.term))
            return sample in self.settled()
        if self.role is ServerRole.FOLLOWER:
            link = self.network.leader
            assert link
            leader = link.other.owner
            if link.is_closed or not self.reaches(leader) or leader.role is not ServerRole.LEADER:
                return False
            return leader.append(sample)
        if self.role is ServerRole.IDLE or self.world.away:
            return False
        self.world.samples.add(sample)
        try:
            self.membership.check()
        except UnavailableError:
            return False
        return True

    def commit_record(self, version):
        """Change the record in the registry. The change is acknowledged once it is announced."""
        self.world.record = version
        self.drop_record()
        self.unannounced.append(version)

    def announce(self, version):
        """Announce a change. Return True if it is acknowledged at once, as ``append`` does."""
        if self.role is ServerRole.LEADER:
            self.drop_record()
            self.network.position += 1
            for end in self.network.links:
                end.send("record", self.network.position)
            self.unsettled.append((("record", version), self.network.position, self.network.term))
            return ("record", version) in self.settled()
        if self.role is ServerRole.FOLLOWER:
            link = self.network.leader
            assert link
            leader = link.other.owner
            if link.is_closed or not self.reaches(leader) or leader.role is not ServerRole.LEADER:
                return False
            return leader.announce(version)
        if self.role is ServerRole.IDLE:
            return False
        try:
            self.membership.check()
        except UnavailableError:
            return False
        return True

    def drop_record(self):
        self.generation += 1
        self.cached = None

    @property
    def member(self):
        """Return the role's number while the cached record is valid, as in ``NodeLog.membership``; else None."""
        mirrored = self.role in {ServerRole.LEADER, ServerRole.FOLLOWER}
        return self.role_number if mirrored and self.membership.is_current() else None

    def look(self):
        """Return the version of the record in an answer, as ``CacheRefresh`` does."""
        member = self.member
        if member is None or member != self.read_in:
            self.drop_record()  # after a read of the changes
            self.read_in = member
        if self.cached is None:
            self.cached = self.world.record
        return self.cached

    def peek(self):
        """Return the version of the record in an answer from memory; None if the server would read it."""
        member = self.member
        return self.cached if member is not None and member == self.read_in else None

    def begin_flush(self):
        """Send the journal to the node, which takes it later; this server may freeze or die meanwhile."""
        if self.role is ServerRole.LEADER and self.membership.is_current():
            self.world.sent.append((self.membership.number, set(self.journal)))

    def settled(self):
        """Return the samples and the changes of the record that every follower has confirmed so far."""
        if self.is_frozen or not self.is_running:
            return set()
        self.unsettled = [one for one in self.unsettled if one[2] == self.network.term]
        least = min((end.position for end in self.network.list_followers()), default=self.network.position)
        done = {sample for sample, position, _ in self.unsettled if position <= least}
        self.unsettled = [one for one in self.unsettled if one[0] not in done]
        return done

    def read(self):
        """Return the samples of an answer, or None if the server refuses to answer."""
        memory = self.role in {ServerRole.LEADER, ServerRole.FOLLOWER}
        if self.world.away and not memory:
            return None
        mine = {ServerRole.LEADER: self.journal, ServerRole.FOLLOWER: self.copies}.get(self.role, set())
        found = self.world.samples | mine
        try:
            self.membership.check()
        except UnavailableError:
            return None
        return found


class Agreement(RuleBasedStateMachine):
    """State machine: servers start, tick, freeze, die, lose connections and return; the node goes away.

    Each answer has all acknowledged samples.
    """

    folders: pytest.TempPathFactory
    peers = False
    direct = True

    @initialize(seed=st.integers(0, 99))
    def begin(self, seed):
        generator = random.Random(seed)
        self.numbers = patch("secrets.randbits", generator.getrandbits)  # the same numbers when a case is repeated
        self.numbers.start()
        self.world = World()
        self.servers: list[Server] = []
        self.acknowledged: set[object] = set()
        self.number = 0
        self.home = type(self).folders.mktemp("world")

    @property
    def samples(self):
        return {one for one in self.acknowledged if isinstance(one, int)}

    @property
    def newest(self):
        """Return the newest acknowledged version of the record."""
        return max((one[1] for one in self.acknowledged if isinstance(one, tuple)), default=0)

    @property
    def running(self):
        return [one for one in getattr(self, "servers", ()) if one.is_running]

    def _draw(self, data):
        return data.draw(st.sampled_from(self.running))

    def _exchange(self):
        """Deliver messages until no message is pending."""
        for _ in range(4):
            for one in self.running:
                if not one.is_frozen:
                    one.receive()
        for one in self.running:
            self.acknowledged |= one.settled()

    def _pass_second(self):
        self.world.seconds += 1
        for one in self.running:
            if not one.is_frozen:
                one.ping()
        self._exchange()
        for one in self.running:
            if not one.is_frozen:
                one.try_tick()
        self._exchange()

    @rule(seconds=st.integers(1, 40))
    def go_on(self, seconds):
        """Let seconds pass: in each second every running server that is not frozen ticks."""
        for _ in range(seconds):
            self._pass_second()
            self.no_answer_lacks_an_acknowledged_sample()

    @precondition(lambda self: self.running)
    @rule(data=st.data(), frozen=st.booleans())
    def freeze(self, data, frozen):
        self._draw(data).is_frozen = frozen

    @precondition(lambda self: len(self.running) > 1)
    @rule(data=st.data(), cut=st.booleans())
    def cut(self, data, cut):
        one, other = self._draw(data), self._draw(data)
        if one is not other:
            (one.cut_from.add if cut else one.cut_from.discard)(other)

    @precondition(lambda self: len(self.running) > 1)
    @rule(data=st.data())
    def lose_connection(self, data):
        one = self._draw(data)
        for end in one.ends():
            end.close()

    @precondition(lambda self: len(self.servers) < 4)
    @rule(data=st.data())
    def arrive(self, data):
        peers = self.peers and data.draw(st.integers(0, 5)) > 0
        server = Server(self.world, self.home / str(len(self.servers)), peers=peers, direct=self.direct)
        server.others = {one.folder: one for one in self.servers}
        for one in self.servers:
            one.others[server.folder] = server
        self.servers.append(server)
        self._join(server, data)

    @precondition(lambda self: len(self.running) < len(self.servers))
    @rule(data=st.data())
    def come_back(self, data):
        server = data.draw(st.sampled_from([one for one in self.servers if not one.is_running]))
        server.start()
        self._join(server, data)

    def _join(self, server, data):
        """Start a server, while some of the others tick."""
        attentive = [one for one in self.running if not one.is_frozen] if data.draw(st.integers(0, 4)) else []
        server.patient = bool(attentive)
        try:
            server.membership.appear()
            for other in attentive:
                if other is not server:
                    other.try_tick()
            server.membership.join(-1.0)
        except UnavailableError:
            server.die()

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def tick(self, data):
        self._draw(data).try_tick()

    @precondition(lambda self: self.running)
    @rule()
    def deliver(self):
        self._exchange()

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def flush(self, data):
        self._draw(data).flush()

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def begin_flush(self, data):
        self._draw(data).begin_flush()

    # Numbers of servers are random: draws of the test must not depend on the leader.
    @precondition(lambda self: self.running)
    @rule(at=st.integers(0, 11))
    def begin_insert(self, at):
        if self.world.sent:
            self.world.begin_insert(at % len(self.world.sent))

    @precondition(lambda self: self.running)
    @rule(at=st.integers(0, 11))
    def end_insert(self, at):
        if self.world.inserts and not self.world.away:
            self.world.end_insert(at % len(self.world.inserts))

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def kill(self, data):
        self._draw(data).die()

    @rule(away=st.booleans())
    def node(self, away):
        self.world.away = away
        if self.direct:
            self.world.table_away = away

    @precondition(lambda self: not self.direct)
    @rule(away=st.booleans())
    def registry(self, away):
        """Make the table of servers unavailable or available again, while the replicas answer."""
        self.world.table_away = away

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def append(self, data):
        self.number += 1
        server = self._draw(data)
        if not server.is_frozen and server.append(self.number):
            self.acknowledged.add(self.number)

    @precondition(lambda self: self.running)
    @rule(data=st.data(), announced=st.booleans())
    def change_record(self, data, announced):
        server = self._draw(data)
        if not server.is_frozen:
            self.number += 1
            server.commit_record(self.number)
            if announced:
                self._announce(server)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def announce(self, data):
        """Announce committed changes of a server, perhaps in another role or after a freeze."""
        server = self._draw(data)
        if not server.is_frozen:
            self._announce(server)

    def _announce(self, server):
        for version in server.unannounced:
            if server.announce(version):
                self.acknowledged.add(("record", version))
        server.unannounced = []

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def look_at_the_record(self, data):
        server = self._draw(data)
        if not server.is_frozen:
            assert server.look() >= self.newest

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def begin_to_read_the_record(self, data):
        server = self._draw(data)
        if not server.is_frozen:
            server.reading = self.world.record, server.generation

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def cache_what_was_read(self, data):
        server = self._draw(data)
        if not server.is_frozen and server.reading is not None:
            version, generation = server.reading
            server.reading = None
            if generation == server.generation:
                server.cached = version

    @invariant()
    def no_answer_has_an_older_record_than_an_acknowledged_one(self):
        for server in self.running:
            version = server.peek()
            assert version is None or version >= self.newest

    @invariant()
    def no_answer_lacks_an_acknowledged_sample(self):
        for server in self.running:
            found = server.read()
            assert found is None or found >= self.samples
            assert self.direct or server.role is not ServerRole.DIRECT

    def teardown(self):
        """Require, once all run and are connected, that every server answers with every acknowledged sample."""
        if self.running:
            self.recover()
        if hasattr(self, "numbers"):
            self.numbers.stop()

    def recover(self):
        self.world.away = self.world.table_away = False
        while self.world.inserts:
            self.world.end_insert(0)
        self.world.sent.clear()
        for server in self.servers:
            server.is_frozen = False
            server.cut_from.clear()
        for _ in range(90):
            self._pass_second()
        leaders = [server for server in self.running if server.role is ServerRole.LEADER]
        for server in self.running:
            found = server.read()
            if found is None:  # the server cannot follow, and must not use replicas
                assert not self.direct
                assert not (server.peers and leaders[0].peers)
            else:
                assert found >= self.samples
            assert server.look() >= self.newest
        if not self.direct or all(row.peer for row in self.world.read() if row.state == LIVE):
            assert len(leaders) == 1
        for server in self.running:
            server.die()


class PeerAgreement(Agreement):
    """State machine in which most servers can reach each other: a leader leads and the others follow."""

    peers = True


class ReplicaAgreement(PeerAgreement):
    """State machine of servers of replicas: only the leader writes to them, and the table of servers is elsewhere."""

    direct = False


@pytest.mark.parametrize("machine", [Agreement, PeerAgreement, ReplicaAgreement])
def test_no_answer_lacks_an_acknowledged_sample(machine, tmp_path_factory):
    machine.folders = tmp_path_factory
    case = machine.TestCase
    case.settings = settings(max_examples=80, stateful_step_count=50, deadline=None)
    case("runTest").runTest()


@pytest.fixture
def world():
    return World()


def joined(world, folder, *others):
    """Return a new server that has joined, after a tick of each of the others."""
    server = Server(world, folder)
    server.membership.appear()
    for one in others:
        one.membership.tick()
    server.membership.join(-1.0)
    return server


def ticks(world, seconds, *servers):
    for _ in range(int(seconds)):
        world.seconds += 1
        for one in servers:
            one.membership.tick()


def test_a_server_by_itself_is_alone_from_its_start(world, tmp_path):
    assert joined(world, tmp_path / "a").is_alone


def test_a_server_without_a_folder_is_never_alone(world, tmp_path):
    server = Server(world, tmp_path / "a")
    server.membership = NodeMembership(world, server, None, now=lambda: world.seconds)
    server.membership.join(0.0)
    ticks(world, 60, server)
    assert not server.is_alone


def test_a_start_waits_for_the_consent_of_the_server_that_is_alone(world, tmp_path):
    first = joined(world, tmp_path / "a")
    first.append(1)
    second = Server(world, tmp_path / "b")
    with pytest.raises(UnavailableError, match=r"samples in its journal.*/a on "):
        second.membership.join(-1.0)
    assert max(world.rows[second.membership.number]) == DEPARTED
    second.die()
    second = joined(world, tmp_path / "b", first)
    assert not first.is_alone
    assert second.read() == {1}


def test_servers_are_among_others_until_all_but_one_have_departed(world, tmp_path):
    first = joined(world, tmp_path / "a")
    second = joined(world, tmp_path / "b", first)
    ticks(world, 60, first, second)
    assert not first.is_alone
    assert not second.is_alone
    second.membership.depart()
    first.membership.tick()
    assert first.is_alone


def test_a_silent_server_is_followed_only_when_it_can_answer_no_more(world, tmp_path):
    first = joined(world, tmp_path / "a")
    second = joined(world, tmp_path / "b", first)
    ticks(world, SILENT_SECONDS + 3, first)
    assert second.read() is None
    assert max(world.rows[second.membership.number]) == EXPELLED
    assert not first.is_alone
    ticks(world, EXPELLED_SECONDS + 2, first)
    assert first.is_alone
    first.append(1)
    for _ in range(2):  # it joins again and waits
        second.membership.tick()
        assert second.read() is None
    first.membership.tick()
    second.membership.tick()
    assert second.read() == {1}
    assert EXPELLED_SECONDS > FENCE_SECONDS


def test_a_start_takes_over_the_journal_of_a_dead_server_that_it_reaches(world, tmp_path):
    first = joined(world, tmp_path / "a")
    first.append(1)
    second = Server(world, tmp_path / "b")
    second.others = {first.folder: first}
    with pytest.raises(UnavailableError):
        second.membership.join(-1.0)  # the first server lives: it has locked its folder
    first.die()
    second.die()
    second.start()
    second.membership.join(-1.0)
    assert second.is_alone
    assert second.read() == {1}


def test_a_newcomer_between_two_reads_of_the_table_counts(world, tmp_path):
    second = Server(world, tmp_path / "b")
    write = world.write

    def write_beside_a_newcomer(row):
        write(row)
        if row.journals:
            world.write = write
            second.membership.appear()

    world.write = write_beside_a_newcomer
    assert not joined(world, tmp_path / "a").is_alone


def test_the_operator_may_give_up_a_journal_that_is_out_of_reach(world, tmp_path):
    first = joined(world, tmp_path / "a")
    first.append(1)
    first.die()
    (first.folder / "owner").unlink()
    second = Server(world, tmp_path / "b")
    second.membership.join(-1.0, discard=True)
    assert second.read() == set()
    assert LIVE not in {max(states) for number, states in world.rows.items() if number != second.membership.number}


def test_a_server_that_runs_hands_over_its_journal_though_the_operator_gives_up_those_out_of_reach(world, tmp_path):
    first = joined(world, tmp_path / "a")
    first.append(1)
    number = first.membership.number
    second = Server(world, tmp_path / "b")
    waits = iter([lambda: None, first.membership.tick])

    def now():
        next(waits, lambda: None)()
        return world.seconds

    second.membership = NodeMembership(world, second, second.folder, now=now)
    second.membership.join(discard=True)
    assert second.read() == {1}
    assert not first.is_alone
    assert set(world.rows[number]) == {LIVE}


def test_an_expelled_server_whose_disk_is_full_joins_again_under_the_number_that_its_folder_has(world, tmp_path):
    first = joined(world, tmp_path / "a")
    number = first.membership.number
    world.write(ServerRow(number, beat=99, state=EXPELLED))
    draft = first.folder / f".owner.{os.getpid()}"
    draft.mkdir()  # a folder in the file's place cannot be replaced
    for _ in range(2):
        with pytest.raises(UnavailableError):
            first.membership.tick()
    assert first.membership.number == number
    draft.rmdir()
    ticks(world, EXPELLED_SECONDS + 3, first)
    assert first.is_alone
    assert (first.folder / "owner").read_text() == str(first.membership.number) != str(number)


def test_a_server_that_died_alone_recovers_its_own_journal_and_is_alone_again(world, tmp_path):
    first = joined(world, tmp_path / "a")
    first.append(1)
    first.die()
    first.start()
    first.membership.join(-1.0)
    assert first.is_alone
    assert world.samples == {1}


def test_each_server_names_its_role(world, tmp_path):
    first = joined(world, tmp_path / "a")
    assert first.membership.role == "alone"
    second = joined(world, tmp_path / "b", first)
    assert all(one.membership.role.startswith("direct") for one in (first, second))  # they have no connections


def test_an_expelled_server_that_was_alone_hands_its_journal_over(world, tmp_path):
    first = joined(world, tmp_path / "a")
    first.append(1)
    world.write(ServerRow(first.membership.number, beat=99, state=EXPELLED))
    first.membership.tick()
    assert not first.is_alone
    assert world.samples == {1}


def test_a_server_consents_only_when_the_node_has_its_journal(world, tmp_path):
    first = joined(world, tmp_path / "a")
    first.append(1)
    Server(world, tmp_path / "b").membership.appear()

    def refuse():
        raise UnavailableError("the disk of the node is full")

    first.be_among_others = refuse
    with pytest.raises(UnavailableError):
        first.membership.tick()
    assert {row.journals for row in world.read() if row.id == first.membership.number} == {True}


def test_a_row_is_newer_than_one_whose_write_failed_and_may_be_stored(world, tmp_path):
    write, beats = world.write, []

    def write_without_answer(row):
        beats.append(row.beat)
        write(row)
        if len(beats) in {2, 4}:
            raise UnavailableError("no answer")

    world.write = write_without_answer
    server = Server(world, tmp_path / "a")
    for attempt in (lambda: server.membership.join(-1.0), server.membership.tick, server.membership.tick):
        with suppress(UnavailableError):
            attempt()
    assert len(beats) > 4
    assert beats == sorted(set(beats))


def test_a_look_that_takes_long_confirms_its_beginning(world, tmp_path):
    first = joined(world, tmp_path / "a")
    second = joined(world, tmp_path / "b", first)
    read = world.read

    def read_slowly():
        world.seconds += FENCE_SECONDS - 2
        return read()

    world.read = read_slowly
    second.membership.tick()
    second.membership.check()
    world.seconds += 3
    assert second.read() is None


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="the system has no clock that goes on while it sleeps")
def test_the_clock_goes_on_while_the_machine_sleeps(world, tmp_path, monkeypatch):
    server = Server(world, tmp_path / "a")
    monkeypatch.setattr(time, "clock_gettime", {time.CLOCK_BOOTTIME: 0.0}.__getitem__)
    NodeMembership(world, server, None).join(0.0)


def run_together(world, seconds, *servers):
    """Let seconds pass for servers that reach each other."""
    for _ in range(int(seconds)):
        world.seconds += 1
        for work in (Server.ping, *4 * [Server.receive], Server.try_tick, *4 * [Server.receive]):
            for one in servers:
                work(one)


def begin_insert(world, server):
    server.begin_flush()
    world.begin_insert(0)
    assert world.is_inserting(server.membership.number)


def test_a_follower_succeeds_a_frozen_leader_once_its_inserts_have_ended(world, tmp_path):
    leader, follower = (Server(world, tmp_path / name, peers=True) for name in "ab")
    leader.membership.join(-1.0)
    follower.membership.appear()
    leader.membership.tick()
    follower.membership.join(-1.0)
    run_together(world, 3, leader, follower)
    assert follower.role is ServerRole.FOLLOWER
    number = leader.membership.number
    leader.append(1)
    run_together(world, 1, leader, follower)
    begin_insert(world, leader)
    leader.begin_flush()  # the freeze comes before the insert
    leader.is_frozen = True
    run_together(world, 60, follower)
    assert world.get_state(number) == EXPELLED
    assert not follower.is_alone
    world.end_insert(0)
    run_together(world, 3, follower)
    assert follower.is_alone
    world.begin_insert(0)
    assert not world.inserts


@pytest.mark.parametrize("name", ["a", "b"])
def test_a_journal_is_inserted_once_the_inserts_of_the_server_that_left_it_have_ended(world, tmp_path, name):
    first = joined(world, tmp_path / "a")
    first.append(1)
    begin_insert(world, first)
    first.die()
    recoverer = first
    if name == "b":
        recoverer = Server(world, tmp_path / "b")
        recoverer.others = {first.folder: first}
        recoverer.die()
    for _ in range(2):
        recoverer.start()
        with pytest.raises(UnavailableError):
            recoverer.membership.join(-1.0)
        assert not world.samples
        recoverer.die()
    world.end_insert(0)
    recoverer.start()
    recoverer.membership.join(-1.0)
    assert recoverer.is_alone
    assert recoverer.read() == {1}
