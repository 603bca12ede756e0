"""Tests of the allowed addresses of a sink."""

import ipaddress
import socket

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jobmeter.errors import ConfigurationError
from jobmeter.ship.guard import DestinationPolicy
from jobmeter.ship.http import SinkEndpoint
from jobmeter.ship.sink import SinkError

PUBLIC = "8.8.8.8"
FORBIDDEN = [
    "169.254.169.254",
    "169.254.1.1",
    "100.100.100.200",
    "192.0.0.192",
    "168.63.129.16",
    "0.0.0.0",
    "224.0.0.1",
    "255.255.255.255",
    "fe80::1",
    "fd00:ec2::254",
    "ff02::1",
    "::",
    "::ffff:169.254.169.254",
]


def _resolving(monkeypatch, *answers):
    """Resolve names to the first answer, then to the next one. The last answer stays."""
    left = list(answers)

    def getaddrinfo(host, port, **_):
        found = left.pop(0) if len(left) > 1 else left[0]
        family = {True: socket.AF_INET6, False: socket.AF_INET}
        return [(family[":" in one], socket.SOCK_STREAM, 6, "", (one, port)) for one in found]

    monkeypatch.setattr("jobmeter.ship.guard.socket.getaddrinfo", getaddrinfo)


@pytest.mark.parametrize("address", FORBIDDEN)
def test_no_list_allows_link_local_metadata_and_multicast(monkeypatch, address):
    _resolving(monkeypatch, [address])
    with pytest.raises(SinkError, match="do not allow"):
        DestinationPolicy.from_settings(["0.0.0.0/0", "::/0", "sink.example.org"]).resolve("sink.example.org", 80)


IPV4 = st.ip_addresses(v=4)
PREFIXES = st.integers(0, 2**61 - 1).map(lambda bits: ipaddress.IPv6Address(1 << 125 | bits << 64))
"""First half of a public address."""


def embedded(form: str, inside: ipaddress.IPv4Address, prefix: ipaddress.IPv6Address) -> str:
    """Return an IPv6 address that stands for an IPv4 address, in the notation of the form's RFC."""
    high, low = (f"{part:x}" for part in divmod(int(inside), 2**16))
    one, two, three, four = (f"{octet:02x}" for octet in inside.packed)
    network = ":".join(prefix.exploded.split(":")[:4])
    return {
        "mapped": f"::ffff:{inside}",
        "translated": f"::ffff:0:{inside}",
        "compatible": f"::{inside}",
        "nat64": f"64:ff9b::{inside}",
        "6to4": f"2002:{high}:{low}::1",
        "teredo client": "2001:0:808:808:0:0:{:x}:{:x}".format(*divmod(~int(inside) & 0xFFFFFFFF, 2**16)),
        "teredo server": f"2001:0:{high}:{low}:0:0:f7f7:f7f7",
        "isatap": f"{network}:0:5efe:{inside}",
        "isatap of a public address": f"{network}:200:5efe:{inside}",
        "local nat64 /48": f"64:ff9b:1:{one}{two}:00{three}:{four}00::",
        "local nat64 /56": f"64:ff9b:1:ab{one}:00{two}:{three}{four}::",
        "local nat64 /64": f"64:ff9b:1:abcd:00{one}:{two}{three}:{four}00:0",
        "local nat64 /96": f"64:ff9b:1:abcd:0:0:{inside}",
    }[form]


FORMS = [
    "mapped", "translated", "compatible", "nat64", "6to4", "teredo client", "teredo server", "isatap",
    "isatap of a public address", "local nat64 /48", "local nat64 /56", "local nat64 /64", "local nat64 /96",
]  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
@given(inside=IPV4, prefix=PREFIXES)
@example(inside=ipaddress.IPv4Address("169.254.169.254"), prefix=ipaddress.IPv6Address("2a00::"))
@example(inside=ipaddress.IPv4Address("10.0.0.1"), prefix=ipaddress.IPv6Address("2a00::"))
@example(inside=ipaddress.IPv4Address("127.0.0.1"), prefix=ipaddress.IPv6Address("2a00::"))
@example(inside=ipaddress.IPv4Address("8.8.8.8"), prefix=ipaddress.IPv6Address("2a00::"))
def test_an_address_that_stands_for_another_allows_no_more_than_that(form, inside, prefix):
    address = ipaddress.ip_address(embedded(form, inside, prefix))
    by_name, everything = (
        DestinationPolicy.from_settings(["sink.example.org"]),
        DestinationPolicy.from_settings(["0.0.0.0/0", "::/0"]),
    )
    if by_name.allows("sink.example.org", address):
        assert inside.is_global
        assert by_name.allows("sink.example.org", inside)
    if not everything.allows("x", inside) and not (form.startswith("local") and inside.packed[0] == 0):
        assert not everything.allows("x", address)


