"""Reading the body of a scheduler's answer, with a limit of bytes."""

from contextlib import ExitStack

import urllib3

from jobmeter.errors import UnavailableError

_CHUNK = 2**20


def read_body(answer: urllib3.BaseHTTPResponse, most_bytes: int, sender: str) -> bytes:
    """The whole body. Raises UnavailableError for a longer one, and closes the connection then and after an error.

    After success the caller closes or releases the connection.
    """
    body = bytearray()
    with ExitStack() as opened:
        opened.callback(answer.close)
        for chunk in answer.stream(_CHUNK):
            body += chunk
            if len(body) > most_bytes:
                raise UnavailableError(f"an answer of {sender} is longer than {most_bytes} bytes")
        opened.pop_all()
    return bytes(body)
