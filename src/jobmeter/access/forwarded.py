"""Public address of the server, and the proxies that are trusted to report it.

A proxy in front of the server ends TLS and may replace the Host header. It reports in ``X-Forwarded-*`` how the request
arrived. Anybody can write these headers, so they count only from the proxies in the settings.
https://developer.mozilla.org/en-US/docs/Web/HTTP/Reference/Headers/X-Forwarded-For.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

import msgspec

from jobmeter.access.call import Call
from jobmeter.errors import ConfigurationError, InvalidRequestError

_SCHEMES = frozenset({"http", "https"})
_PREFIX = r"(?P<prefix>(?:/[A-Za-z0-9._~%-]+)*)/?"
_HOST = r"(?P<host>[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::(?P<port>[0-9]{1,5}))?"
_ADDRESS = re.compile(rf"(?:(?P<scheme>[A-Za-z]{{4,5}})://)?{_HOST}{_PREFIX}")
_WITH_PORT = re.compile(r"\[(?P<v6>[^\]]+)\](?::[0-9]+)?|(?P<v4>[0-9.]+):[0-9]+")

Network = IPv4Network | IPv6Network


class PublicAddress(msgspec.Struct, frozen=True):
    """Address of the server: ``host`` with brackets for IPv6; ``port`` and ``prefix`` may be empty."""

    scheme: str
    host: str
    port: str = ""
    prefix: str = ""

    @property
    def url(self) -> str:
        """URL like ``https://meter.example:8443/prefix``, without a slash at the end."""
        return f"{self.scheme}://{self.host}{f':{self.port}' if self.port else ''}{self.prefix}"


def parse_public_url(text: str) -> PublicAddress | None:
    """Parse the setting ``public_url``; None for an empty text. Raises ConfigurationError."""
    if not text:
        return None
    found = _ADDRESS.fullmatch(text.strip())
    if found is None or (found["scheme"] or "").lower() not in _SCHEMES or int(found["port"] or 0) > 65_535:
        raise ConfigurationError(
            f"JOBMETER_PUBLIC_URL must be http(s)://HOST[:PORT][/PATH], such as https://meter.example, it is {text!r}"
        )
    return PublicAddress(found["scheme"].lower(), found["host"], found["port"] or "", found["prefix"])


def find_public_address(call: Call, configured: PublicAddress | None) -> PublicAddress:
    """Return the address for links in an answer: the configured one, else the address of the call.

    Alibaba's SDKs put the whole endpoint into the Host header (``http://host:8400/``). Raises InvalidRequestError
    (``Host``) for a Host header without a host.
    """
    if configured is not None:
        return configured
    found = _ADDRESS.fullmatch(call.authority or call.get_header("host"))
    stated = "" if found is None else (found["scheme"] or call.scheme).lower()
    if found is None or stated not in _SCHEMES or int(found["port"] or 0) > 65_535:
        raise InvalidRequestError("the Host header is not a host", "Host")
    # If the caller's endpoint begins with https:// but this connection has no TLS, a proxy terminates it.
    scheme = "https" if "https" in {stated, call.scheme} else "http"
    return PublicAddress(scheme, found["host"], found["port"] or "", call.prefix or found["prefix"])


class TrustedProxies:
    """Proxies whose ``X-Forwarded-*`` headers are trusted."""

    def __init__(self, networks: Sequence[Network]) -> None:
        self._networks = tuple(networks)

    @classmethod
    def parse(cls, text: str) -> "TrustedProxies":
        """Parse the setting ``trusted_proxies``: addresses and networks. Raises ConfigurationError."""
        networks: list[Network] = []
        for part in filter(None, (one.strip() for one in text.split(","))):
            try:
                networks.append(ip_network(part))
            except ValueError as error:
                raise ConfigurationError(
                    "JOBMETER_TRUSTED_PROXIES must be addresses and networks, separated by commas, such as "
                    f"127.0.0.1,10.0.0.0/8: {part!r} is neither"
                ) from error
        return cls(networks)

    def __bool__(self) -> bool:
        return bool(self._networks)

    def resolve_call(self, call: Call) -> Call:
        """Return the call as the client sent it to the outermost trusted proxy; unchanged without one.

        Each proxy appends the address of its caller to ``X-Forwarded-For``. If several proxies append to another header
        too, the value of the outermost trusted one counts.
        """
        if not self._trusts(_address(call.client)):
            return call
        client, depth = call.client, 1
        for text in reversed(_values(call, "x-forwarded-for")):
            address = _address(text)
            if address is None:
                break
            client = str(address)
            if not self._trusts(address):
                break
            depth += 1
        scheme = _read_proxy_value(call, "x-forwarded-proto", depth).lower()
        return replace(
            call,
            client=client,
            scheme=scheme if scheme in _SCHEMES else call.scheme,
            authority=_authority(
                _read_proxy_value(call, "x-forwarded-host", depth),
                _read_proxy_value(call, "x-forwarded-port", depth),
                call,
            ),
            prefix=_prefix(_read_proxy_value(call, "x-forwarded-prefix", depth)),
        )

    def _trusts(self, address: IPv4Address | IPv6Address | None) -> bool:
        return address is not None and any(address in network for network in self._networks)


def _values(call: Call, name: str) -> list[str]:
    """Split a list header into its members, over all its lines."""
    lines = [value for header, value in call.headers if header == name]
    return [part for line in lines for one in line.split(",") if (part := one.strip())]


def _read_proxy_value(call: Call, name: str, depth: int) -> str:
    """Return the value that the outermost of ``depth`` proxies wrote; empty if absent."""
    values = _values(call, name)
    return values[-min(depth, len(values))] if values else ""


def _address(text: str) -> IPv4Address | IPv6Address | None:
    """Parse ``10.0.0.1``, ``10.0.0.1:4711``, ``::1`` or ``[::1]:4711``; None for another text."""
    found = _WITH_PORT.fullmatch(text)
    try:
        address = ip_address(text if found is None else found["v6"] or found["v4"])
    except ValueError:
        return None
    return address.ipv4_mapped or address if isinstance(address, IPv6Address) else address


def _authority(host: str, port: str, call: Call) -> str:
    """Return the host that the client named, with the proxy's port if the host has none."""
    host = host or (call.get_header("host") if port else "")
    bare = host and not re.search(r":[0-9]*$", host)
    return f"{host}:{port}" if bare and port.isdigit() and port not in {"80", "443"} else host


def _prefix(text: str) -> str:
    """Return the path below which the proxy serves the server; empty for an invalid path."""
    found = re.fullmatch(_PREFIX, text)
    return "" if found is None else found["prefix"]
