"""Tests of OpenTSDB's telnet protocol over a real socket, on a server without HTTP."""

import socket
import threading
from contextlib import closing

import pytest
from tests.store_contract.samples import FOREVER
from tests.support.fakes import NOW
from tests.support.memory_store import MemoryStore
from tests.support.serving import serving
from tests.support.waiting import wait_until

from jobmeter.errors import UnavailableError
from jobmeter.model.series import Series
from jobmeter.server.address import bind
from jobmeter.server.telnet import TelnetServer
from jobmeter.store.base import SeriesSelector

T = NOW // 1000
LOCAL = "127.0.0.1"


class Line:
    """Connection of a client."""

    def __init__(self, address):
        self.socket = socket.create_connection(address, timeout=20)
        self.file = self.socket.makefile("rb")

    def send(self, text):
        self.socket.sendall(text if isinstance(text, bytes) else text.encode())

    def answer(self):
        return self.file.readline().decode()

    def ask(self, text):
        self.send(text)
        return self.answer()

    def rest(self):
        """Return the rest of the answers until the server closes the connection."""
        self.socket.shutdown(socket.SHUT_WR)
        return self.file.read().decode()

    def close(self):
        self.file.close()
        self.socket.close()


class Telnet:
    """Server with its port."""

    def __init__(self, folder, store=None, key=None, most=100):
        self.store = store or MemoryStore()
        self.application = serving(folder, self.store, **({"opentsdb_key": key} if key else {}))
        self.bound = bind(LOCAL, 0)
        self.server = TelnetServer(self.application.application.services, self.bound, most)
        self.lines: list[Line] = []
        self.server.start()

    def connect(self):
        line = Line(self.server.address)
        self.lines.append(line)
        return line

    def metrics(self):
        return self.application.raw("GET", "/metrics").body.decode()

    def series(self):
        return self.store.find(SeriesSelector(metrics=frozenset({"external.m", "cpu.usage"})))

    def close(self):
        for line in self.lines:
            line.close()
        self.server.stop()
        self.bound.close()
        self.application.application.close()


@pytest.fixture
def telnet(tmp_path):
    with closing(Telnet(tmp_path / "data")) as made:
        yield made


def put(metric="m", at=T, value: object = 1, tags="host=a"):
    return f"put {metric} {at} {value} {tags}\n"


def test_a_key_opens_and_what_is_put_is_stored(telnet):
    line, key = telnet.connect(), telnet.application.key("writer", "lab")
    line.send(f"auth {key.token}\n{put()}{put(value=2.5, tags='host=b  dc=lga')}")
    assert line.ask("version\n").startswith("Jobmeter ")
    assert set(telnet.series()) == {
        Series("external.m", "lab", node="a"),
        Series("external.m", "lab", node="b", labels=(("dc", "lga"),)),
    }
    assert "jobmeter_ingest_samples_accepted_total 2.0" in telnet.metrics()


def test_what_is_answered_after_a_put_says_that_it_is_stored(telnet):
    """A command is executed only after the puts before it are durable."""
    line, key = telnet.connect(), telnet.application.key("writer", "lab")
    line.send(f"auth {key.token}\n")
    for at in range(20):
        assert line.ask(put(at=T - at) + "version\n")
        assert f"jobmeter_ingest_samples_accepted_total {at + 1}.0" in telnet.metrics()


def test_without_a_key_nothing_is_stored(telnet):
    line = telnet.connect()
    assert line.ask(put()) == "put: not authorized: send `auth TOKEN' first\n"
    assert telnet.series() == []
    assert 'rejected_total{reason="unauthorized"} 1.0' in telnet.metrics()


@pytest.mark.parametrize("token", ["jm_wrong", "", "x" * 600])
def test_a_wrong_key_ends_the_connection(telnet, token):
    line = telnet.connect()
    assert line.ask(f"auth {token}\n").startswith("auth: ")
    assert line.rest() == ""
    assert "jobmeter_access_refused_total" in telnet.metrics()


def test_a_reader_may_not_write(telnet):
    line, key = telnet.connect(), telnet.application.key("reader", "lab")
    assert line.ask(f"auth {key.token}\n") == "auth: a key of role reader may not do ingest:write\n"
    assert line.rest() == ""


