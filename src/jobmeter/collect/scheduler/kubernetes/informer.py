"""Informer: one kind of objects, listed once and then watched.

https://kubernetes.io/docs/reference/using-api/api-concepts/#watch-bookmarks.
"""

import logging
from dataclasses import dataclass
from queue import SimpleQueue
from threading import Event, Thread
from typing import Generic, TypeVar

import msgspec

from jobmeter.collect.scheduler.kubernetes.api import AbsentError, DeniedError, GoneError, HttpApi
from jobmeter.collect.scheduler.kubernetes.objects import Metadata
from jobmeter.collect.scheduler.kubernetes.pages import read_page
from jobmeter.errors import UnavailableError
from jobmeter.model.backoff import compute_backoff
from jobmeter.model.time import Clock, SystemClock

_MOST_CHANGES = 50_000
"""Most changes that wait for the next poll, besides the objects of a list. Then the watch pauses."""
_FIRST_WAIT, _LONGEST_WAIT = 1.0, 60.0
"""Seconds between attempts after one failure and after many."""
_STEADY_SECONDS = 30.0
"""Length of a watch in seconds after which the next failure counts as the first one."""
_ABSENT_WAIT = 300.0
"""Seconds until a kind is listed again that the API server lacked, or refused to show."""
_FULL_SECONDS = 1.0
_LOG_SECONDS = 60.0
_READY_SECONDS = 20.0

_ODD = (msgspec.ValidationError, UnicodeDecodeError, RecursionError, OverflowError)
"""Errors caused by a single object, whose creator may choose its content."""

_log = logging.getLogger(__name__)


class _Object(msgspec.Struct, frozen=True):
    metadata: Metadata = Metadata()


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ObjectChange(Generic[T]):
    """Change of an object. ``found`` is absent if it was deleted.

    ``uids`` marks the end of a complete list and has the uids of all its objects: any other object was deleted
    unobserved.
    """

    uid: str
    found: T | None
    uids: frozenset[str] | None = None


class _Event(msgspec.Struct, frozen=True):
    type: str
    object: msgspec.Raw


class _Status(msgspec.Struct, frozen=True):
    code: int = 0
    message: str = ""


