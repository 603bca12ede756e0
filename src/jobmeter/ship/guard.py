"""Which addresses a sink may have: those that the operator allows, checked when a connection is made.

A name is resolved once, each of its addresses is checked, and the connection goes to one of these: a later change of
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
_NAT64, _COMPATIBLE = ipaddress.IPv6Network("64:ff9b::/96"), ipaddress.IPv6Network("::/96")


class Guard(msgspec.Struct, frozen=True):
    """An allow-list: host names (``*.example.org`` for those below) and addresses or networks (``10.1.0.0/16``).

    A name alone allows addresses of the public Internet only; an address that is not of it (loopback, private) has
    to be listed as well, by itself or within a network. Link-local, metadata and multicast ones are never allowed.
    """

    names: frozenset[str]
    networks: Sequence[_Network]

    @classmethod
    def of(cls, entries: Sequence[str]) -> "Guard":
        """The guard of a list of the settings. Raises ConfigurationError."""
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
        """A connection to an allowed address of the host. Raises SinkError, or OSError when there is none."""
        addresses = self.resolve(host, port)
        failure: OSError = OSError("it has no address")
        for address in addresses:
            try:
                return socket.create_connection((str(address), port), seconds)
            except OSError as error:
                failure = error
        raise failure

    def resolve(self, host: str, port: int) -> Sequence[_Address]:
        """The addresses of a host, all of which are allowed. Raises SinkError, or OSError when it has none."""
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        addresses = list(
            dict.fromkeys(_plain(ipaddress.ip_address(str(entry[4][0]).partition("%")[0])) for entry in found)
        )
        for address in addresses:
            if not self.allows(host, address):
                raise SinkError(f"{host} has the address {address}, which the settings do not allow")
        return addresses

    def allows(self, host: str, address: _Address) -> bool:
        """Whether connections to that address are allowed, and to the IPv4 address that it is translated to, if any."""
        return all(self._allows(host, one) for one in (address, *_translated(address)))

    def _allows(self, host: str, address: _Address) -> bool:
        if any(address in network for network in _NEVER):
            return False
        if any(address in network for network in self.networks):
            return True
        return address.is_global and self._names(host.lower())

    def _names(self, host: str) -> bool:
        return host in self.names or any(
            name.startswith("*.") and host.endswith(name[1:]) and len(host) > len(name) - 1 for name in self.names
        )


def _plain(address: _Address) -> _Address:
    """The IPv4 address that an IPv6 one embeds, if any."""
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def _translated(address: _Address) -> Sequence[_Address]:
    """The IPv4 address to which gateways (NAT64, 6to4) or the host itself forward packets."""
    if isinstance(address, ipaddress.IPv4Address):
        return ()
    if address in _NAT64 or (address in _COMPATIBLE and int(address) > 1):
        return (ipaddress.IPv4Address(int(address) & 0xFFFFFFFF),)
    return () if address.sixtofour is None else (address.sixtofour,)
