"""Bind the server's listening socket, and set up TLS."""

import socket
import ssl
from pathlib import Path

from jobmeter.errors import ConfigurationError
from jobmeter.settings import Settings


def bind(host: str, port: int) -> socket.socket:
    """Return a bound socket that does not listen yet. Raises ConfigurationError when the address is not available."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise ConfigurationError(f"--host {host!r} is not an address of this machine: {error}") from error
    bound = socket.socket(family, kind, protocol)
    try:
        # Never SO_REUSEPORT: a second server on the same port must fail, not share the requests.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError as error:
        bound.close()
        raise ConfigurationError(f"cannot listen on {host} port {port}: {error.strerror}") from error
    return bound


def make_url(bound: socket.socket, settings: Settings) -> str:
    """URL at which a client on this machine reaches the server."""
    host, port = bound.getsockname()[:2]
    if host in {"0.0.0.0", "::"}:  # noqa: S104 - every address includes the local one
        host = "127.0.0.1" if host == "0.0.0.0" else "::1"  # noqa: S104
    scheme = "https" if settings.tls_cert else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def make_tls_context(settings: Settings) -> ssl.SSLContext | None:
    """TLS context for versions 1.2 and 1.3; None without a certificate. Raises ConfigurationError."""
    certificate, key = find_tls_files(settings)
    if certificate is None or key is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(certificate, key)
    return context


def find_tls_files(settings: Settings) -> tuple[Path | None, Path | None]:
    """Return the certificate and key files after checking them; (None, None) without TLS. Raises ConfigurationError."""
    if not settings.tls_cert and not settings.tls_key:
        return None, None
    if not (settings.tls_cert and settings.tls_key):
        raise ConfigurationError("--tls-cert and --tls-key belong together: give both or none")
    certificate, key = Path(settings.tls_cert), Path(settings.tls_key)
    for file in (certificate, key):
        try:
            with file.open("rb"):
                pass
        except OSError as error:
            raise ConfigurationError(f"cannot use {file}: {error.strerror}") from error
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
    except ssl.SSLError as error:
        other = error.reason == "KEY_VALUES_MISMATCH"
        problem = f"the key in {key} does not belong to it" if other else f"it or {key} is not in PEM"
        raise ConfigurationError(f"cannot use {certificate}: {problem}") from error
    return certificate, key
