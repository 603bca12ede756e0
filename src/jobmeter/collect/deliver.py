"""Sends what waits in the outbox to the server, and tries again for as long as it takes."""

import logging
import random
from collections.abc import Callable
from threading import Condition, Event, Thread
from typing import Protocol

import msgspec

from jobmeter.client.transport import API, FRAMES, Response
from jobmeter.collect.outbox import Outbox
from jobmeter.collect.spool import Batch, Position
from jobmeter.errors import InvalidRequestError, ThrottledError, UnavailableError
from jobmeter.model.time import Clock

MAX_BODY = 4 * 2**20
_FIRST_WAIT = 0.5
_LONGEST_WAIT = 60.0

_log = logging.getLogger(__name__)


class Requester(Protocol):
    """The part of ``jobmeter.client.transport.Transport`` that is used here."""

    def request(
        self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> Response:
        """See ``Transport.request``."""
        ...


class Renewal(Protocol):
    """What a request carries besides, when it is due: see ``jobmeter.collect.launch.lease.RunLease``."""

    def frame(self) -> bytes:
        """The frame, empty when none is due."""
        ...

    def renewed(self) -> None:
        """It was delivered."""
        ...


class _Receipt(msgspec.Struct):
    accepted: int = 0
    rejected: dict[str, int] = {}
    rejected_lines: dict[str, int] = {}


class Delivery:
    """A thread that empties the outbox. ``connect`` finds the server; it is asked again until it gives one.

    ``refused`` counts samples that the server did not want, by its reason, ``refused_lines`` log lines. ``last_error``
    says why the last attempt failed, empty after one that worked. ``failed_attempts`` counts those that failed.
    ``renewal`` may be set before it starts.
    """

    def __init__(self, outbox: Outbox, connect: Callable[[], Requester], clock: Clock) -> None:
        self.renewal: Renewal | None = None
        self.refused: dict[str, int] = {}
        self.refused_lines = 0
        self.last_error = ""
        self.acknowledged = 0
        self._outbox = outbox
        self._connect = connect
        self._clock = clock
        self._requester: Requester | None = None
        self._failures = 0
        self._careful_until: Position | None = None
        self._stopping = Event()
        self._hurry = Event()
        self.failed_attempts = 0
        self._state = Condition()
        self._thread = Thread(target=self._run, name="delivery", daemon=True)

    def start(self) -> None:
        """Begin to deliver."""
        self._thread.start()

    def hurry(self) -> int:
        """Make the next attempt now, whatever the wait was to be; the number of attempts that failed so far."""
        failed = self.failed_attempts
        self._hurry.set()
        self._outbox.filled.set()
        return failed

    def flush(self, timeout: float) -> bool:
        """Wait until everything is delivered: True. False when an attempt fails, or after ``timeout`` seconds."""
        deadline = self._clock.monotonic() + timeout
        failed = self.hurry()
        with self._state:
            while self._outbox.size:
                left = deadline - self._clock.monotonic()
                if left <= 0 or self.failed_attempts > failed:
                    return False
                self._state.wait(min(left, 0.2))
        return True

    def stop(self) -> None:
        """Make no further attempt. An attempt that is under way is not waited for."""
        self._stopping.set()
        self._hurry.set()
        self._outbox.filled.set()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._outbox.filled.wait()
            self._outbox.filled.clear()
            while not self._stopping.is_set():
                try:
                    batch = self._outbox.peek(MAX_BODY, 1 if self._careful_until else 2**31)
                except OSError as error:
                    self._failed(error)
                    continue
                if batch is None:
                    break
                self._attempt(batch)

    def _attempt(self, batch: Batch) -> None:
        try:
            if self._requester is None:
                self._requester = self._connect()
            renewal = self.renewal.frame() if self.renewal else b""
            body = batch.body + renewal
            answer = self._requester.request("POST", f"{API}/ingest", body, {"Content-Type": FRAMES})
        except InvalidRequestError as error:
            self._refused(batch, error)
        except Exception as error:  # noqa: BLE001 - whatever goes wrong, what was measured is kept and tried again
            self._failed(error)
        else:
            if self.renewal and renewal:
                self.renewal.renewed()
            self._delivered(batch, answer)

    def _delivered(self, batch: Batch, answer: Response) -> None:
        # Everything is noted before the batch is let go of: whoever waits for an empty spool reads the notes next.
        self._count(answer)
        if self._failures:
            _log.info("the server takes samples again")
        self._failures = 0
        self.last_error = ""
        if self._careful_until and batch.end >= self._careful_until:
            self._careful_until = None
        self._outbox.release(batch.end)
        with self._state:
            self._state.notify_all()

    def _count(self, answer: Response) -> None:
        try:
            receipt = msgspec.json.decode(answer.body, type=_Receipt)
        except msgspec.DecodeError:
            receipt = _Receipt()
        self.acknowledged += receipt.accepted
        self.refused_lines += sum(receipt.rejected_lines.values())
        for reason, count in receipt.rejected.items():
            if count and reason not in self.refused:
                _log.warning("the server did not want %d samples: %s", count, reason)
            self.refused[reason] = self.refused.get(reason, 0) + count

    def _refused(self, batch: Batch, error: InvalidRequestError) -> None:
        """A body is taken or refused as a whole: send its frames one by one, and put away the one that is wrong."""
        if batch.frames > 1:
            self._careful_until = max(batch.end, self._careful_until or batch.end)
            return
        _log.warning("the server refused a frame, it is set aside: %s", error.message)
        self._outbox.set_aside(batch, f"{error.field}: {error.message}" if error.field else error.message)
        if self._careful_until and batch.end >= self._careful_until:
            self._careful_until = None

    def _failed(self, error: Exception) -> None:
        if not self._failures:
            _log.warning("samples cannot be delivered, they are kept: %s", error)
        self.last_error = str(error)
        self._failures += 1
        with self._state:
            self.failed_attempts += 1
            self._state.notify_all()
        self._hurry.clear()
        self._hurry.wait(_pause(error, self._failures))


def _pause(error: Exception, failures: int) -> float:
    """Seconds until the next attempt: what the server asked for, else longer each time; not all agents at once."""
    wanted = error.retry_after_ms if isinstance(error, ThrottledError | UnavailableError) else None
    jitter = random.uniform(0.5, 1.0)  # noqa: S311 - spreads load, guards nothing
    if wanted is not None:
        return float(min(wanted / 1000, 3600.0) + jitter)
    return float(min(_FIRST_WAIT * 2 ** min(failures, 10), _LONGEST_WAIT) * jitter)