@pytest.mark.parametrize("form", ["mapped", "translated", "compatible", "nat64", "6to4", "isatap"])
def test_an_address_that_stands_for_a_public_one_is_public(form):
    address = ipaddress.ip_address(embedded(form, ipaddress.IPv4Address(PUBLIC), ipaddress.IPv6Address("2a00::")))
    assert DestinationPolicy.from_settings(["sink.example.org"]).allows("sink.example.org", address)
    assert not DestinationPolicy.from_settings([]).allows("sink.example.org", address)


@pytest.mark.parametrize(
    "address",
    ["fec0::1", "fec0:1:2::3", "fc00::1", "fd12::1", "64:ff9b:1::808:808", "2001:db8::1", "3fff::1", "5f00::1",
     "4000::1", "100::1", "2001:0:808:808::f7f7:f7f7", "::1"],
)  # fmt: skip
def test_an_address_that_is_not_of_the_public_internet_has_to_be_listed(address):
    parsed = ipaddress.ip_address(address)
    assert not DestinationPolicy.from_settings(["sink.example.org"]).allows("sink.example.org", parsed)
    listed = DestinationPolicy.from_settings(["sink.example.org", address])
    assert listed.allows("sink.example.org", parsed)


@pytest.mark.parametrize(
    ("allow", "address", "allowed"),
    [
        (["sink.example.org"], PUBLIC, True),
        (["SINK.example.org"], PUBLIC, True),
        (["*.example.org"], PUBLIC, True),
        (["*.sink.example.org"], PUBLIC, False),
        (["example.org"], PUBLIC, False),
        ([], PUBLIC, False),
        (["sink.example.org"], "127.0.0.1", False),
        (["sink.example.org"], "10.1.2.3", False),
        (["sink.example.org"], "::1", False),
        (["sink.example.org"], "::ffff:127.0.0.1", False),
        (["10.0.0.0/8"], "10.1.2.3", True),
        (["10.0.0.0/8"], "::ffff:10.1.2.3", True),
        (["10.1.2.4"], "10.1.2.3", False),
        (["sink.example.org"], "64:ff9b::a9fe:a9fe", False),  # 169.254.169.254 behind a translator
        (["sink.example.org", "::/0"], "64:ff9b::a9fe:a9fe", False),
        (["sink.example.org"], "64:ff9b::7f00:1", False),
        (["sink.example.org"], "2002:a9fe:a9fe::1", False),
        (["sink.example.org"], "::169.254.169.254", False),
        (["sink.example.org"], "64:ff9b::808:808", True),
        (["127.0.0.1"], "127.0.0.1", True),
    ],
)
def test_a_name_allows_public_addresses_and_a_network_its_own(monkeypatch, allow, address, allowed):
    _resolving(monkeypatch, [address])
    guard = DestinationPolicy.from_settings(allow)
    if allowed:
        assert len(guard.resolve("sink.example.org", 80)) == 1
    else:
        with pytest.raises(SinkError):
            guard.resolve("sink.example.org", 80)


def test_one_address_that_is_not_allowed_is_enough(monkeypatch):
    _resolving(monkeypatch, [PUBLIC, "10.0.0.1"])
    with pytest.raises(SinkError, match=r"10\.0\.0\.1"):
        DestinationPolicy.from_settings(["sink.example.org"]).resolve("sink.example.org", 80)


def test_a_name_that_answers_otherwise_a_moment_later_changes_nothing(monkeypatch):
    """The connection uses the checked address: the name is not resolved again."""
    _resolving(monkeypatch, [PUBLIC], ["127.0.0.1"])
    asked = []

    def create_connection(address, timeout):
        asked.append(address)
        raise ConnectionRefusedError

    monkeypatch.setattr("jobmeter.ship.guard.socket.create_connection", create_connection)
    endpoint = SinkEndpoint("http://sink.example.org:3100", DestinationPolicy.from_settings(["sink.example.org"]))
    with pytest.raises(SinkError):
        endpoint.request("POST", "/", b"", {})
    assert asked == [(PUBLIC, 3100)]
    with pytest.raises(SinkError, match=r"127\.0\.0\.1, which the settings do not allow"):
        endpoint.request("POST", "/", b"", {})
    assert len(asked) == 1


def test_proxies_of_the_environment_are_not_used(monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    _resolving(monkeypatch, ["10.0.0.1"])
    with pytest.raises(SinkError, match=r"10\.0\.0\.1"):
        SinkEndpoint("http://sink.example.org", DestinationPolicy.from_settings([])).request("POST", "/", b"", {})


@pytest.mark.parametrize("entry", ["", "a b", "host:80", "http://host", "10.0.0.0/99"])
def test_entries_that_are_none(entry):
    with pytest.raises(ConfigurationError, match="allow"):
        DestinationPolicy.from_settings([entry])
