"""The two encodings of a body, and how a call names its own."""

from jobmeter.access.call import Call

PROTOBUF, JSON = "application/x-protobuf", "application/json"
ENCODING, TYPE = "Content-Encoding", "Content-Type"
"""Fields of InvalidRequestError for a form of the body that is not taken: 415."""
UNPACKED = frozenset({"", "identity", "gzip", "x-gzip"})
"""Content encodings that the server undoes."""


def media_of(call: Call) -> str:
    """Content-Type without its parameters, in lower case."""
    return call.header("content-type").partition(";")[0].strip().lower()


def encoding_of(call: Call) -> str:
    """Content-Encoding in lower case."""
    return call.header("content-encoding").strip().lower()
