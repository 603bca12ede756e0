"""The follower's end of its connection with the leader."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from itertools import count
from typing import TYPE_CHECKING

from jobmeter import errors
from jobmeter.errors import JobmeterError, UnavailableError
from jobmeter.model.batch import SampleBatch, SeriesKeys
from jobmeter.model.retention import Retention
from jobmeter.store.channel import Channel, encode_message
from jobmeter.store.clickhouse.peer_link import CopiedRows, PeerLink, PeerLoop, send_encoded
from jobmeter.store.clickhouse.peer_messages import (
    READ_BY_FOLLOWER,
    Accepted,
    Append,
    CaughtUp,
    CompleteReplicas,
    Confirm,
    Copy,
    DataChanged,
    Done,
    Failure,
    Flushed,
    LeaderCommand,
    Ping,
    Pong,
    ReadyToFollow,
    ReceivedLists,
    Refused,
    SentLists,
    ToFollower,
    Welcome,
    pack_batches,
    unpack_runs,
)

if TYPE_CHECKING:
    import asyncio

_APPEND_SECONDS = 60.0
_MOST_BYTES = 2**30
_RETRY_AFTER_MS = 1_000
_GONE = "the connection with the leading server has ended: try again"


class LeaderLink(PeerLink):
    """The follower's end: the connection with the leader."""

    def __init__(self, loop: PeerLoop, rows: CopiedRows, now: Callable[[], float]) -> None:
        super().__init__(now, lambda: not self.is_closed)
        self._loop = loop
        self._rows = rows
        self.accepted: asyncio.Future[bool] = loop.loop.create_future()
        self.welcomed: asyncio.Future[bool] = loop.loop.create_future()
        self._received = ReceivedLists[SeriesKeys]()
        self._sending = threading.Lock()  # guards the following fields
        self._sent = SentLists[SeriesKeys]()
        self._calls: dict[int, Future[int]] = {}
        self._call_numbers = count()
        self.channel = Channel(READ_BY_FOLLOWER, self._take, self._note_end, _MOST_BYTES)

    def append(self, batches: Sequence[SampleBatch], retention: Retention) -> None:
        """Have the leader store batches. Raises its error, or UnavailableError if the connection ends."""
        with self._sending:
            number = next(self._call_numbers)
            future = self._begin(number, pack_batches(number, batches, retention, self._sent))
        _wait(future, _APPEND_SECONDS)

    def run_command(self, name: str, argument: int | None, content: bytes = b"") -> int:
        """Run a command of the leader. Return its result. Raises as ``append``."""
        with self._sending:
            number = next(self._call_numbers)
            future = self._begin(number, LeaderCommand(number, name, argument, content))
        return _wait(future, None)

    def _begin(self, number: int, message: Append | LeaderCommand) -> Future[int]:
        if self.is_closed:
            raise UnavailableError(_GONE, _RETRY_AFTER_MS)
        future = self._calls[number] = Future[int]()
        self._loop.call(send_encoded, (self,), encode_message(message))
        return future

    def _take(self, message: ToFollower) -> None:
        if not self.is_closed and not self._take_rows(message):
            self._take_answer(message)

    def _take_rows(self, message: ToFollower) -> bool:
        """Take rows of the leader. Return False for another message."""
        match message:
            case Copy(position=position):
                group = [unpack_runs(one, message.epoch, self._received) for one in message.runs]
                self._rows.copy(group, message.intent)
                if position:
                    self.send(Confirm(position))
            case Flushed(blocks=blocks):
                self._rows.drop_oldest(blocks)
            case CompleteReplicas(position=position, record=record):
                self._rows.use_replicas(record)
                if position:
                    self.send(Confirm(position))
            case DataChanged(position=position, jobs=jobs, dropped=dropped, records=records):
                self._rows.change(jobs, dropped=dropped, records=records)
                self.send(Confirm(position))
            case _:
                return False
        return True

    def _take_answer(self, message: ToFollower) -> None:
        match message:
            case Ping() | Pong():
                self.take_sign(message)
            case Done(number=number, value=value, failure=failure):
                self._finish(number, value, failure)
            case Accepted() | Refused():
                _resolve(self.accepted, isinstance(message, Accepted))
            case CaughtUp():
                self.send(ReadyToFollow())
            case Welcome():
                self.since = self._now()
                self.ping()
                _resolve(self.welcomed, value=True)
            case _:
                pass

    def _finish(self, number: int, value: int, failure: Failure | None) -> None:
        with self._sending:
            future = self._calls.pop(number, None)
        if future is None:
            return
        if failure is None:
            future.set_result(value)
        else:
            future.set_exception(_error_of(failure))

    def cut(self) -> None:
        """Close the connection. Calls that wait fail."""
        super().cut()
        self._note_end()

    def _note_end(self) -> None:
        self.is_closed = True
        with self._sending:
            calls, self._calls = self._calls, {}
        for future in calls.values():
            future.set_exception(UnavailableError(_GONE, _RETRY_AFTER_MS))
        _resolve(self.accepted, value=False)
        _resolve(self.welcomed, value=False)


def _resolve(future: "asyncio.Future[bool]", value: bool) -> None:
    if not future.done():
        future.set_result(value)


def _wait(future: Future[int], seconds: float | None) -> int:
    try:
        return future.result(seconds)
    except TimeoutError as error:
        raise UnavailableError("the leading server did not answer: try again", _RETRY_AFTER_MS) from error


def _error_of(failure: Failure) -> JobmeterError:
    name, message, retry_after_ms = failure
    kind = getattr(errors, name, UnavailableError)
    if kind in {errors.ThrottledError, UnavailableError}:
        return kind(message, retry_after_ms)
    return kind(message) if issubclass(kind, JobmeterError) else UnavailableError(message)
