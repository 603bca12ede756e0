"""Allow-list of sink addresses, checked when a connection is made.

A name is resolved once and each of its addresses is checked. The connection goes to one of these, so a later change of
the name has no effect (DNS rebinding).
"""

import ipaddress
import socket
from collections.abc import Sequence

import msgspec

from jobmeter.errors import ConfigurationError
from jobmeter.ship.sink import SinkError

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_NEVER: Sequence[_Network] = tuple(
    ipaddress.ip_network(text)
    for text in (
        "0.0.0.0/8",
        "169.254.0.0/16",  # link-local, and the metadata of most clouds
        "100.100.100.200/32",  # metadata of Alibaba Cloud
        "192.0.0.192/32",  # metadata of Oracle Cloud
        "168.63.129.16/32",  # Azure's wire server
        "224.0.0.0/4",
        "240.0.0.0/4",
        "::/128",
        "fe80::/10",
        "fd00:ec2::/32",  # metadata of AWS over IPv6
        "fd20:ce::254/128",  # metadata of Google Cloud over IPv6
        "ff00::/8",
    )
)
_UNICAST = ipaddress.IPv6Network("2000::/3")
"""Public IPv6 addresses: https://www.iana.org/assignments/ipv6-address-space"""
_DOCUMENTATION = ipaddress.IPv6Network("3fff::/20")
_TRANSLATED: Sequence[ipaddress.IPv6Network] = tuple(
    ipaddress.IPv6Network(text)
    for text in (
        "64:ff9b::/96",  # NAT64 (RFC 6052)
        "::ffff:0:0/96",  # IPv4-mapped (RFC 4291)
        "::ffff:0:0:0/96",  # IPv4-translated (RFC 2765)
        "::/96",  # IPv4-compatible (RFC 4291)
    )
)
"""Networks whose last 32 bits are an IPv4 address that decides what they reach."""
_6TO4, _TEREDO = ipaddress.IPv6Network("2002::/16"), ipaddress.IPv6Network("2001::/32")
_LOCAL_NAT64 = ipaddress.IPv6Network("64:ff9b:1::/48")
"""Locally assigned NAT64 network (RFC 8215): the position of the IPv4 address depends on its prefix."""
_LOOPBACK = 1
_IPV4 = 0xFFFFFFFF
_ISATAP, _ISATAP_BITS = 0x00005EFE, 0xFCFFFFFF
"""Bits before the IPv4 address in an ISATAP interface identifier (RFC 5214), except for two flags."""


class DestinationPolicy(msgspec.Struct, frozen=True):
    """Allow-list: host names (``*.example.org`` for subdomains) and addresses or networks (``10.1.0.0/16``).

    A name allows only addresses of the public Internet. Other addresses (loopback, private) must be listed as well,
    directly or within a network. Link-local, metadata and multicast addresses are never allowed.
    """

    names: frozenset[str]
    networks: Sequence[_Network]

    @classmethod
    def from_settings(cls, entries: Sequence[str]) -> "DestinationPolicy":
        """Parse the list in the settings. Raises ConfigurationError."""
        names: set[str] = set()
        networks: list[_Network] = []
        for entry in entries:
            try:
                networks.append(ipaddress.ip_network(entry))
            except ValueError:
                if not entry or any(character in entry for character in "/: "):
                    raise ConfigurationError(f"allow: {entry!r} is not a host name, an address or a network") from None
                names.add(entry.lower())
        return cls(frozenset(names), tuple(networks))

    def connect(self, host: str, port: int, seconds: float) -> socket.socket:
        """Connect to an allowed address of the host. Raises SinkError, or OSError when the connection fails."""
        addresses = self.resolve(host, port)
        failure: OSError = OSError("it has no address")
        for address in addresses:
            try:
                return socket.create_connection((str(address), port), seconds)
            except OSError as error:
                failure = error
        raise failure

    def resolve(self, host: str, port: int) -> Sequence[_Address]:
        """Resolve a host and check all its addresses. Raises SinkError, or OSError when it has none."""
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        addresses = list(
            dict.fromkeys(_unmap(ipaddress.ip_address(str(entry[4][0]).partition("%")[0])) for entry in found)
        )
        for address in addresses:
            if not self.allows(host, address):
                raise SinkError(f"{host} has the address {address}, which the settings do not allow")
        return addresses

    def allows(self, host: str, address: _Address) -> bool:
        """Return True if connections to an address, and to each IPv4 address that it represents, are allowed."""
        if isinstance(address, ipaddress.IPv4Address):
            return self._allows(host, address, public=address.is_global)
        if any(_is_never(one) for one in _list_possible(address)):
            return False
        inside = _list_embedded(address)
        if not all(self._allows(host, one, public=one.is_global) for one in inside):
            return False
        return self._allows(host, address, public=_is_public(address) or _is_only_translated(address))

    def _allows(self, host: str, address: _Address, *, public: bool) -> bool:
        if _is_never(address):
            return False
        if any(address in network for network in self.networks):
            return True
        return public and self._is_named(host.lower())

    def _is_named(self, host: str) -> bool:
        return host in self.names or any(
            name.startswith("*.") and host.endswith(name[1:]) and len(host) > len(name) - 1 for name in self.names
        )


def _is_never(address: _Address) -> bool:
    return any(address in network for network in _NEVER)


def _is_public(address: ipaddress.IPv6Address) -> bool:
    return address in _UNICAST and address.is_global and address not in _DOCUMENTATION


def _is_only_translated(address: ipaddress.IPv6Address) -> bool:
    """True if only a translator to IPv4 answers at the address."""
    return any(address in network for network in _TRANSLATED) and int(address) > _LOOPBACK


def _unmap(address: _Address) -> _Address:
    """Return the IPv4 address of an IPv4-mapped address."""
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def _list_embedded(address: ipaddress.IPv6Address) -> Sequence[ipaddress.IPv4Address]:
    """Return the IPv4 addresses to which gateways, or the host itself, forward traffic for the address."""
    bits = int(address)
    if _is_only_translated(address) or bits >> 32 & _ISATAP_BITS == _ISATAP:
        return (ipaddress.IPv4Address(bits & _IPV4),)
    if address in _6TO4:
        return (ipaddress.IPv4Address(bits >> 80 & _IPV4),)
    if address in _TEREDO:  # of the server, and of the client, inverted (RFC 4380)
        return (ipaddress.IPv4Address(bits >> 64 & _IPV4), ipaddress.IPv4Address(~bits & _IPV4))
    return ()


def _list_possible(address: ipaddress.IPv6Address) -> Sequence[ipaddress.IPv4Address]:
    """Return candidates for the IPv4 address in a local NAT64 address, after prefixes of 48, 56, 64 or 96 bits.

    Bits 64 to 71 are skipped (RFC 6052, section 2.2). A candidate with eight leading zero bits is padding, not an
    address.
    """
    if address not in _LOCAL_NAT64:
        return ()
    bits = int(address)
    joined = (bits >> 64 << 56) | (bits & ((1 << 56) - 1))  # without those eight bits
    found = (one & _IPV4 for one in (joined >> 40, joined >> 32, joined >> 24, bits))
    return tuple(ipaddress.IPv4Address(one) for one in found if one >> 24)
