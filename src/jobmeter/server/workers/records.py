"""Records of the storage process in a worker: found by searches on a thread, cached while their revision is current."""

import asyncio
import secrets
from collections.abc import Hashable, Sequence
from concurrent.futures import CancelledError, Future
from itertools import count
from time import monotonic
from typing import Any, TypeVar

import msgspec

from jobmeter.access.vault import KEY_BYTES, Vault
from jobmeter.model.job import Job, JobView, Node
from jobmeter.model.series import Series
from jobmeter.model.time import Clock
from jobmeter.registry.memory import Expiring
from jobmeter.registry.stored import StoredKey
from jobmeter.server.workers.frames import (
    PIECE_BYTES,
    AccessKeyLookup,
    JobLookup,
    KeyLookup,
    LookupResult,
    NodesLookup,
    RecordLookup,
    Searched,
    SeriesLookup,
)
from jobmeter.server.workers.owned import OwnerNeededError
from jobmeter.store.base import SeriesSelector, StoreMemory
from jobmeter.store.cache import Cache
from jobmeter.store.channel import Channel
from jobmeter.store.damage import DamagedPart
from jobmeter.store.window.revisions import Revisions, compute_key
from jobmeter.store.window.shared import SharedWindow

T = TypeVar("T")

_SEARCH_SECONDS = 5.0
"""Time limit of a search in seconds."""
REFUSED_SECONDS = 10.0
"""Seconds until a search without a result may be repeated. A list that is too large costs most."""
_REFUSED_BYTES = 2**20
"""Bytes of the cache of searches without a result."""
_CACHE_BYTES = 16 * 2**20
"""Bytes of the cache of job records."""
_ROW_BYTES = 500
"""Approximate bytes of a row of the registry."""


class RecordSearch:
    """Searches of a worker in the storage process's records. ``find`` is for threads, all else for the event loop."""

    def __init__(self, channel: Channel, clock: Clock) -> None:
        self._channel, self._clock = channel, clock
        self._loop: asyncio.AbstractEventLoop | None = None
        self._refused = Cache(_REFUSED_BYTES)
        self._numbers = count()
        self._waiting: dict[int, Future[bytes | None]] = {}

    def begin(self) -> None:
        """Allow searches from now on; called on the event loop."""
        self._loop = asyncio.get_running_loop()

    def find(self, about: Searched, decoder: msgspec.msgpack.Decoder[T]) -> T:
        """Return the records.

        Raises OwnerNeededError if the worker may not cache them, if ``about`` is too large, or if the search fails.
        """
        loop, size = self._loop, len(msgspec.msgpack.encode(about))
        if loop is None:
            raise OwnerNeededError("not connected")
        if size > PIECE_BYTES:  # the storage process closes the connection after a message that is too long
            raise OwnerNeededError("too many names")
        if self._clock.monotonic() < (self._refused.get(about, None) or 0.0):
            raise OwnerNeededError("no record")
        number, future = next(self._numbers), Future[bytes | None]()
        self._waiting[number] = future
        try:
            loop.call_soon_threadsafe(self._channel.send, RecordLookup(number, about))
            found = future.result(_SEARCH_SECONDS)
        except (TimeoutError, CancelledError, RuntimeError) as error:
            raise OwnerNeededError("no result") from error
        finally:
            self._waiting.pop(number, None)
        if found is None:
            self._refused.put(about, None, self._clock.monotonic() + REFUSED_SECONDS, size)
            raise OwnerNeededError("no record")
        return decoder.decode(found)

    def take(self, found: LookupResult) -> None:
        """Take the result of a search."""
        waiting = self._waiting.get(found.number)
        if waiting is not None:
            waiting.set_result(found.result)

    def close(self) -> None:
        """End the running searches."""
        self._loop = None
        for waiting in list(self._waiting.values()):
            waiting.cancel()


_KEY: msgspec.msgpack.Decoder[StoredKey | None] = msgspec.msgpack.Decoder(StoredKey | None)
_SIGNING_KEY: msgspec.msgpack.Decoder[tuple[StoredKey | None, str]] = msgspec.msgpack.Decoder(
    tuple[StoredKey | None, str]
)
_HEADS = msgspec.msgpack.Decoder(tuple[float, Expiring[list[Job]]])
_VIEWS = msgspec.msgpack.Decoder(tuple[float, Expiring[list[JobView]]])
_NODES = msgspec.msgpack.Decoder(list[Node])
_SERIES = msgspec.msgpack.Decoder(list[Series])


