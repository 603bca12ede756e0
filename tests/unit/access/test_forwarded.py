"""Tests of forwarding headers: they count only from trusted proxies."""

from ipaddress import ip_address

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jobmeter.access.call import Call
from jobmeter.access.forwarded import TrustedProxies, find_public_address, parse_public_url
from jobmeter.errors import ConfigurationError, InvalidRequestError

TRUSTED = "10.0.0.0/8, 192.168.7.7,fd00::/16"
PROXY = st.one_of(
    st.ip_addresses(network="10.0.0.0/8").map(str),
    st.just("192.168.7.7"),
    st.ip_addresses(network="fd00::/16").map(str),
    st.ip_addresses(network="10.0.0.0/8").map(lambda one: f"::ffff:{one}"),
)
STRANGER = st.one_of(
    st.ip_addresses(network="203.0.113.0/24").map(str), st.ip_addresses(network="2001:db8::/32").map(str)
)


def call(client="127.0.0.1", scheme="http", host="meter.example:8400", **headers):
    named = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    return Call("GET", "/", "", (("host", host), *named), scheme=scheme, client=client)


def url(made, configured=None):
    return find_public_address(made, configured).url


@given(
    stranger=STRANGER,
    chain=st.lists(PROXY, min_size=1, max_size=4),
    forged=st.lists(st.sampled_from(["1.2.3.4", "10.9.9.9", "unknown", "x"]), max_size=3),
    with_port=st.booleans(),
    appended=st.booleans(),
    tls=st.booleans(),
)
def test_the_client_is_the_last_address_that_no_trusted_proxy_has(stranger, chain, forged, with_port, appended, tls):
    """The chain follows RFC 7239 and common proxies: each appends the address of its caller."""
    hops = [*forged, f"[{stranger}]:4711" if with_port and ":" in stranger else stranger, *chain[:-1]]
    outer = "https" if tls else "http"
    # The internal network has no TLS: an appending proxy states that of its own connection.
    schemes = ", ".join([*["https"] * len(forged), outer, *["http"] * (len(chain) - 1)]) if appended else outer
    made = call(chain[-1], x_forwarded_for=", ".join(hops), x_forwarded_proto=schemes, x_forwarded_host="out.example")
    found = TrustedProxies.parse(TRUSTED).resolve_call(made)
    assert ip_address(found.client) == ip_address(stranger)
    assert url(found) == f"{outer}://out.example"
    assert found.headers == made.headers  # signatures cover the original request


@given(STRANGER, st.sampled_from(["", "127.0.0.1", "10.0.0.0/8"]))
def test_nobody_else_is_believed(stranger, trusted):
    made = call(stranger, x_forwarded_for="10.0.0.1", x_forwarded_proto="https", x_forwarded_host="evil.example")
    found = TrustedProxies.parse(trusted).resolve_call(made)
    assert found == made
    assert url(found) == "http://meter.example:8400"


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"x_forwarded_proto": "HTTPS"}, "https://meter.example:8400"),
        ({"x_forwarded_proto": "gopher"}, "http://meter.example:8400"),
        ({"x_forwarded_proto": "https", "x_forwarded_host": "a.example", "x_forwarded_port": "443"}, "https://a.example"),
        ({"x_forwarded_proto": "https", "x_forwarded_host": "a.example", "x_forwarded_port": "8443"},
         "https://a.example:8443"),
        ({"x_forwarded_host": "a.example:9", "x_forwarded_port": "8443"}, "http://a.example:9"),
        ({"x_forwarded_host": "a.example", "x_forwarded_prefix": "/jobs/meter/"}, "http://a.example/jobs/meter"),
        ({"x_forwarded_host": "a.example", "x_forwarded_prefix": "//evil?x"}, "http://a.example"),
        ({"x_forwarded_host": "[2001:db8::1]:8443", "x_forwarded_proto": "https"}, "https://[2001:db8::1]:8443"),
    ],
)  # fmt: skip
def test_each_header_of_a_trusted_proxy_counts(headers, expected):
    assert url(TrustedProxies.parse("127.0.0.1").resolve_call(call(**headers))) == expected


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("meter.example", "http://meter.example"),
        ("meter.example:8400", "http://meter.example:8400"),
        ("http://meter.example:8400", "http://meter.example:8400"),
        ("http://meter.example:8400/", "http://meter.example:8400"),
        ("HTTP://meter.example:8400/", "http://meter.example:8400"),
        ("https://meter.example", "https://meter.example"),
        ("127.0.0.1:8080/pfx", "http://127.0.0.1:8080/pfx"),
        ("[::1]:8400", "http://[::1]:8400"),
        ("http://[::1]:8400/", "http://[::1]:8400"),
    ],
)
def test_every_form_of_an_endpoint_that_an_sdk_puts_into_host_is_an_address(host, expected):
    assert url(call(host=host)) == expected


@pytest.mark.parametrize(
    "host", ["", "user@meter.example", "a b", "ftp://meter.example", "meter.example:99999", "a/b?"]
)
def test_a_host_that_is_none_is_named_in_the_refusal(host):
    with pytest.raises(InvalidRequestError) as caught:
        find_public_address(call(host=host), None)
    assert caught.value.field == "Host"


@given(st.sampled_from(["http", "https"]), st.integers(1, 65_535), st.sampled_from(["", "/", "/p", "/p/q/"]))
@example("https", 443, "")
def test_a_configured_address_comes_before_everything(scheme, port, path):
    configured = parse_public_url(f"{scheme}://meter.example:{port}{path}")
    trusted = TrustedProxies.parse("127.0.0.1")
    made = trusted.resolve_call(call(x_forwarded_host="other.example", x_forwarded_proto="http"))
    assert url(made, configured) == f"{scheme}://meter.example:{port}{path.rstrip('/')}"
    assert url(call(host=""), configured) == url(made, configured)


@pytest.mark.parametrize(
    "text", ["meter.example", "ftp://meter.example", "https://", "https://a b", "https://u:p@h", "https://h?x=1", "https://h:70000"]
)  # fmt: skip
def test_a_wrong_public_url_is_refused_by_its_name(text):
    with pytest.raises(ConfigurationError, match="JOBMETER_PUBLIC_URL"):
        parse_public_url(text)


@pytest.mark.parametrize("text", ["proxy.example", "10.0.0.0/33", "10.0.0.1/8", "127.0.0.1;10.0.0.1"])
def test_wrong_proxies_are_refused_by_name(text):
    with pytest.raises(ConfigurationError, match="JOBMETER_TRUSTED_PROXIES"):
        TrustedProxies.parse(text)


def test_no_settings_trust_nobody_and_name_no_address():
    assert not TrustedProxies.parse(" , ")
    assert parse_public_url("") is None