class Informer(Generic[T]):
    """Reads in its own thread from ``start`` on. ``take`` is for one thread."""

    def __init__(self, api: HttpApi, path: str, kind: type[T], *, optional: bool, clock: Clock | None = None) -> None:
        """``optional``: the API server may lack the kind, or refuse to show it."""
        self.path = path
        self._api = api
        self._kind = kind
        self._optional = optional
        self._clock = clock or SystemClock()
        self.stopping = Event()
        self._changes: SimpleQueue[ObjectChange[T]] = SimpleQueue()
        self._version = ""
        self._failures = 0
        self._answered: float | None = None
        self._odd = 0
        self._odd_logged: float | None = None
        self.ready = Event()
        """Set when the first list was read, or the kind is known to be absent or forbidden."""
        self.problem = ""
        """Reason why the newest changes are missing, from the first failure to the next answer; else empty."""

    def start(self) -> None:
        """Begin to read."""
        Thread(target=self.run, name=f"watch {self.path}", daemon=True).start()

    def wait_ready(self) -> bool:
        """Wait up to 20 seconds for ``ready``. Return whether it is set."""
        return self.ready.wait(_READY_SECONDS)

    def stop(self) -> None:
        """Stop reading after the current event."""
        self.stopping.set()

    def take(self) -> list[ObjectChange[T]]:
        """Return the changes since the last call, oldest first."""
        changes = self._changes
        return [changes.get_nowait() for _ in range(changes.qsize())]

    def run(self) -> None:
        """List, watch, and begin again when that ends, until ``stop``."""
        while not self.stopping.is_set():
            if self.stopping.wait(self._attempt()):
                return

    def _attempt(self) -> float:
        """List if due, and watch until that ends. Return the seconds until the next attempt."""
        self._answered = None
        try:
            if not self._version:
                self._list()
            self._watch()
        except GoneError:
            self._version = ""  # everything is listed again, and missing objects were deleted
            return self._wait(worked=False)
        except (AbsentError, DeniedError) as error:
            return self._note_hidden_kind(error)
        except Exception as error:  # noqa: BLE001 - without this thread no change is read any more
            expected = isinstance(error, UnavailableError | msgspec.DecodeError | UnicodeDecodeError)
            text = str(error) if expected else f"reading {self.path} failed: {type(error).__name__}: {error}"
            _log.log(logging.DEBUG if expected or text == self.problem else logging.ERROR, text, exc_info=not expected)
            self.problem = text
            return self._wait(worked=False)
        return self._wait(worked=True)

    def _wait(self, *, worked: bool) -> float:
        """Return the seconds until the next attempt, longer after each refusal or short watch."""
        lasted = 0.0 if self._answered is None else self._clock.monotonic() - self._answered
        if lasted >= (_FIRST_WAIT if worked else _STEADY_SECONDS):
            self._failures = 0
        self._failures += 1
        return compute_backoff(self._failures, _FIRST_WAIT, _LONGEST_WAIT)

    def _accepted(self) -> None:
        """Note that the API server answers."""
        self._answered, self.problem = self._clock.monotonic(), ""

    def _note_hidden_kind(self, error: AbsentError | DeniedError) -> float:
        """Note that the API server lacks the kind, or refuses to show it. Return the seconds until the next list."""
        self._version = ""
        if not self._optional:
            self.problem = error.message
            return self._wait(worked=False)
        self.problem = "" if isinstance(error, AbsentError) else error.message
        self.ready.set()
        return _ABSENT_WAIT

    def _list(self) -> None:
        token, listed = "", SimpleQueue[ObjectChange[T]]()
        uids = set[str]()
        while True:
            page = read_page(self._api.read_page(self.path, token))
            for item in page.items:
                if (change := self._change(item)) is not None:
                    listed.put(change)
                    uids.add(change.uid)
            token = page.token
            if not token:
                break
        listed.put(ObjectChange("", None, frozenset(uids)))
        # A complete list replaces earlier changes that were not taken yet.
        self._changes = listed
        self._version = page.version
        self._accepted()
        self.ready.set()

    def _watch(self) -> None:
        for line in self._api.watch(self.path, self._version):
            if self._answered is None or self.problem:
                self._accepted()
            if line:
                self._take_event(line)
            while self._changes.qsize() >= _MOST_CHANGES and not self.stopping.wait(_FULL_SECONDS):
                pass
            if self.stopping.is_set():
                return

    def _take_event(self, line: bytes) -> None:
        try:
            event = msgspec.json.decode(line, type=_Event)
            metadata = msgspec.json.decode(event.object, type=_Object).metadata
        except _ODD as error:
            self._count_skipped(error)
            return
        if event.type == "ERROR":
            status = msgspec.json.decode(event.object, type=_Status)
            raise (GoneError if status.code == 410 else UnavailableError)(status.message or "the watch ended")
        if event.type != "BOOKMARK":
            if (change := self._change(event.object)) is not None:
                self._changes.put(change)
            if event.type == "DELETED":
                self._changes.put(ObjectChange(metadata.uid, None))
        self._failures = 0
        # Stored after it is in the queue: an event is read again if the watch breaks off in between.
        self._version = metadata.resource_version or self._version

    def _change(self, item: msgspec.Raw | bytes) -> ObjectChange[T] | None:
        try:
            found = msgspec.json.decode(item, type=self._kind)
            uid = msgspec.json.decode(item, type=_Object).metadata.uid
        except _ODD as error:
            self._count_skipped(error)
            return None
        return ObjectChange(uid, found)

    def _count_skipped(self, error: Exception) -> None:
        """Count a skipped object, which must not hide the others. Log it at most once a minute."""
        self._odd += 1
        now = self._clock.monotonic()
        if self._odd_logged is None or now - self._odd_logged >= _LOG_SECONDS:
            _log.warning("objects of %s are not understood: %d more, the last one: %s", self.path, self._odd, error)
            self._odd, self._odd_logged = 0, now
