"""HTTP requests to a sink: only to allowed addresses, without redirects and without proxies from the environment."""

import gzip
import http.client
import ssl
from collections.abc import Mapping
from typing import ClassVar
from urllib.parse import SplitResult, urlsplit

import msgspec

from jobmeter.errors import ConfigurationError
from jobmeter.ship.guard import DestinationPolicy
from jobmeter.ship.sink import Origin, SinkError, SinkRefusedError, SinkSettings

TIMEOUT_SECONDS = 10.0
_MOST_ANSWER = 64 * 1024
_REFUSED = frozenset({400, 413, 422})


class SinkReply(msgspec.Struct, frozen=True):
    """Answer of a sink."""

    status: int
    body: bytes


class _Plain(http.client.HTTPConnection):
    def __init__(self, guard: DestinationPolicy, host: str, port: int) -> None:
        super().__init__(host, port, timeout=TIMEOUT_SECONDS)
        self._guard = guard

    def connect(self) -> None:
        self.sock = self._guard.connect(self.host, self.port, TIMEOUT_SECONDS)


class _Secure(_Plain):
    def connect(self) -> None:
        super().connect()
        self.sock = ssl.create_default_context().wrap_socket(self.sock, server_hostname=self.host)


class SinkEndpoint:
    """Address of a sink. Its connection is reused while the sink leaves it open."""

    def __init__(self, url: str, guard: DestinationPolicy, *, query: bool = False) -> None:
        """Raise ConfigurationError for an invalid URL. ``query``: it may have parameters."""
        self.parts = parts = _parse_url(url, query=query)
        self.host = parts.hostname or ""
        self.path = parts.path
        self._guard = guard
        self._kind = _Secure if parts.scheme == "https" else _Plain
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._connection: _Plain | None = None

    @property
    def host_header(self) -> str:
        """Host header: includes the port if it is not the scheme's default."""
        return self.parts.netloc

    def request(self, method: str, target: str, body: bytes, headers: Mapping[str, str]) -> SinkReply:
        """Send a request and return the answer, whatever its status. Raises SinkError without an answer."""
        again = self._connection is not None
        try:
            return self._send_once(method, target, body, headers)
        except (http.client.HTTPException, ConnectionError) as error:
            self.close()
            if again:  # an idle connection may have been closed meanwhile: retry once
                return self.request(method, target, body, headers)
            raise SinkError(f"{self.host} did not answer: {_explain(error)}") from error
        except (OSError, ValueError) as error:
            self.close()
            raise SinkError(f"{self.host} cannot be reached: {_explain(error)}") from error

    def _send_once(self, method: str, target: str, body: bytes, headers: Mapping[str, str]) -> SinkReply:
        if self._connection is None:
            self._connection = self._kind(self._guard, self.host, self._port)
        self._connection.request(method, target, body, {"Host": self.host_header, **headers})
        answer = self._connection.getresponse()
        content = answer.read(_MOST_ANSWER)
        if answer.read(1) or answer.will_close:
            self.close()
        return SinkReply(answer.status, content)

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class HttpSink:
    """Sink at ``url``."""

    most_lines = 4_000
    most_bytes = 3 * 2**20
    linger_seconds = 0.0

    def __init__(self, settings: SinkSettings, guard: DestinationPolicy) -> None:
        """Raise ConfigurationError for an invalid URL."""
        if settings.linger_seconds is not None:
            self.linger_seconds = settings.linger_seconds
        self._endpoint = SinkEndpoint(settings.url, guard)

    def close(self) -> None:
        """Close the connection."""
        self._endpoint.close()


class PostSink(HttpSink):
    """Sink that accepts gzip bodies by POST, by default at ``path``."""

    path: ClassVar[str]
    content_type: ClassVar[str]

    def __init__(self, settings: SinkSettings, guard: DestinationPolicy, origin: Origin) -> None:  # noqa: ARG002 - as every sink
        """Raise ConfigurationError for an invalid URL."""
        super().__init__(settings, guard)
        self._path = self._endpoint.path if self._endpoint.path not in {"", "/"} else self.path
        self._headers = {**settings.headers, "Content-Type": self.content_type, "Content-Encoding": "gzip"}
        if settings.token:
            self._headers["Authorization"] = f"Bearer {settings.token}"
        self._labels = settings.labels

    def post(self, body: bytes) -> SinkReply:
        """Post a body, compressed. Raises as ``check_reply``."""
        reply = self._endpoint.request("POST", self._path, gzip.compress(body, 1), self._headers)
        return check_reply(reply, self._endpoint.host)


def check_reply(reply: SinkReply, host: str) -> SinkReply:
    """Return the reply of a sink that accepted the batch.

    Raises SinkRefusedError for a permanent refusal, else SinkError.
    """
    if 200 <= reply.status < 300:
        return reply
    text = "".join(part if part.isprintable() else " " for part in reply.body[:300].decode(errors="replace"))
    message = f"{host} answered {reply.status} {text}".rstrip()
    if 300 <= reply.status < 400:
        raise SinkError(f"{host} answered {reply.status}: redirects are not followed")
    raise (SinkRefusedError if reply.status in _REFUSED else SinkError)(message)


def _parse_url(url: str, *, query: bool) -> SplitResult:
    try:
        parts = urlsplit(url)
        wrong = parts.scheme not in {"http", "https"} or not parts.hostname or (parts.port or 1) < 1
    except ValueError:
        wrong = True
        parts = urlsplit("")
    if wrong or parts.username is not None or (parts.query and not query) or parts.fragment:
        raise ConfigurationError(
            "a sink's url must be http://HOST[:PORT][/PATH] or https://..., without credentials, ? and #"
        )
    return parts


def _explain(error: Exception) -> str:
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return (text or type(error).__name__)[:200]
