"""GET requests with a limit of bytes."""

from collections.abc import Mapping

import urllib3

from jobmeter.errors import UnavailableError

_CHUNK = 2**20


def get(
    name: str,
    address: str,
    pool: urllib3.PoolManager | urllib3.HTTPConnectionPool,
    url: str,
    headers: Mapping[str, str],
    most_bytes: int,
) -> tuple[int, bytes]:
    """Return the status and the body of the answer of ``name`` at ``address``, which errors name.

    Raises UnavailableError without an answer, or if it exceeds ``most_bytes``.
    """
    try:
        answer = pool.urlopen("GET", url, headers=headers, retries=False, redirect=False, preload_content=False)
        body = bytearray()
        try:
            for chunk in answer.stream(_CHUNK):
                body += chunk
                if len(body) > most_bytes:
                    raise UnavailableError(f"an answer of {name} is longer than {most_bytes} bytes")
        finally:
            answer.close()  # after a complete read the connection is already back in the pool
    except urllib3.exceptions.HTTPError as error:
        raise UnavailableError(f"{name} at {address} does not answer: {error}") from error
    return answer.status, bytes(body)