class WorkerKeys:
    """Keys of the registry, with the interface of ``KeyTable``.

    The secret that signs calls comes from the storage process. ``vault`` has a random key of this process, seals these
    secrets in memory, and opens nothing that the registry stores.
    """

    def __init__(self, search: RecordSearch) -> None:
        self._search = search
        self.vault = Vault(secrets.token_bytes(KEY_BYTES))

    def find_by_token(self, token_hash: bytes) -> StoredKey | None:
        """Return the key with that token digest, revoked or not."""
        return self._search.find(KeyLookup(token_hash), _KEY)

    def find_by_access_key(self, access_key_id: str) -> StoredKey | None:
        """Return the key with that access key id, revoked or not, with its secret sealed by ``vault``."""
        key, secret = self._search.find(AccessKeyLookup(access_key_id), _SIGNING_KEY)
        return key and msgspec.structs.replace(key, sealed_secret=self.vault.seal(secret, key.access_key_id))


class WorkerJobs:
    """Cached jobs, with the interface of ``CachedAnswers``. ``find`` searches for a job that is not cached."""

    def __init__(self, search: RecordSearch, revisions: Revisions) -> None:
        self._search, self._revisions = search, revisions
        self._cache = Cache(_CACHE_BYTES)

    def get_job(self, projects: frozenset[str] | None, job: str, now_ms: int) -> list[JobView] | None:
        """Return the cached jobs of that id."""
        return self._get_cached(JobLookup(projects, job, is_head=False), now_ms)

    def get_job_head(self, projects: frozenset[str] | None, job: str, now_ms: int) -> list[Job] | None:
        """Return the cached jobs of that id, without replicas and allocations."""
        return self._get_cached(JobLookup(projects, job, is_head=True), now_ms)

    def find(self, lookup: JobLookup, decoder: msgspec.msgpack.Decoder[tuple[float, Expiring[list[T]]]]) -> list[T]:
        """Search for the jobs, and cache them. Raises OwnerNeededError."""
        revision = self._revision(lookup)
        until, found = self._search.find(lookup, decoder)
        self._cache.put(lookup, revision, (until, found), _ROW_BYTES * found.parts)
        return found.answer

    def _get_cached(self, lookup: JobLookup, now_ms: int) -> list[Any] | None:
        entry: tuple[float, Expiring[list[Any]]] | None = self._cache.get(lookup, self._revision(lookup))
        if entry is None or entry[0] <= monotonic() or not entry[1].is_valid(now_ms):
            return None
        return entry[1].answer

    def _revision(self, lookup: JobLookup) -> Hashable:
        return self._revisions.get_revision((compute_key(lookup.job),))


class WorkerRegistry:
    """Methods of ``Registry`` that a worker's answers need. All others raise OwnerNeededError."""

    def __init__(self, search: RecordSearch, revisions: Revisions) -> None:
        self._search = search
        self.keys = WorkerKeys(search)
        self.memory = WorkerJobs(search, revisions)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - never returns
        """Raise OwnerNeededError."""
        raise OwnerNeededError(name)

    def find_job(self, projects: frozenset[str] | None, job: str, now_ms: int) -> list[JobView]:
        """Return the jobs of that id."""
        cached = self.memory.get_job(projects, job, now_ms)
        return cached or self.memory.find(JobLookup(projects, job, is_head=False), _VIEWS)

    def find_job_head(self, projects: frozenset[str] | None, job: str, now_ms: int) -> list[Job]:
        """Return the jobs of that id, without replicas and allocations."""
        cached = self.memory.get_job_head(projects, job, now_ms)
        return cached or self.memory.find(JobLookup(projects, job, is_head=True), _HEADS)

    def list_nodes(self, projects: frozenset[str] | None, names: frozenset[str] | None = None) -> list[Node]:
        """Return the nodes with these names."""
        return self._search.find(NodesLookup(projects, names), _NODES)


class WorkerStore:
    """Methods of ``Store`` that a worker's answers need. All others raise OwnerNeededError."""

    def __init__(self, search: RecordSearch, window: SharedWindow) -> None:
        self._search, self._window = search, window
        self.memory: StoreMemory = window

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - never returns
        """Raise OwnerNeededError."""
        raise OwnerNeededError(name)

    def get_revision(self, jobs: Sequence[int] | None) -> Hashable | None:
        """Return a value that changes when data of these jobs may have changed; None while the window is closed."""
        return None if self._window.is_closed else self._window.revisions.get_revision(jobs)

    def find(self, selector: SeriesSelector) -> list[Series]:
        """Return the series that match."""
        return self._search.find(SeriesLookup(selector), _SERIES)

    def list_damaged(self) -> Sequence[DamagedPart]:
        """Return no damaged part. While any part is damaged, a worker gets no key and forwards every call."""
        return ()
