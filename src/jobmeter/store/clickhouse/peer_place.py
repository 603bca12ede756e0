"""Addresses of servers for each other, and the certificates by which they recognise each other.

Each process has its own certificate and secret. Both are in its row of the table of servers, so only servers that may
read that table can connect: a follower checks the certificate, and the leader checks that the follower has the secret.
"""

import hashlib
import ipaddress
import secrets
import socket
import ssl
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from jobmeter.errors import ConfigurationError
from jobmeter.store.clickhouse.failures import make_unavailable
from jobmeter.store.clickhouse.target import Place

OFF = "off"
_FILE = "peer.pem"
_FROM, _UNTIL = datetime(2020, 1, 1, tzinfo=UTC), datetime(2120, 1, 1, tzinfo=UTC)
_DISCARD_PORT = 9


class PeerPlace(msgspec.Struct, frozen=True):
    """Place where a server accepts the connections of others. ``certificate`` is its SHA-256 digest."""

    host: str
    port: int
    certificate: str
    secret: str

    @classmethod
    def parse(cls, text: str) -> "PeerPlace | None":
        """Read the column ``peer`` of the table of servers; None if another program wrote it."""
        try:
            return msgspec.json.decode(text, type=cls)
        except msgspec.DecodeError:
            return None

    def format(self) -> str:
        """Return the text for the column ``peer``."""
        return msgspec.json.encode(self).decode()


def parse_listen(text: str, engine: Sequence[Place], shard: int = 1) -> Place | None:
    """Return the address to listen on for a shard, from 1; None for ``off``.

    Default: a free port of the address by which this machine reaches the engine. The first shard
    has the named port, and the other shards have the next ports. Raises ConfigurationError.
    """
    if text == OFF:
        return None
    if not text:
        return find_own_address(engine), 0
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not (port.isascii() and port.isdigit() and int(port) + shard <= 2**16):
        raise ConfigurationError(
            f"JOBMETER_PEER_LISTEN must be HOST:PORT or {OFF}, got {text[:64]!r}: HOST is an address of this machine, "
            "PORT a number from 0 to 65535"
        )
    return host, int(port) + shard - 1 if int(port) else 0


def is_wildcard(host: str) -> bool:
    """Return True for an address that means every address of the machine."""
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def find_own_address(engine: Sequence[Place]) -> str:
    """Return the address of this machine that packets to the engine have. Sends nothing."""
    for host, _ in engine:
        try:
            family, kind, _, _, address = socket.getaddrinfo(host, _DISCARD_PORT, type=socket.SOCK_DGRAM)[0]
            with socket.socket(family, kind) as probe:
                probe.connect(address)
                return str(probe.getsockname()[0])
        except OSError:
            continue
    return "127.0.0.1"


def make_server_context(folder: Path) -> tuple[ssl.SSLContext, str]:
    """Create a certificate. Return the context that has it, and its digest."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "jobmeter")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_FROM)
        .not_valid_after(_UNTIL)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path = folder / _FILE
    try:
        path.unlink(missing_ok=True)
        path.touch(mode=0o600)
        path.write_bytes(private + certificate.public_bytes(serialization.Encoding.PEM))
    except OSError as error:
        raise make_unavailable(str(error), f"write {path}") from error
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_cert_chain(path)
    return context, compute_digest(certificate.public_bytes(serialization.Encoding.DER))


def make_client_context() -> ssl.SSLContext:
    """Return a context that accepts any certificate: the caller compares its digest before it sends anything."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def compute_digest(certificate: bytes) -> str:
    """Return the digest of a certificate in DER."""
    return hashlib.sha256(certificate).hexdigest()


def make_secret() -> str:
    """Return a new secret."""
    return secrets.token_hex(32)
