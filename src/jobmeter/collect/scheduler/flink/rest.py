"""Client of a job manager's REST interface, with limits of requests, time and bytes."""

from collections.abc import Iterator, Sequence
from typing import TypeVar
from urllib.parse import quote, urlsplit

import msgspec
import urllib3

from jobmeter.collect.http_get import get
from jobmeter.collect.scheduler.flink.answers import FlinkReading
from jobmeter.errors import ConfigurationError, LimitExceededError, UnavailableError

SECONDS = 20.0
MOST_BYTES = 64 * 2**20
MOST_REQUESTS = 500
"""Most requests between two calls of ``begin``."""
_LONGEST_QUERY = 3_000
"""Most characters of a list of metrics: Flink's server refuses a request line of more than 4096."""

T = TypeVar("T")


class FlinkRest:
    """Client of a job manager at ``http(s)://[USER:PASSWORD@]HOST[:PORT][/PATH]``."""

    def __init__(self, address: str, most_requests: int = MOST_REQUESTS) -> None:
        """Raise ConfigurationError for an invalid address."""
        try:
            parts = urlsplit(address)
            port = "" if parts.port is None else f":{parts.port}"
        except ValueError as error:
            raise ConfigurationError(f"--rest {address!r} is not an address: {error}") from error
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ConfigurationError(f"--rest {address!r} must be an address such as http://host:8081")
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        self.address = f"{parts.scheme}://{host}{port}{parts.path.rstrip('/')}"
        login = None if parts.username is None else f"{parts.username}:{parts.password or ''}"
        self._headers = urllib3.make_headers(basic_auth=login) if login else {}
        self._pool = urllib3.PoolManager(timeout=SECONDS)
        self._most = self._left = most_requests

    def begin(self) -> None:
        """Begin an interval, which resets the number of allowed requests."""
        self._left = self._most

    def close(self) -> None:
        """Close its connections."""
        self._pool.clear()

    def get(self, path: str, kind: type[T]) -> T | None:
        """Return the answer; None for objects that the job manager does not have.

        Raises UnavailableError for an unexpected answer, LimitExceededError after too many requests.
        """
        if self._left <= 0:
            raise LimitExceededError(f"{self._most} requests in one interval", "rest")
        self._left -= 1
        status, body = get("Flink", self.address, self._pool, self.address + path, self._headers, MOST_BYTES)
        if status == 404:
            return None
        if status != 200:
            raise UnavailableError(f"Flink at {self.address} answers {status} to {path[:100]}: {body[:200]!r}")
        try:
            return msgspec.json.decode(body, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise UnavailableError(
                f"Flink at {self.address} gives an unexpected answer to {path[:100]}: {error}"
            ) from error

    def list_names(self, path: str) -> list[str]:
        """Return the names of the metrics. Flink collects metrics only after a request, so the first list is empty."""
        return [one.id for one in self.get(path, list[FlinkReading]) or []]

    def read_values(self, path: str, names: Sequence[str]) -> dict[str, float]:
        """Return the values of existing metrics by name. Values that are no numbers are left out."""
        found: dict[str, float] = {}
        for some in _chunks(names):
            for one in self.get(f"{path}?get={some}", list[FlinkReading]) or []:
                try:
                    found[one.id] = float(one.value)
                except ValueError:
                    continue
        return found


def _chunks(names: Sequence[str]) -> Iterator[str]:
    some = ""
    for name in map(quote, names):
        if some and len(some) + len(name) >= _LONGEST_QUERY:
            yield some
            some = ""
        some = f"{some},{name}" if some else name
    if some:
        yield some
