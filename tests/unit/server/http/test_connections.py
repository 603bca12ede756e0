"""Tests of the limits on open connections and on their idle time, with a clock that is set."""

import logging

import pytest

from jobmeter.server.http import limits
from jobmeter.server.http.limits import Connections, Reason, compute_share, extend_deadline


class Client:
    """Connection that waits until ``deadline``."""

    def __init__(self, *, keyed=False, deadline=1e9):
        self.keyed = keyed
        self.deadline = deadline
        self.open = True

    def find_overdue_reason(self, now):
        return Reason.IDLE if now >= self.deadline else None

    def cut(self):
        self.open = False


class Port:
    """Connections of a port, with a clock."""

    def __init__(self, bound, reserved=0):
        self.now = 1_000.0
        self.counts = {}
        self.connections = Connections("http", bound, self.count, lambda: self.now, reserved)

    def count(self, port, reason):
        self.counts[port, reason] = self.counts.get((port, reason), 0) + 1

    def busy(self, **options):
        client = Client(**options)
        assert self.connections.admit(client)
        self.connections.mark_working(client)
        return client


def test_a_new_connection_takes_the_place_of_the_stranger_that_waits_longest():
    port = Port(bound=3)
    clients = [Client() for _ in range(10)]
    for client in clients:
        assert port.connections.admit(client)
        assert len(port.connections) <= 3
    assert [client.open for client in clients] == [False] * 7 + [True] * 3
    assert port.counts == {("http", Reason.REPLACED): 7}


def test_who_showed_a_key_stays_while_there_are_strangers():
    port = Port(bound=4)
    keyed_connections = [port.busy(keyed=True) for _ in range(2)]
    for client in keyed_connections:
        port.connections.mark_waiting(client)
    for _ in range(1_000):
        assert port.connections.admit(Client())
    assert all(client.open for client in keyed_connections)
    assert len(port.connections) == 4


def test_an_idle_connection_with_a_key_makes_place_where_all_others_are_busy():
    port = Port(bound=2)
    idle, busy = port.busy(keyed=True), port.busy()
    port.connections.mark_waiting(idle)
    assert port.connections.admit(Client())
    assert (idle.open, busy.open) == (False, True)


def test_where_all_are_busy_a_few_get_health_and_the_rest_is_refused():
    port = Port(bound=2, reserved=1)
    busy = [port.busy() for _ in range(2)]
    assert port.connections.admit(Client()) is False
    for client in tuple(port.connections):
        port.connections.mark_working(client)
    assert [port.connections.admit(Client()) for _ in range(5)] == [None] * 5
    assert all(client.open for client in busy)
    assert port.counts == {("http", Reason.REFUSED): 5}
    port.connections.forget(busy[0])
    port.connections.forget(busy[1])
    assert port.connections.admit(Client()) is True


def test_who_stays_still_too_long_is_closed_and_who_is_answered_is_not():
    port = Port(bound=10)
    still, later = Client(deadline=1_060), Client(deadline=1_600)
    assert port.connections.admit(still)
    assert port.connections.admit(later)
    answered = port.busy(deadline=0)
    port.now = 1_059
    port.connections.sweep()
    assert still.open
    port.now = 1_060
    port.connections.sweep()
    assert (still.open, later.open, answered.open) == (False, True, True)
    assert len(port.connections) == 2
    assert port.counts == {("http", Reason.IDLE): 1}


def test_the_log_says_it_once_a_minute_however_many_there_are(caplog):
    caplog.set_level(logging.INFO, "jobmeter.server")
    port = Port(bound=2)
    for second in range(121):
        port.now = 1_000.0 + second
        for _ in range(100):
            port.connections.admit(Client())
        port.connections.sweep()
    assert len(caplog.records) == 3
    assert "http: 6000 idle connections were closed to make room" in caplog.text


def test_a_trickle_is_no_progress():
    deadline = 60.0
    for second in range(1, 61):
        deadline = extend_deadline(deadline, 100, float(second))
    assert deadline < 61
    for second in range(60, 600):
        deadline = extend_deadline(deadline, limits.BYTES_PER_SECOND, float(second))
    assert deadline == pytest.approx(599 + limits.STALL_SECONDS, abs=61)


def test_bounds_leave_descriptors_to_the_rest():
    for descriptors in (256, 1_024, 65_536, 10**6):
        bounds = [compute_share(descriptors, most) for most in (limits.MOST_HTTP, limits.MOST_TELNET, limits.MOST_GRPC)]
        assert sum(bounds) <= descriptors * 3 / 4
    assert compute_share(10**6, limits.MOST_HTTP) == limits.MOST_HTTP


@pytest.mark.parametrize("processes", [2, 3, 8, 64])
def test_the_bounds_of_several_processes_are_one_bound_together(processes):
    for descriptors in (256, 1_024, 65_536, 10**6):
        bound = compute_share(descriptors, limits.MOST_HTTP, processes)
        assert processes * bound <= limits.MOST_HTTP
        assert bound <= compute_share(descriptors, limits.MOST_HTTP)
    assert processes * compute_share(10**6, limits.MOST_HTTP, processes) > limits.MOST_HTTP - processes
