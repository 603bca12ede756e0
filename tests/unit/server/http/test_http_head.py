"""Tests of requests that a lenient parser accepts and HTTP/1.1 forbids: version, protocol and ``Host``."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.http_wire import GET, Application, connected, run

from jobmeter.server.http.validity import is_host

NAMES = st.one_of(
    st.ip_addresses(v=4).map(str),
    st.ip_addresses(v=6).map(lambda address: f"[{address}]"),
    st.text(string.ascii_letters + string.digits + "-._~!$&'()*+,;=", min_size=1, max_size=20),
    st.just("a%20b"),
)
PORTS = st.none() | st.integers(0, 65_535)
GOOD = [b"", b"h", b"127.0.0.1:8400", b"[::1]:8400", b"h:", b"api.localhost:8000", b"under_score.example"]
WHOLE = [b"http://127.0.0.1:8080", b"http://127.0.0.1:8080/", b"HTTPS://jobs.example", b"https://h:1/api/"]
"""Endpoint in the form in which vendors' SDKs send it, unchanged from their settings."""
BAD = [b"a b", b"a, b", b"a/b", b"/", b"user@h", b"[::1", b"::1", b"a:b", b"a:1:2", b"\xe9", b"h?x", b"h#x", b"h\\x"]
BAD += [b"ftp://h", b"http:/h", b"http://", b"http://a b/", b"//h", b":80", b"h:123456", b"%zz", b'h"', b"<h>"]


async def exchanged(sent: bytes, size: int = 10_000) -> tuple[bytes, Application]:
    """Send these bytes in pieces. Return all answers until the server closes the connection."""
    application = Application()
    async with connected(application) as wire:
        for at in range(0, len(sent), size):
            await wire.send(sent[at : at + size])
        return await wire.rest() or b"", application


def request(*hosts: bytes, version: bytes = b"HTTP/1.1", method: bytes = b"GET", target: bytes = b"/") -> bytes:
    lines = b"".join(b"Host: %b\r\n" % host for host in hosts)
    return b"%b %b %b\r\n%b\r\n" % (method, target, version, lines)


def check(sent: bytes, status: bytes) -> bytes:
    """Check that the request gets that status and closes the connection, and that the request before it is answered."""
    got: list[bytes] = []

    async def main():
        answered, application = await exchanged(GET + sent + GET)
        got.append(answered)
        assert answered.count(b"HTTP/1.1 200 ") == 1, "the one before it"
        assert len(application.scopes) == 1
        head, _, text = answered.split(b"HTTP/1.1 ", 2)[2].partition(b"\r\n\r\n")
        assert head.startswith(status), head
        assert b"connection: close" in head
        assert b"x-content-type-options: nosniff" in head
        assert text

    run(main())
    return got[0]


def taken(sent: bytes, size: int = 10_000) -> None:
    """Check that the request is answered."""

    async def main():
        application = Application()
        async with connected(application) as wire:
            for at in range(0, len(sent), size):
                await wire.send(sent[at : at + size])
            head, body = await wire.answer()
            assert head.startswith(b"HTTP/1.1 200 ")
            assert body == b"ok"
            assert len(application.scopes) == 1

    run(main())


@pytest.mark.parametrize("host", [*GOOD, *WHOLE])
def test_a_host_that_is_one_is_taken(host):
    taken(request(host))
    taken(request(host), size=1)


@given(NAMES, PORTS, st.sampled_from(["", "http://", "https://"]))
def test_every_name_and_address_is_a_host(name, port, scheme):
    assert is_host(f"{scheme}{name}{'' if port is None else f':{port}'}".encode())


@given(NAMES, st.sampled_from(' \t"<>@\\^`{|}\x7fé/?#'), st.integers(0, 20))
def test_a_character_that_no_host_has_makes_it_none(name, character, at):
    at %= len(name) + 1
    assert not is_host(f"{name[:at]}{character}{name[at:]}".encode("latin-1"))


@pytest.mark.parametrize("host", BAD)
def test_a_malformed_host_is_refused(host):
    assert not is_host(host)
    assert b"Host" in check(request(host), b"400")


@pytest.mark.parametrize("hosts", [(), (b"h", b"h"), (b"h", b"other"), (b"h", b"")])
def test_a_host_that_is_missing_or_doubled_is_refused(hosts):
    assert b"Host" in check(request(*hosts), b"400")


def test_an_old_client_needs_no_host_and_may_not_send_two():
    taken(request(version=b"HTTP/1.0"))
    check(request(b"h", b"h", version=b"HTTP/1.0"), b"400")


def test_a_host_is_looked_at_in_every_request_of_a_connection():
    check(request(b"h", b"i"), b"400")

    async def main():
        answered, application = await exchanged(request(b"h") + request(b"i") + request(b"h") + request(b"a b"))
        assert answered.count(b"HTTP/1.1 200 ") == len(application.scopes) == 3
        assert answered.count(b"HTTP/1.1 400 ") == 1

    run(main())


def test_a_host_behind_the_headers_of_a_body_in_chunks_is_none():
    trailer = b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nHost: other\r\n\r\n"
    taken(trailer)


@pytest.mark.parametrize("target", [b"http://127.0.0.1:8400/a", b"http://api.localhost:8000/v1/x?y=z", b"//a"])
def test_a_target_in_absolute_form_is_taken(target):
    taken(request(b"other", target=target))


def test_a_version_that_is_not_spoken_here_is_refused_with_those_that_are():
    assert b"HTTP/1.1 and HTTP/1.0" in check(request(b"h", version=b"HTTP/2.0"), b"505")


@pytest.mark.parametrize(
    "version", [b"RTSP/1.0", b"RTSP/1.1", b"RTSP/2.0", b"ICE/1.0", b"HTTP/0.9", b"HTTP/3.0", b"http/1.1"]
)
@pytest.mark.parametrize("method", [b"GET", b"POST", b"OPTIONS", b"SOURCE", b"DESCRIBE"])
@pytest.mark.parametrize("blanks", [b" ", b"   "])
def test_another_protocol_is_refused(version, method, blanks):
    sent = request(b"h", version=version, method=method).replace(b" ", blanks, 2)
    check(sent, b"400")


def test_another_protocol_is_refused_however_its_request_is_cut():
    for size in (1, 5, 17):

        async def main(size: int = size):
            answered, application = await exchanged(request(b"h", version=b"RTSP/1.0"), size)
            assert answered.startswith(b"HTTP/1.1 400 ")
            assert not application.scopes

        run(main())


def test_a_request_without_a_version_is_refused():
    check(b"GET /\r\n\r\n", b"400")


def test_the_words_of_another_protocol_in_a_body_are_a_body():
    body = b"GET / RTSP/1.0\r\nHost: h\r\n\r\n"
    taken(b"POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
    taken(b"\r\n" + request(b"h"))


def test_each_request_is_judged_by_its_own_data():
    async def main():
        application = Application()
        async with connected(application) as wire:
            await wire.send(GET[:9])
            await wire.send(GET[9:])
            await wire.answer()
            await wire.send(request(b"h", version=b"RTSP/1.0"))
            assert (await wire.rest()).startswith(b"HTTP/1.1 400 ")
            assert len(application.scopes) == 1

    run(main())
