"""Tests of a leader and a follower in one process: copies, forwarded batches, strangers, and lost connections."""

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace
from tests.support.waiting import wait_until
from tests.unit.store.rows import LONG, listed, rows_of

from jobmeter.errors import ConfigurationError, ThrottledError, UnavailableError
from jobmeter.model.batch import SampleBatch
from jobmeter.model.series import Series
from jobmeter.store.channel import encode_message
from jobmeter.store.clickhouse.descriptors import Descriptors
from jobmeter.store.clickhouse.peer_messages import Hello
from jobmeter.store.clickhouse.peer_place import PeerPlace, parse_listen
from jobmeter.store.clickhouse.peer_work import PeerWork
from jobmeter.store.clickhouse.peers import PeerService
from jobmeter.store.clickhouse.replica_state import ReplicaSetState
from jobmeter.store.clickhouse.roles import Joining
from jobmeter.store.clickhouse.servers import ServerRow


class Rows:
    """Rows of a leader's journal, or copies of a follower."""

    def __init__(self):
        self.groups = []
        self.changes = []
        self.records: list[list[str]] = []
        self.replicas: list[object] = []
        self.intents = set()

    def register(self, take):
        take(self.groups)

    def begin_copies(self):
        self.groups = []

    def copy(self, group, intent):
        self.groups = [*self.groups, *group]
        self.intents.add(intent)

    def drop_oldest(self, blocks):
        self.groups = self.groups[blocks:]

    def use_replicas(self, record):
        self.replicas.append(record)

    def change(self, jobs, *, dropped, records):
        self.changes.append((jobs, dropped))
        self.records.append(list(records))


class Pair:
    """Leader, and a server that may follow it."""

    def __init__(self, folder):
        self.seconds = 0.0
        self.rows, self.copies = Rows(), Rows()
        self.stored = []
        self.failure: Exception | None = None
        for name in ("leader", "follower"):
            (folder / name).mkdir()
        self.folder = folder
        self.leader = self._service(folder / "leader", self.rows)
        self.follower = self._service(folder / "follower", self.copies)
        self.followed = self.leader.followed
        self.followed.may_sign = lambda: True
        self.followed.read_intent = lambda: 7
        commands = {
            "roll_up": lambda command: command.argument or 0,
            "announce": lambda command: self.announce(msgspec.msgpack.decode(command.content)),
        }
        self.followed.work = PeerWork(self.store, commands)

    def _service(self, folder, rows):
        return PeerService(("127.0.0.1", 0), (), folder, rows, lambda: self.seconds)

    @contextmanager
    def another(self, rows):
        """Yield another server that may follow the leader."""
        (self.folder / "another").mkdir()
        service = self._service(self.folder / "another", rows)
        try:
            yield service
        finally:
            service.close()

    def store(self, batches, retention):
        if self.failure is not None:
            raise self.failure
        self.stored += [(batch, retention) for batch in batches]

    def announce(self, jobs):
        self.rows.change((), dropped=False, records=jobs)
        term = self.followed.term
        self.followed.send_change((), dropped=False, records=jobs)
        self.followed.await_followers(term)
        return 0

    def add(self, rows):
        self.rows.groups = [*self.rows.groups, rows]
        self.followed.note_added([rows])

    def follow(self, place=""):
        row = ServerRow(1, peer=place or self.leader.place)
        return self.follower.follow(row, 2, lambda: None)

    def close(self):
        self.follower.close()
        self.leader.close()


@pytest.fixture
def pair(tmp_path) -> Iterator[Pair]:
    pair = Pair(tmp_path)
    yield pair
    pair.close()


@pytest.fixture
def followed(pair):
    """Yield a pair after the join."""
    pair.leader.welcome(frozenset({2}))
    assert pair.follow() is Joining.FOLLOWS
    return pair


ONE = rows_of([(1, 5, 1.0), (2, 5, 2.0)])


