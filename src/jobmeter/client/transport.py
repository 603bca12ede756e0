"""Requests to a Jobmeter server by address and key; failures become our errors."""

import re
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http.client import RemoteDisconnected

import msgspec
import urllib3

from jobmeter.errors import (
    ConflictError,
    DamagedDataError,
    ForbiddenError,
    InvalidRequestError,
    JobmeterError,
    LimitExceededError,
    NotFoundError,
    QueryTimeoutError,
    ThrottledError,
    UnauthenticatedError,
    UnavailableError,
)

API = "/api/jobmeter/v1"
FRAMES = "application/vnd.jobmeter.frames"
_CHUNK = 65_536
_TOO_LARGE = 413


@dataclass(frozen=True, slots=True)
class Response:
    """Successful answer: header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class _Problem(msgspec.Struct):
    code: str = ""
    message: str = ""
    field: str = ""


class _ProblemBody(msgspec.Struct):
    error: _Problem


class Transport:
    """Pool of connections to one server. Thread-safe."""

    def __init__(self, server: str, key: str = "", *, ca_file: str | None = None, timeout: float = 30.0) -> None:
        """``server`` is ``http(s)://host:port``; ``key`` the token of a key; ``timeout`` in seconds for one attempt."""
        self.server = server.rstrip("/")
        self.key = key
        self._ca_file = ca_file
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._pool = urllib3.PoolManager(
            maxsize=4, ca_certs=ca_file, timeout=urllib3.Timeout(connect=min(5.0, timeout), read=timeout), retries=False
        )

    def request(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Response:
        """Send one request to ``path`` (below the server's root), without retries.

        Raises UnavailableError without an answer, and for a refusal the error that the server raised.
        """
        try:
            answer = self._pool.request(
                method, self.server + path, body=body, headers={**self._headers, **(headers or {})}, redirect=False
            )
        except urllib3.exceptions.HTTPError as error:
            raise UnavailableError(f"no answer from {self.server}: {_reason(error)}") from error
        names = {name.lower(): value for name, value in answer.headers.items()}
        if answer.status >= 300:
            raise _error(answer.status, names, answer.data)
        return Response(answer.status, names, answer.data)

    def stream(self, path: str, method: str = "GET", body: bytes | None = None) -> Iterator[bytes]:
        """Stream an answer in pieces.

        Raises as ``request``, and UnavailableError when the answer breaks off.
        """
        try:
            answer = self._pool.request(
                method, self.server + path, body=body, headers=self._headers, redirect=False, preload_content=False
            )
            if answer.status >= 300:
                names = {name.lower(): value for name, value in answer.headers.items()}
                raise _error(answer.status, names, answer.data)
            try:
                yield from answer.stream(_CHUNK)
            finally:
                # A connection with an unread answer cannot be used again.
                answer.close()
        except urllib3.exceptions.HTTPError as error:
            raise UnavailableError(f"no answer from {self.server}: {_reason(error)}") from error

    def stream_lines(self, path: str, method: str = "GET", body: bytes | None = None) -> Iterator[bytes]:
        """Stream an answer line by line. Raises as ``stream``."""
        rest = b""
        for chunk in self.stream(path, method, body):
            *whole, rest = (rest + chunk).split(b"\n")
            yield from whole
        if rest:
            yield rest

    def with_timeout(self, timeout: float) -> "Transport":
        """Return a transport to the same server with the same key and another time-out in seconds."""
        return Transport(self.server, self.key, ca_file=self._ca_file, timeout=timeout)

    def close(self) -> None:
        """Close the connections."""
        self._pool.clear()


_CONNECTION = re.compile(r"^HTTPS?Connection(?:Pool)?\([^)]*\): ")
"""Representation of a connection, with which urllib3 begins its messages."""
_NO_TLS = {"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNKNOWN_PROTOCOL"}
"""Reasons of OpenSSL for an answer that is not TLS."""


_REMEDIES: Mapping[type, str] = {
    ConnectionRefusedError: "connection refused: check the address, or start the server with `jobmeter serve`",
    RemoteDisconnected: "it closed the connection without an answer: use https:// if the port is for TLS",
}


def _reason(error: urllib3.exceptions.HTTPError) -> str:
    """Format the reason for a failed request in one sentence, with the remedy if it is known."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, OSError):
        cause = cause.__cause__ or next((one for one in cause.args if isinstance(one, BaseException)), None)
    if isinstance(cause, ssl.SSLCertVerificationError):
        problem = cause.verify_message.rstrip(".")
        return f"its certificate is not trusted ({problem}): name the file of its authority with --ca-file"
    if isinstance(cause, ssl.SSLError):
        if cause.reason in _NO_TLS:
            return "it does not speak TLS at this port: use http:// instead of https://"
        return f"TLS failed: {cause.reason or cause}"
    if isinstance(error, urllib3.exceptions.NameResolutionError):
        return "its name is unknown to the resolver: check the address"
    if type(cause) in _REMEDIES:
        return _REMEDIES[type(cause)]
    if isinstance(error, urllib3.exceptions.ConnectTimeoutError | urllib3.exceptions.ReadTimeoutError):
        return _CONNECTION.sub("", str(error)).partition(" (")[0].rstrip(".").lower()
    if cause is not None and cause.strerror:
        return cause.strerror.lower()
    return _CONNECTION.sub("", str(cause or error))


_PLAIN: Mapping[str, type[JobmeterError]] = {
    "unauthenticated": UnauthenticatedError,
    "forbidden": ForbiddenError,
    "not_found": NotFoundError,
    "conflict": ConflictError,
    "timeout": QueryTimeoutError,
    "damaged": DamagedDataError,
}


_BY_STATUS: Mapping[int, type[JobmeterError]] = {
    400: InvalidRequestError,
    401: UnauthenticatedError,
    403: ForbiddenError,
    404: NotFoundError,
}


class _OtherProblem(msgspec.Struct):
    error: str = ""
    message: str = ""


def _read_other_error(body: bytes) -> str:
    """Return the message of an error of Alertmanager, MLflow or Prometheus; empty for any other body."""
    try:
        found = msgspec.json.decode(body, type=str | _OtherProblem)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""
    return found if isinstance(found, str) else found.error or found.message


def _wait(headers: Mapping[str, str]) -> int | None:
    seconds = headers.get("retry-after", "")
    return int(seconds) * 1000 if seconds.isascii() and seconds.isdigit() else None


def _error(status: int, headers: Mapping[str, str], body: bytes) -> JobmeterError:
    try:
        problem = msgspec.json.decode(body, type=_ProblemBody).error
    except (msgspec.DecodeError, UnicodeDecodeError):
        if status == _TOO_LARGE:  # a proxy refused the body: a smaller body may pass
            return LimitExceededError("a proxy answered 413: the body is too large for it", "body")
        kind, text = _BY_STATUS.get(status), _read_other_error(body)
        if kind is not None and text:
            return kind(text)
        return UnavailableError(f"the server answered {status} with a body that is not Jobmeter's", _wait(headers))
    if problem.code in {"invalid_request", "limit_exceeded"}:
        kind = LimitExceededError if problem.code == "limit_exceeded" else InvalidRequestError
        return kind(problem.message, problem.field)
    if problem.code == "throttled":
        return ThrottledError(problem.message, _wait(headers) or 1000)
    if problem.code == "unavailable":
        return UnavailableError(problem.message, _wait(headers))
    return _PLAIN.get(problem.code, JobmeterError)(problem.message or f"the server answered {status}")
