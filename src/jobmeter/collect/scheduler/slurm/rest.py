"""Client of slurmrestd, by HTTP or a socket (https://slurm.schedmd.com/rest.html)."""

import socket
from collections.abc import Callable

import urllib3
from urllib3.connection import HTTPConnection
from urllib3.connectionpool import HTTPConnectionPool

from jobmeter.collect.http_get import get
from jobmeter.collect.scheduler.slurm.commands import MOST_BYTES, SECONDS
from jobmeter.collect.scheduler.slurm.token import Token
from jobmeter.errors import ConfigurationError, UnavailableError
from jobmeter.model.time import Clock

VERSIONS = tuple(f"v0.0.{number}" for number in range(47, 37, -1))
"""Versions to try, newest first; 38 came with Slurm 22.05. A server supports three or four of them."""
_UNIX = "unix:"
_REFUSED = frozenset({401, 403})


class _UnixConnection(HTTPConnection):
    """Connection to a socket in the file system."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=SECONDS)
        self._path = path

    def connect(self) -> None:
        connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connected.settimeout(SECONDS)
            connected.connect(self._path)
        except OSError:
            connected.close()
            raise
        self.sock = connected


class _UnixPool(HTTPConnectionPool):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=SECONDS)
        self._path = path

    def _new_conn(self) -> _UnixConnection:
        return _UnixConnection(self._path)


class SlurmRest:
    """Client of slurmrestd, with the token that ``token`` returns at each call."""

    def __init__(self, address: str, clock: Clock, token: Callable[[], Token | None]) -> None:
        """``address`` is ``http(s)://host:port`` or ``unix:/path``. Raises ConfigurationError for any other."""
        self._address = address.rstrip("/")
        self._clock = clock
        self._token = token
        self._pool: urllib3.PoolManager | _UnixPool
        if address.startswith(_UNIX):
            self._pool, self._base = _UnixPool("/" + address.removeprefix(_UNIX).lstrip("/")), ""
        elif address.startswith(("http://", "https://")):
            self._pool, self._base = urllib3.PoolManager(timeout=SECONDS), self._address
        else:
            raise ConfigurationError(f"--rest {address!r} must be an address such as http://host:6820 or unix:/path")
        self._version = ""

    def read_jobs(self) -> bytes:
        """Return the body of the controller's list of jobs. Raises UnavailableError without one."""
        for version in (self._version,) if self._version else VERSIONS:
            body = self._get(f"/slurm/{version}/jobs")
            if body is not None:
                self._version = version
                return body
        spoken, self._version = self._version, ""
        raise UnavailableError(
            f"slurmrestd at {self._address} does not support {spoken or f'any of {VERSIONS[-1]} to {VERSIONS[0]}'}"
        )

    def _get(self, path: str) -> bytes | None:
        """Return the body of an answer; None for an unknown path."""
        token = self._token()
        headers = token.make_headers() if token else {}
        status, body = get("slurmrestd", self._address, self._pool, self._base + path, headers, MOST_BYTES)
        if status == 404:
            return None
        if status != 200:
            said = _refusal(token, status, self._clock.now_ms()) or f"answers {status}: {body[:200]!r}"
            raise UnavailableError(f"slurmrestd at {self._address} {said}")
        return body


def _refusal(token: Token | None, status: int, now_ms: int) -> str:
    """Return the reason why the token was refused, by the answer and the token itself; empty if unknown.

    slurmrestd passes the token to the controller, and answers 500 if the controller rejects it.
    """
    if token is None:
        return f"requires a token ({status}): give one in SLURM_JWT or --rest-token-file" if status in _REFUSED else ""
    if problem := token.find_problem(now_ms):
        return f"answers {status}: {problem}"
    return f"does not accept the token of {token.source} ({status})" if status in _REFUSED else ""