def test_a_key_of_the_settings_is_every_connection_s(tmp_path):
    from tests.support.fakes import SetClock

    from jobmeter.access.keys import create_key
    from jobmeter.access.vault import Vault
    from jobmeter.registry.open import open_registry
    from jobmeter.settings import Settings

    folder = tmp_path / "data"
    folder.mkdir(mode=0o700)
    settings = Settings(data=folder)
    registry = open_registry(settings.registry_url, settings.retention)
    key = create_key(registry, Vault.load(settings), SetClock(), "collectd", "writer", "lab")
    registry.close()
    with closing(Telnet(folder, key=key.token)) as telnet:
        line = telnet.connect()
        line.send(put())
        assert line.ask("version\n").startswith("Jobmeter ")
        assert telnet.series() == [Series("external.m", "lab", node="a")]


def test_a_key_that_is_revoked_stops_a_connection(telnet):
    line, key = telnet.connect(), telnet.application.key("writer", "lab")
    line.send(f"auth {key.token}\n{put()}")
    assert line.ask("version\n")
    services = telnet.application.application.services
    services.registry.keys.revoke(key.id, NOW)
    services.authenticator.forget(key.id)
    assert line.ask(put(at=T - 1)).startswith("put: not authorized: the key was revoked")
    assert line.ask(put(at=T - 2)) == "put: not authorized: send `auth TOKEN' first\n"


def test_a_wrong_line_is_answered_and_the_others_are_stored(telnet):
    line, key = telnet.connect(), telnet.application.key("writer", "lab")
    line.send(f"auth {key.token}\n{put(value='x')}{put()}{put(tags='project=other')}{put('cpu.usage', value=-1)}")
    assert [line.answer() for _ in range(3)] == [
        "put: invalid value: Unable to parse value to a number\n",
        "put: illegal argument: this key belongs to project lab, not to other\n",
        "put: invalid value: cpu.usage -1.0 is outside of [0, inf]: is its unit right?\n",
    ]
    assert line.ask("nonsense\n") == "unknown command: nonsense.  Try `help'.\n"
    assert len(telnet.series()) == 1
    metrics = telnet.metrics()
    assert 'rejected_total{reason="value"} 2.0' in metrics
    assert 'rejected_total{reason="project"} 1.0' in metrics


def test_times_that_are_dropped_are_reported(telnet):
    line, key = telnet.connect(), telnet.application.key("writer", "lab")
    line.send(f"auth {key.token}\n")
    assert line.ask(put(at=T + 3600)) == "put: illegal argument: 1 data points are too far in the future\n"
    assert line.ask(put(at=T - 40 * 86_400)) == "put: illegal argument: 1 data points are too far in the past\n"


def test_commands_are_obeyed(telnet):
    line = telnet.connect()
    assert line.ask("help\r\n") == "available commands: auth exit help put stats version\n"
    assert line.ask("stats\n") == "stats: not authorized\n"
    writer = telnet.application.key("writer", "lab")
    line.send(f"auth {writer.token}\n")
    assert line.ask("stats\n") == "stats: a key of role writer may not do server:read\n"
    line.send(f"auth {telnet.application.admin.token}\n")
    assert line.ask("stats\n").split()[:2] == ["tsd.uptime", str(T)]
    line.send("exit\n")
    assert "tsd." in line.file.read().decode()


def test_a_line_that_is_too_long_is_reported(telnet):
    line = telnet.connect()
    assert line.ask(b"put " + b"x" * 40_000 + b"\n") == "error: a line may have at most 16384 bytes\n"
    assert line.ask("version\n").startswith("Jobmeter ")


def test_a_sender_that_never_reads_is_served_all_the_same(telnet):
    line, key = telnet.connect(), telnet.application.key("writer", "lab")
    line.send(f"auth {key.token}\n")
    wrong = put(value="x").encode() * 1_000
    for _ in range(100):
        line.send(wrong)
    line.send(put())
    line.socket.shutdown(socket.SHUT_WR)
    wait_until(telnet.series)


def test_strangers_make_place_for_others_and_a_client_with_a_key_stays(tmp_path):
    with closing(Telnet(tmp_path / "data", most=3)) as telnet:
        line, key = telnet.connect(), telnet.application.key("writer", "lab")
        line.send(f"auth {key.token}\n")
        assert line.ask("version\n")
        for _ in range(50):
            assert telnet.connect().ask("version\n").startswith("Jobmeter")
        assert line.ask(put() + "version\n").startswith("Jobmeter")
        assert len(telnet.series()) == 1
        assert 'jobmeter_connections{port="telnet"} 3.0' in telnet.metrics()
        assert 'jobmeter_connections_closed_total{port="telnet",reason="replaced"} 48.0' in telnet.metrics()


