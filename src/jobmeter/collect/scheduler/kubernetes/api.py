"""API server over HTTP: pages of a list, and the lines of a watch, as bytes.

https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes. lightkube handles
addresses, certificates, tokens and their renewal.
"""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from jobmeter.errors import ConfigurationError, UnavailableError

if TYPE_CHECKING:
    import httpx2

_PAGE = 500
_CONNECT_SECONDS = 10.0
_WATCH_SECONDS = 270
"""Length of a watch in seconds. The next one begins at its end."""
_MOST_BYTES = 256 * 2**20
"""Most bytes of a page. A line of a watch may have a sixteenth of it."""


class GoneError(UnavailableError):
    """Expired resource version (410): everything has to be listed again."""


class AbsentError(UnavailableError):
    """Kind that the API server does not have (404)."""


class DeniedError(UnavailableError):
    """Kind that the account may not read (403)."""


class HttpApi:
    """Client of an API server. Thread-safe."""

    def __init__(self, kubeconfig: str | None, context: str | None) -> None:
        """Without ``kubeconfig``: the pod's own account inside a cluster, else ``KUBECONFIG`` or ``~/.kube/config``.

        Raises ConfigurationError if the cluster is not configured, or lightkube is not installed.
        """
        try:
            from lightkube import KubeConfig  # noqa: PLC0415 - the extra may not be there
            from lightkube.config import client_adapter  # noqa: PLC0415
            from lightkube.core.exceptions import ConfigError  # noqa: PLC0415
        except ImportError as error:
            raise ConfigurationError("Kubernetes needs the package's extra: jobmeter[kubernetes]") from error
        import httpx2  # noqa: PLC0415

        logging.getLogger("httpx2").setLevel(logging.WARNING)  # it logs every request
        self._errors = (httpx2.HTTPError, httpx2.StreamError, ConfigError, OSError)
        try:
            found = KubeConfig.from_file(kubeconfig) if kubeconfig else KubeConfig.from_env()
            chosen = found.get(context)
        except (ConfigError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigurationError(f"the cluster's configuration cannot be used: {error}") from error
        if chosen is None:
            raise ConfigurationError("the cluster's configuration names no current context: give one with --context")
        if chosen.user is None:
            raise ConfigurationError(f"context {chosen.context_name} has no user")
        self.server = str(chosen.cluster.server)
        timeout = httpx2.Timeout(_CONNECT_SECONDS, read=60.0)
        self._watch_timeout = httpx2.Timeout(_CONNECT_SECONDS, read=_WATCH_SECONDS + 30.0)
        limits: Any = client_adapter.ConnectionParams(timeout=timeout)
        try:
            self._client: httpx2.Client = client_adapter.Client(chosen, limits)
        except (ConfigError, OSError, ValueError) as error:
            raise ConfigurationError(f"the cluster's configuration cannot be used: {error}") from error

    def read_page(self, path: str, token: str) -> bytes:
        """Return a page of a list. ``token`` comes from the previous page, empty for the first.

        Raises GoneError for an expired token, AbsentError for an unknown path, DeniedError for a forbidden one, else
        UnavailableError.
        """
        parameters = {"limit": str(_PAGE), **({"continue": token} if token else {})}
        with self._open_stream(path, parameters, None) as answer:
            body = bytearray()
            for chunk in answer.iter_bytes():
                body += chunk
                if len(body) > _MOST_BYTES:
                    raise UnavailableError(f"a page of {path} is longer than {_MOST_BYTES} bytes")
            return bytes(body)

    def watch(self, path: str, version: str) -> Iterator[bytes]:
        """Yield the events since a version, one per line, until the server ends the watch. Raises as ``read_page``.

        An empty line comes first, when the server has accepted the watch.
        """
        parameters = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(_WATCH_SECONDS),
        }
        with self._open_stream(path, parameters, self._watch_timeout) as answer:
            yield b""
            rest = b""
            for chunk in answer.iter_bytes():
                *lines, rest = (rest + chunk).split(b"\n")
                if len(rest) > _MOST_BYTES // 16:
                    raise UnavailableError(f"an event of {path} is longer than {_MOST_BYTES // 16} bytes")
                yield from filter(None, lines)

    @contextmanager
    def _open_stream(
        self, path: str, query: Mapping[str, str], timeout: "httpx2.Timeout | None"
    ) -> "Iterator[httpx2.Response]":
        limits: dict[str, Any] = {"timeout": timeout} if timeout else {}
        try:
            with self._client.stream("GET", "/" + path, params=dict(query), **limits) as answer:
                if answer.status_code != 200:
                    raise _make_refusal(self.server, path, answer.status_code, answer.read())
                yield answer
        except self._errors as error:
            raise UnavailableError(f"the API server at {self.server} does not answer: {error}") from error


def _make_refusal(server: str, path: str, status: int, body: bytes) -> UnavailableError:
    text = f"the API server at {server} answers {status} for {path}: {body[:200].decode(errors='replace')}"
    kinds = {403: DeniedError, 404: AbsentError, 410: GoneError}
    return kinds.get(status, UnavailableError)(text)
