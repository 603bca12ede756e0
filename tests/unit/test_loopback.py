"""Tests of the guard that keeps tests on this machine."""

import socket

import pytest
from tests.support.loopback import Guard, NetworkError, is_local


@pytest.fixture
def guard():
    """Return a separate guard, because the guard of the run would fail this test."""
    return Guard()


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost", "LOCALHOST", b"127.0.0.1", None])
def test_loopback_is_local(host):
    assert is_local(host)


@pytest.mark.parametrize(
    "host", ["", "0.0.0.0", "::", "192.0.2.1", "10.0.0.1", "example.com", "2001:db8::1", b"example.com"]
)
def test_another_machine_and_every_interface_are_not(host):
    assert not is_local(host)


@pytest.mark.parametrize("event", ["socket.connect", "socket.bind", "socket.sendto", "socket.sendmsg"])
@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM])
def test_a_socket_of_another_machine_is_refused_and_remembered(guard, event, kind):
    with socket.socket(socket.AF_INET, kind) as one:
        with pytest.raises(NetworkError, match=r"192\.0\.2\.1"):
            guard.check(event, (one, ("192.0.2.1", 80)))
        guard.check(event, (one, ("127.0.0.1", 80)))
    assert len(guard.refused()) == 1
    assert guard.refused() == []


def test_a_name_is_not_looked_up(guard):
    with pytest.raises(NetworkError):
        guard.check("socket.getaddrinfo", ("example.com", 80, 0, 0, 0))
    guard.check("socket.getaddrinfo", ("localhost", 80, 0, 0, 0))
    guard.check("socket.getaddrinfo", (None, 80, 0, 0, 0))


def test_a_socket_in_a_folder_is_local(guard):
    with socket.socket(socket.AF_UNIX) as one:
        guard.check("socket.connect", (one, "/run/some.sock"))
    assert guard.refused() == []


def test_the_run_is_guarded():
    from tests import conftest

    with socket.socket() as one, pytest.raises(NetworkError):
        one.connect(("192.0.2.1", 80))
    assert len(conftest._GUARD.refused()) == 1