def test_a_stranger_has_a_minute_whatever_it_sends_and_who_shows_a_key_more(telnet):
    now = [0.0]
    telnet.server.connections.clock = lambda: now[0]
    stranger, line = telnet.connect(), telnet.connect()
    line.send(f"auth {telnet.application.key('writer', 'lab').token}\n")
    assert line.ask("version\n")
    for second in range(60):
        now[0] = float(second)
        assert stranger.ask("version\n").startswith("Jobmeter")
    now[0] = 60.0
    wait_until(lambda: stranger.file.read() == b"")
    assert line.ask("version\n").startswith("Jobmeter")


class FullStore(MemoryStore):
    """Store that refuses appends while ``full`` is set."""

    def __init__(self):
        super().__init__()
        self.full = threading.Event()
        self.tries = 0

    def append_all(self, batches, retention=FOREVER):
        self.tries += 1
        if self.full.is_set():
            raise UnavailableError("the disk is full", 10)
        super().append_all(batches, retention)


def test_a_store_that_is_full_holds_the_sender_back(tmp_path):
    store = FullStore()
    with closing(Telnet(tmp_path / "data", store)) as telnet:
        line, key = telnet.connect(), telnet.application.key("writer", "lab")
        store.full.set()
        line.send(f"auth {key.token}\n{put()}")
        wait_until(lambda: store.tries > 2)
        store.full.clear()
        assert line.ask("version\n").startswith("Jobmeter ")
        assert len(telnet.series()) == 1


def test_a_store_that_stays_full_ends_the_connection(tmp_path, monkeypatch):
    monkeypatch.setattr("jobmeter.server.telnet.PATIENCE_SECONDS", 0.05)
    store = FullStore()
    with closing(Telnet(tmp_path / "data", store)) as telnet:
        line, key = telnet.connect(), telnet.application.key("writer", "lab")
        store.full.set()
        line.send(f"auth {key.token}\n{put()}")
        assert line.rest() == "put: storage error: the disk is full\n"
        assert 'rejected_total{reason="unavailable"} 1.0' in telnet.metrics()


def test_what_a_stopping_server_has_read_is_stored(telnet):
    line, key = telnet.connect(), telnet.application.key("writer", "lab")
    line.send(f"auth {key.token}\n" + "".join(put(at=T - at) for at in range(500)))
    assert line.ask("version\n")
    telnet.server.stop()
    assert "jobmeter_ingest_samples_accepted_total 500.0" in telnet.metrics()
    assert line.file.read() == b""


def test_lines_without_a_key_are_counted_and_not_read(telnet):
    line = telnet.connect()
    line.send(put() + "put wrong\n" + put() + "version\n")
    assert line.answer().startswith("put: not authorized")
    assert line.answer().startswith("Jobmeter ")
    assert 'jobmeter_ingest_samples_rejected_total{reason="unauthorized"} 3.0' in telnet.metrics()


def test_lines_wait_for_memory_and_are_given_up_after_that(telnet, monkeypatch):
    monkeypatch.setattr("jobmeter.server.telnet.PATIENCE_SECONDS", 0.0)
    memory = telnet.application.application.services.memory
    line, key = telnet.connect(), telnet.application.key("writer", "lab")
    line.send(f"auth {key.token}\n")
    assert line.ask("version\n").startswith("Jobmeter ")
    # The memory of a line is released only after its answer.
    wait_until(lambda: memory.in_use == 0, "the end of the lines before")
    others = memory.size
    memory.take(others)
    assert line.ask(put()).startswith("put: storage error: the running requests use all available memory")
    assert line.rest() == ""
    memory.give_back(others)
    assert telnet.series() == []


def test_what_lines_took_is_given_back_with_their_connection(telnet):
    line, key = telnet.connect(), telnet.application.key("writer", "lab")
    line.send(f"auth {key.token}\n" + "".join(put(tags=f"host=n{at}") for at in range(100)))
    assert line.ask("version\n").startswith("Jobmeter ")
    line.rest()
    telnet.server.stop()
    assert telnet.application.application.services.memory.in_use == 0