def described(rows):
    series = [Series("gpu.power", job="one", replica=f"worker-{number}") for number in range(len(rows.keys))]
    found = Descriptors.from_series(series, rows.keys, np.zeros(len(series), np.int64), 30)
    return type(rows)(rows.keys, rows.count, rows.time, rows.value, rows.retention, None, found)


def test_a_follower_has_the_rows_from_before_and_after_it_joined_until_the_engine_has_them(pair):
    pair.leader.welcome(frozenset({2}))
    pair.add(described(ONE))
    assert pair.follow() is Joining.FOLLOWS
    assert [one.server for one in pair.leader.list_followers()] == [2]
    term = pair.followed.term
    for number in range(3):
        pair.add(rows_of([(number, 10, 1.0)]))
    pair.add(pair.rows.groups[0])
    pair.followed.await_followers(term)
    assert listed(pair.copies.groups) == listed(pair.rows.groups)
    assert pair.copies.groups[0].descriptors.series == pair.rows.groups[0].descriptors.series
    assert pair.copies.groups[0].keys is not None
    assert pair.copies.intents == {7}
    pair.followed.note_flushed(2)
    pair.followed.send_change([4], dropped=True)
    pair.followed.await_followers(term)
    assert listed(pair.copies.groups) == listed(pair.rows.groups[2:])
    assert pair.copies.changes == [([4], True)]


def test_a_follower_knows_which_replicas_have_all_data_before_the_leader_goes_on(pair):
    records = [ReplicaSetState(identity="a", owner="b", number=number, complete={"id": "one:1"}) for number in range(2)]
    pair.followed.replicas = lambda: records[0]
    pair.leader.welcome(frozenset({2}))
    assert pair.follow() is Joining.FOLLOWS
    assert pair.copies.replicas == records[:1]
    term = pair.followed.term
    pair.followed.announce(records[1])
    pair.followed.await_followers(term)
    assert pair.copies.replicas == records


def test_a_second_follower_leaves_the_first_one_able_to_read_repeated_lists(pair):
    pair.leader.welcome(frozenset({2, 3}))
    assert pair.follow() is Joining.FOLLOWS
    pair.add(ONE)
    copies = Rows()
    with pair.another(copies) as second:
        assert second.follow(ServerRow(1, peer=pair.leader.place), 3, lambda: None) is Joining.FOLLOWS
        pair.add(ONE)
        pair.followed.await_followers(pair.followed.term)
        assert listed(pair.copies.groups) == listed(copies.groups) == listed(pair.rows.groups)


def batch(number):
    series = [Series("gpu.power", job="one", replica=f"worker-{one}") for one in range(3)]
    return SampleBatch(series, np.arange(3, dtype=np.uint32), np.full(3, number), np.full(3, number / 7))


def test_the_leader_stores_batches_and_finds_repeated_lists_again(followed):
    link = followed.follower.leader
    first = batch(1)
    again = SampleBatch(first.series, first.index, first.time + 1, first.value, first.keys)
    link.append([first, again], LONG)
    link.append([again, batch(2)], LONG)
    sent = [first, again, again, batch(2)]
    assert len(followed.stored) == len(sent)
    for (stored, retention), one in zip(followed.stored, sent, strict=True):
        assert retention == LONG
        assert list(stored.series) == list(one.series)
        assert stored.keys.series.tolist() == one.keys.series.tolist()
        assert [column.tolist() for column in (stored.index, stored.time, stored.value)] == [
            column.tolist() for column in (one.index, one.time, one.value)
        ]
    assert followed.stored[0][0].keys is followed.stored[2][0].keys
    assert link.run_command("roll_up", 5) == 5


def test_an_error_of_the_leader_is_raised_at_the_follower(followed):
    followed.failure = ThrottledError("too much", 300)
    with pytest.raises(ThrottledError, match="too much") as found:
        followed.follower.leader.append([batch(1)], LONG)
    assert found.value.retry_after_ms == 300
    followed.failure = ValueError("a bug")
    with pytest.raises(UnavailableError, match="see its log"):
        followed.follower.leader.append([batch(1)], LONG)


