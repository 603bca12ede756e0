"""Transport that retries when the server does not answer or throttles."""

import time
from collections.abc import Callable, Mapping

from jobmeter.client.transport import Response, Transport
from jobmeter.errors import ThrottledError, UnavailableError

FIRST_WAIT_SECONDS = 0.5
LONGEST_WAIT_SECONDS = 30.0


class RetryingTransport(Transport):
    """Transport that repeats a GET up to ``retries`` times, with growing pauses.

    It waits as long as the server requests, at most ``LONGEST_WAIT_SECONDS``. Other methods are sent once.
    """

    def __init__(
        self, server: str, key: str = "", *, retries: int = 3, wait: Callable[[float], None] = time.sleep
    ) -> None:
        super().__init__(server, key)
        self._retries = retries
        self._wait = wait

    def request(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Response:
        """Send a request. Raises the last error when all attempts failed."""
        pause = FIRST_WAIT_SECONDS
        for _ in range(self._retries if method == "GET" else 0):
            try:
                return super().request(method, path, body, headers)
            except (UnavailableError, ThrottledError) as error:
                retry_after_ms = error.retry_after_ms
                self._wait(min(pause if retry_after_ms is None else retry_after_ms / 1000, LONGEST_WAIT_SECONDS))
                pause *= 2
        return super().request(method, path, body, headers)
