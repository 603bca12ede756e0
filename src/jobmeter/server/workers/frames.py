"""Messages between a worker and the storage process, sent over a ``jobmeter.store.channel``.

A number identifies each call of a connection, so several calls run at a time.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from jobmeter.access.limit import Rate
from jobmeter.access.principal import Principal
from jobmeter.ingest.receipt import Receipt
from jobmeter.settings import Settings
from jobmeter.store.base import SeriesSelector
from jobmeter.wire.native.decode import FrameColumns

PIECE_BYTES = 256 * 1024
"""Most bytes of a body in one message."""
WINDOW_BYTES = 4 * PIECE_BYTES
"""Most bytes of one answer that the client's connection has not taken yet."""
PUSHED_BYTES = 64 * 1024
"""Largest announced body that a worker sends without a request for it."""

Headers = list[tuple[bytes, bytes]]


class Setup(msgspec.Struct, tag=0, array_like=True, frozen=True):
    """First message to a worker. ``bound`` limits its HTTP connections; ``digest_key`` is that of ``ListDigester``."""

    settings: Settings
    bound: int
    digest_key: bytes


class Want(msgspec.Struct, tag=1, array_like=True, frozen=True):
    """Request for the next part of a call's body, or for its client's disconnect."""

    call: int
    authenticated: bool


class AnswerStart(msgspec.Struct, tag=2, array_like=True, frozen=True):
    """Start of an answer, with the first part of its body. ``is_over``: no ``End`` follows."""

    call: int
    status: int
    headers: Headers
    body: bytes
    more: bool
    authenticated: bool
    is_over: bool = False


class Part(msgspec.Struct, tag=3, array_like=True, frozen=True):
    """Further part of an answer."""

    call: int
    body: bytes
    more: bool


class End(msgspec.Struct, tag=4, array_like=True, frozen=True):
    """End of a call. The worker cuts the client off if its answer is incomplete."""

    call: int


class Stop(msgspec.Struct, tag=5, array_like=True, frozen=True):
    """Request to accept no more connections, and to end after the last answer."""


class LookupResult(msgspec.Struct, tag=6, array_like=True, frozen=True):
    """Result of a ``RecordLookup`` in msgpack; None if the worker may not cache it."""

    number: int
    result: bytes | None


class AdmissionResult(msgspec.Struct, tag=7, array_like=True, frozen=True):
    """Result of an ``AdmissionRequest``. The worker sends its answer if ``is_admitted``, else it forwards the call."""

    number: int
    is_admitted: bool


class SamplesStored(msgspec.Struct, tag=8, array_like=True, frozen=True):
    """Receipt of a ``SamplesRead``: the samples are durable. None if the worker must forward the call."""

    number: int
    receipt: Receipt | None


class Ready(msgspec.Struct, tag=0, array_like=True, frozen=True):
    """Report that a worker accepts connections."""


class Head(msgspec.Struct, tag=1, array_like=True, frozen=True):
    """Start of a call. ``is_pushed``: the first part of its body follows without a request."""

    call: int
    method: str
    path: bytes
    query: bytes
    headers: Headers
    scheme: str
    client: tuple[str, int] | None
    is_pushed: bool


class BodyPart(msgspec.Struct, tag=2, array_like=True, frozen=True):
    """Part of a call's body; ``more``: further parts follow. ``is_cut``: the next part follows without a request."""

    call: int
    body: bytes
    more: bool
    is_cut: bool


class ClientGone(msgspec.Struct, tag=3, array_like=True, frozen=True):
    """Report that the client of a call has disconnected."""

    call: int


class Taken(msgspec.Struct, tag=4, array_like=True, frozen=True):
    """Size of a part of an answer that the client's connection took."""

    call: int
    size: int


class Figures(msgspec.Struct, tag=5, array_like=True, frozen=True):
    """Number of open HTTP connections of a worker."""

    connections: int


class Closed(msgspec.Struct, tag=6, array_like=True, frozen=True):
    """Report that a worker closed or refused a connection, for a reason of ``Connections``."""

    reason: str


class KeyLookup(msgspec.Struct, tag=0, array_like=True, frozen=True):
    """Search for a key by the digest of its token."""

    token_hash: bytes


class AccessKeyLookup(msgspec.Struct, tag=4, array_like=True, frozen=True):
    """Search for a key by its access key id, with the secret that signs its calls."""

    access_key_id: str


class JobLookup(msgspec.Struct, tag=1, array_like=True, frozen=True):
    """Search for the jobs of an id. ``is_head``: without replicas and allocations."""

    projects: frozenset[str] | None
    job: str
    is_head: bool


class NodesLookup(msgspec.Struct, tag=2, array_like=True, frozen=True):
    """Search for nodes by name."""

    projects: frozenset[str] | None
    names: frozenset[str] | None


class SeriesLookup(msgspec.Struct, tag=3, array_like=True, frozen=True):
    """Search for series."""

    selector: SeriesSelector


Searched = KeyLookup | AccessKeyLookup | JobLookup | NodesLookup | SeriesLookup


class RecordLookup(msgspec.Struct, tag=7, array_like=True, frozen=True):
    """Search for records of the storage process that a worker caches. ``LookupResult`` has the same number."""

    number: int
    about: Searched


class Counts(msgspec.Struct, tag=8, array_like=True, frozen=True):
    """Counts of a worker's own answers.

    ``requests`` have router, status and seconds. ``calls`` have account, API, operation and failure. ``questions`` have
    rows and seconds.
    """

    requests: list[tuple[str, int, float]]
    calls: list[tuple[str, str, str, bool]]
    questions: list[tuple[int, float]]


class AdmissionRequest(msgspec.Struct, tag=9, array_like=True, frozen=True):
    """Request to admit a worker's own answer before the worker sends the answer.

    ``key`` and ``account`` name the caller. ``access_key_id``, ``nonce`` and ``date_ms`` belong to a signature; without
    a signature ``date_ms`` is None. ``operation`` is empty without a rate limit; ``rate`` is the vendor's own limit.
    ``costs`` are rows and seconds of the questions; None if no budget limits them.
    """

    number: int
    key: str
    account: str
    access_key_id: str
    nonce: str
    date_ms: int | None
    operation: str
    rate: Rate | None
    costs: list[tuple[int, float]] | None


class SamplesRead(msgspec.Struct, tag=10, array_like=True, frozen=True):
    """Samples of a body that a worker has read, of a caller who may write them."""

    number: int
    principal: Principal
    frames: Sequence[FrameColumns]


ToWorker = Setup | Want | AnswerStart | Part | End | Stop | LookupResult | AdmissionResult | SamplesStored
ToStorage = (
    Ready
    | Head
    | BodyPart
    | ClientGone
    | Taken
    | Figures
    | Closed
    | RecordLookup
    | Counts
    | AdmissionRequest
    | SamplesRead
)


def _path(kind: type, value: Any) -> Any:  # noqa: ANN401 - msgspec's
    return Path(value) if issubclass(kind, Path) else value


READ_BY_WORKER = msgspec.msgpack.Decoder(ToWorker, dec_hook=_path)
READ_BY_STORAGE = msgspec.msgpack.Decoder(ToStorage, dec_hook=_path)
