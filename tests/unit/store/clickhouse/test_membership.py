"""Servers on one node agree on who may acknowledge from a journal, whatever stops, dies or wakes up at any moment."""

import time
from contextlib import suppress

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from jobmeter.errors import UnavailableError
from jobmeter.store.clickhouse.lock import FolderLock
from jobmeter.store.clickhouse.membership import EXPELLED_SECONDS, FENCE_SECONDS, SILENT_SECONDS, NodeMembership
from jobmeter.store.clickhouse.servers import DEPARTED, EXPELLED, LIVE, ServerRow, ServerTable


class World(ServerTable):
    """A node: its table of servers, the samples that it has, and a clock."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.rows: dict[int, dict[int, ServerRow]] = {}
        self.samples: set[int] = set()
        self.away = False

    def read(self):
        self.answer()
        found = []
        for states in self.rows.values():
            newest = max(states.values(), key=lambda row: row.beat)
            state = max(states)
            if state < DEPARTED:
                found.append(ServerRow(newest.id, newest.beat, newest.journals, newest.host, newest.folder, state))
        return found

    def write(self, row):
        self.answer()
        states = self.rows.setdefault(row.id, {})
        if row.state not in states or states[row.state].beat <= row.beat:
            states[row.state] = row

    def forget_old(self):
        self.answer()

    def answer(self):
        if self.away:
            raise UnavailableError("the node is away")


class Server:
    """The duties of a server whose journal is a list; the journal outlives the process, as a file does."""

    def __init__(self, world: World, folder) -> None:
        self.world, self.folder = world, folder
        self.is_alone = False
        self.journal: set[int] = set()
        self.others = dict[object, Server]()
        self.start()

    def start(self):
        folder = self.folder
        folder.mkdir(exist_ok=True)
        self.lock = FolderLock(folder)
        self.is_alone = False
        self.membership = NodeMembership(self.world, self, folder, now=lambda: self.world.seconds)

    def die(self):
        self.lock.release()

    def be_alone(self):
        self.is_alone = True

    def be_among_others(self):
        self.recover(self.folder)
        self.is_alone = False

    def recover(self, folder):
        self.world.answer()
        owner = self if folder == self.folder else self.others[folder]
        self.world.samples |= owner.journal
        owner.journal.clear()

    def append(self, sample):
        """Take a sample. Return True if it is acknowledged."""
        if self.is_alone:
            self.journal.add(sample)
            return True
        if self.world.away:
            return False
        self.world.samples.add(sample)
        try:
            self.membership.check()
        except UnavailableError:
            return False
        return True

    def read(self):
        """Return the samples of an answer, or None if the server refuses to answer."""
        if self.world.away:
            return None
        found = self.world.samples | (self.journal if self.is_alone else set())
        try:
            self.membership.check()
        except UnavailableError:
            return None
        return found


class Agreement(RuleBasedStateMachine):
    """Servers start, tick, freeze, die and come back; the node goes away. Each answer has all acknowledged samples."""

    folders: pytest.TempPathFactory

    @initialize()
    def begin(self):
        self.world = World()
        self.servers: list[Server] = []
        self.running: set[int] = set()
        self.frozen: set[int] = set()
        self.acknowledged: set[int] = set()
        self.number = 0
        self.home = type(self).folders.mktemp("world")

    def _server(self, data):
        return self.servers[data.draw(st.sampled_from(sorted(self.running)))]

    @rule(seconds=st.integers(1, 40))
    def go_on(self, seconds):
        """Let seconds pass: in each one every running server that is not frozen ticks."""
        for _ in range(seconds):
            self.world.seconds += 1
            for number in sorted(self.running - self.frozen):
                try:
                    self.servers[number].membership.tick()
                except UnavailableError:
                    assert self.world.away

    @precondition(lambda self: self.running)
    @rule(data=st.data(), frozen=st.booleans())
    def freeze(self, data, frozen):
        number = data.draw(st.sampled_from(sorted(self.running)))
        (self.frozen.add if frozen else self.frozen.discard)(number)

    @precondition(lambda self: len(self.servers) < 4)
    @rule(data=st.data())
    def arrive(self, data):
        server = Server(self.world, self.home / str(len(self.servers)))
        server.others = {one.folder: one for one in self.servers}
        for one in self.servers:
            one.others[server.folder] = server
        self.servers.append(server)
        self._join(len(self.servers) - 1, data)

    @precondition(lambda self: len(self.running) < len(self.servers))
    @rule(data=st.data())
    def come_back(self, data):
        number = data.draw(st.sampled_from(sorted(set(range(len(self.servers))) - self.running)))
        self.servers[number].start()
        self._join(number, data)

    def _join(self, number, data):
        """Start a server, while some of the others tick."""
        attentive = self.running - self.frozen if data.draw(st.integers(0, 4)) else set()
        server = self.servers[number]
        try:
            server.membership.appear()
            for other in sorted(attentive):
                self.servers[other].membership.tick()
            server.membership.join(-1.0)
            self.running.add(number)
        except UnavailableError:
            server.die()

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def tick(self, data):
        try:
            self._server(data).membership.tick()
        except UnavailableError:
            assert self.world.away

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def kill(self, data):
        number = data.draw(st.sampled_from(sorted(self.running)))
        self.servers[number].die()
        self.running.remove(number)
        self.frozen.discard(number)

    @rule(away=st.booleans())
    def node(self, away):
        self.world.away = away

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def append(self, data):
        self.number += 1
        if self._server(data).append(self.number):
            self.acknowledged.add(self.number)

    @invariant()
    def no_answer_lacks_an_acknowledged_sample(self):
        for number in getattr(self, "running", ()):
            found = self.servers[number].read()
            assert found is None or found >= self.acknowledged

    def teardown(self):
        for number in getattr(self, "running", ()):
            self.servers[number].die()


def test_no_answer_lacks_an_acknowledged_sample(tmp_path_factory):
    Agreement.folders = tmp_path_factory
    case = Agreement.TestCase
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
    for _ in range(2):  # it joins again, and waits
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
        second.membership.join(-1.0)  # the first one lives: it has its folder locked
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
    draft = first.folder / ".owner"
    draft.mkdir()  # no file can be written in its place
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
