"""An informer: one kind of objects, listed once and then watched.

https://kubernetes.io/docs/reference/using-api/api-concepts/#watch-bookmarks
"""

import logging
import random
from dataclasses import dataclass
from queue import SimpleQueue
from threading import Event, Thread
from typing import Generic, TypeVar

import msgspec

from jobmeter.collect.scheduler.kubernetes.api import AbsentError, GoneError, HttpApi
from jobmeter.collect.scheduler.kubernetes.objects import Metadata
from jobmeter.errors import UnavailableError

_RANDOM = random.Random()  # noqa: S311 - of its own: the shared one belongs to the program
_MOST_CHANGES = 50_000
"""Changes that wait for the next poll, besides the objects of a list; a watch is read no faster than they are taken."""
_FIRST_REST, _LONGEST_REST = 1.0, 60.0
_ABSENT_REST = 300.0
"""Seconds until a kind that the API server did not have is listed again."""
_FULL_SECONDS = 1.0
_READY_SECONDS = 20.0

_log = logging.getLogger(__name__)


class _Object(msgspec.Struct, frozen=True):
    metadata: Metadata = Metadata()


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Change(Generic[T]):
    """A change of an object: ``found`` None means that it was deleted.

    ``uids`` marks the end of a complete list and are those of all its objects: any other object was deleted unobserved.
    """

    uid: str
    found: T | None
    uids: frozenset[str] | None = None


class _ListMetadata(msgspec.Struct, rename="camel", frozen=True):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class _Page(msgspec.Struct, frozen=True):
    items: list[msgspec.Raw] | None = None
    metadata: _ListMetadata = _ListMetadata()


class _Event(msgspec.Struct, frozen=True):
    type: str
    object: msgspec.Raw


class _Status(msgspec.Struct, frozen=True):
    code: int = 0
    message: str = ""


class Informer(Generic[T]):
    """Reads on a thread of its own from ``start`` on. ``take`` belongs to one thread."""

    def __init__(self, api: HttpApi, path: str, kind: type[T], *, optional: bool) -> None:
        """``optional``: the API server may not have the kind."""
        self.path = path
        self._api = api
        self._kind = kind
        self._optional = optional
        self._stop = Event()
        self._changes: SimpleQueue[Change[T]] = SimpleQueue()
        self._version = ""
        self.ready = Event()
        """Set when the first list was read, or the kind is known to be absent."""
        self.problem = ""
        """Why the API server does not answer, empty while it does."""

    def start(self) -> None:
        """Begin to read."""
        Thread(target=self.run, name=f"watch {self.path}", daemon=True).start()

    def wait_ready(self) -> bool:
        """Whether the first list was read within 20 seconds, or the kind is known to be absent."""
        return self.ready.wait(_READY_SECONDS)

    def stop(self) -> None:
        """Stop reading after the current event."""
        self._stop.set()

    def take(self) -> list[Change[T]]:
        """What has changed since the last call, oldest first."""
        changes = self._changes
        return [changes.get_nowait() for _ in range(changes.qsize())]

    def run(self) -> None:
        """List, watch, and begin again where that ends, until ``stop``."""
        failures = 0
        while not self._stop.is_set():
            try:
                if not self._version:
                    self._list()
                failures, self.problem = 0, ""
                self._watch()
                wait = _FIRST_REST
            except GoneError:
                self._version = ""  # everything is listed again, and missing objects were deleted
                wait = _FIRST_REST
            except AbsentError as error:
                wait = self._absent(error)
            except (UnavailableError, msgspec.DecodeError) as error:
                self.problem = str(error)
                _log.debug("watching %s: %s", self.path, error)
                # With jitter, so that not all clients reconnect to an API server at the same time.
                spread = _RANDOM.uniform(0.5, 1.0)
                wait = spread * min(_FIRST_REST * 2 ** min(failures, 8), _LONGEST_REST)
                failures += 1
            if self._stop.wait(wait):
                return

    def _absent(self, error: AbsentError) -> float:
        """Note that the API server lacks the kind; gives the seconds until it is listed again."""
        self._version = ""
        if not self._optional:
            self.problem = error.message
            return _LONGEST_REST
        self.problem = ""
        self.ready.set()
        return _ABSENT_REST

    def _list(self) -> None:
        token, listed = "", SimpleQueue[Change[T]]()
        uids = set[str]()
        while True:
            page = msgspec.json.decode(self._api.page(self.path, token), type=_Page)
            for item in page.items or ():
                if (change := self._change(item)) is not None:
                    listed.put(change)
                    uids.add(change.uid)
            token = page.metadata.continue_
            if not token:
                break
        listed.put(Change("", None, frozenset(uids)))
        # A whole list says all that earlier changes say, which nobody took yet.
        self._changes = listed
        self._version = page.metadata.resource_version
        self.ready.set()

    def _watch(self) -> None:
        for line in self._api.watch(self.path, self._version):
            event = msgspec.json.decode(line, type=_Event)
            if event.type == "ERROR":
                status = msgspec.json.decode(event.object, type=_Status)
                raise (GoneError if status.code == 410 else UnavailableError)(status.message or "the watch ended")
            metadata = msgspec.json.decode(event.object, type=_Object).metadata
            if event.type != "BOOKMARK":
                if (change := self._change(event.object)) is not None:
                    self._changes.put(change)
                if event.type == "DELETED":
                    self._changes.put(Change(metadata.uid, None))
            # Stored after it is in the queue: an event is read again if the watch breaks off in between.
            self._version = metadata.resource_version
            while self._changes.qsize() >= _MOST_CHANGES and not self._stop.wait(_FULL_SECONDS):
                pass
            if self._stop.is_set():
                return

    def _change(self, item: msgspec.Raw) -> Change[T] | None:
        try:
            found = msgspec.json.decode(item, type=self._kind)
        except msgspec.ValidationError as error:
            # One object of an unexpected form must not hide all others.
            _log.warning("an object of %s is not understood: %s", self.path, error)
            return None
        return Change(msgspec.json.decode(item, type=_Object).metadata.uid, found)