def test_nobody_follows_a_server_that_does_not_lead_or_did_not_allow_it(pair):
    assert pair.follow() is Joining.REFUSED
    pair.leader.welcome(frozenset({2}))
    assert pair.follow() is Joining.FOLLOWS
    pair.leader.refuse()
    wait_until(lambda: pair.follower.leader.is_closed)
    assert pair.follow() is Joining.REFUSED


def test_a_leader_that_gave_up_its_followers_confirms_no_samples(followed):
    term = followed.followed.term
    followed.leader.refuse()
    followed.leader.drop(2)
    with pytest.raises(UnavailableError):
        followed.followed.await_followers(term)


def test_a_lost_connection_ends_the_calls_that_wait(followed):
    link = followed.follower.leader
    followed.leader.drop(2)
    wait_until(lambda: link.is_closed)
    with pytest.raises(UnavailableError, match="has ended"):
        link.append([batch(1)], LONG)


def test_both_give_signs_of_life(followed):
    (link,) = followed.leader.list_followers()
    followed.seconds = 5.0
    wait_until(lambda: link.confirmed == 5.0 and followed.follower.leader.confirmed == 5.0)
    followed.followed.may_sign = lambda: False
    followed.seconds = 9.0
    wait_until(lambda: link.confirmed == 9.0)
    assert followed.follower.leader.confirmed < 9.0


@pytest.mark.parametrize("what", ["secret", "certificate", "port", "text"])
def test_a_server_that_is_not_in_the_table_is_not_followed(pair, what):
    pair.leader.welcome(frozenset({2}))
    place = PeerPlace.parse(pair.leader.place)
    assert place
    wrong = {"secret": "0" * 64, "certificate": "0" * 64, "port": 1}
    text = replace(place, **{what: wrong[what]}).format() if what in wrong else "{"
    assert pair.follow(text) is not Joining.FOLLOWS
    assert not pair.leader.list_followers()


@pytest.mark.parametrize("sent", [b"\xff" * 4_096, encode_message(Hello(2, "wrong")), b""])
def test_a_stranger_is_cut_off(pair, sent):
    pair.leader.welcome(frozenset({2}))
    place = PeerPlace.parse(pair.leader.place)
    assert place
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection((place.host, place.port)) as plain, context.wrap_socket(plain) as stranger:
        stranger.settimeout(60)
        stranger.sendall(sent)
        with suppress(OSError):  # the leader may reset the connection
            assert stranger.recv(1) == b""
    assert not pair.leader.list_followers()


@pytest.mark.parametrize("text", ["here", "host:", ":80", "host:65536", "host:x"])
def test_an_address_that_is_none_is_refused(text):
    with pytest.raises(ConfigurationError, match="JOBMETER_PEER_LISTEN"):
        parse_listen(text, ())


def test_the_default_address_is_the_one_toward_the_engine():
    assert parse_listen("", (("127.0.0.1", 8123),)) == ("127.0.0.1", 0)
    assert parse_listen("[::1]:80", ()) == ("::1", 80)
    assert parse_listen("off", ()) is None


def test_every_server_drops_the_records_of_a_job_before_its_change_is_acknowledged(followed):
    followed.announce(["one"])
    assert followed.copies.records == [["one"]]
    followed.follower.leader.run_command("announce", None, msgspec.msgpack.encode(["two", "three"]))
    assert followed.rows.records == [["one"], ["two", "three"]]
    assert followed.copies.records == [["one"], ["two", "three"]]


def test_nothing_is_acknowledged_without_a_follower_whose_connection_has_ended(followed):
    [link] = followed.leader.list_followers()
    term, acknowledged = followed.followed.term, []
    followed.follower.leave()
    wait_until(lambda: link.is_closed)
    followed.add(ONE)
    waiting = threading.Thread(target=lambda: acknowledged.append(followed.followed.await_followers(term)))
    waiting.start()
    waiting.join(0.2)
    assert not acknowledged
    followed.followed.drop(2)
    waiting.join()
    assert acknowledged
