"""Deliver the frames of the outbox to the server, with unlimited retries."""

import logging
from collections.abc import Callable
from threading import Condition, Event, Thread
from typing import TYPE_CHECKING, Protocol

import msgspec

from jobmeter.client.transport import API, FRAMES, Response
from jobmeter.collect.clock import OVERLAP_MS
from jobmeter.collect.outbox import Outbox
from jobmeter.collect.spool import Batch, SpoolPosition
from jobmeter.errors import InvalidRequestError, LimitExceededError, ThrottledError, UnavailableError
from jobmeter.model.backoff import compute_backoff
from jobmeter.model.time import Clock, format_iso
from jobmeter.wire.native.times import find_newest_time

if TYPE_CHECKING:
    from jobmeter.collect.launch.lease import RunLease

MAX_BODY = 4 * 2**20
_FIRST_WAIT = 1.0
_LONGEST_WAIT = 60.0
_AGREE_MS = 60_000
"""Difference of two clocks in milliseconds below which a log says that they agree."""

_log = logging.getLogger(__name__)


class Requester(Protocol):
    """Part of ``jobmeter.client.transport.Transport`` used here."""

    def request(
        self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> Response:
        """Send a request; see ``Transport.request``."""
        ...


class _Receipt(msgspec.Struct):
    accepted: int = 0
    rejected: dict[str, int] = {}
    rejected_lines: dict[str, int] = {}
    time: int = 0
    unknown: list[str] = []

    @property
    def early(self) -> bool:
        """True if any data was further ahead than the server accepts."""
        return bool(self.rejected.get("future") or self.rejected_lines.get("future"))


class Delivery:
    """Thread that delivers ``outbox``. ``connect`` finds the server and is repeated until it succeeds.

    ``refused`` counts refused samples by reason, ``refused_lines`` refused log lines. ``last_error`` is the reason of
    the last failure, empty after a success. ``set_aside`` is the reason of the last quarantine, empty without one.
    ``renewal`` may be set before the start.

    Data that the server may accept later stay in the outbox: samples ahead of a server whose clock is behind, and
    samples of a project at its limit of series.
    """

    def __init__(self, outbox: Outbox, connect: Callable[[], Requester], clock: Clock) -> None:
        self.renewal: RunLease | None = None
        self.refused: dict[str, int] = {}
        self.refused_lines = 0
        self.last_error = ""
        self.set_aside = ""
        self.acknowledged = 0
        self.outbox = outbox
        self._connect = connect
        self._clock = clock
        self._requester: Requester | None = None
        self._failures = 0
        self._careful_until: SpoolPosition | None = None
        self._clocks_apart_ms: int | None = None
        self._unknown: set[str] = set()
        self._stopping = Event()
        self._flush_requested = Event()
        self.failed_attempts = 0
        self._state = Condition()
        self._thread = Thread(target=self._run, name="delivery", daemon=True)

    @property
    def requester(self) -> Requester:
        """Way to the server. Raises UnavailableError before the first attempt."""
        if self._requester is None:
            raise UnavailableError("no server was found yet")
        return self._requester

    @property
    def lost(self) -> dict[str, int]:
        """Samples that were dropped here or refused by the server, by reason; reasons without samples are absent."""
        return {reason: count for reason, count in {**self.outbox.dropped, **self.refused}.items() if count}

    def start(self) -> None:
        """Begin to deliver."""
        self._thread.start()

    def request_flush(self) -> int:
        """Request an attempt now. Return the number of failed attempts so far."""
        failed = self.failed_attempts
        self._flush_requested.set()
        self.outbox.filled.set()
        return failed

    def flush(self, timeout: float) -> bool:
        """Wait until everything is delivered. False if an attempt fails, or after ``timeout`` seconds."""
        deadline = self._clock.monotonic() + timeout
        failed = self.request_flush()
        with self._state:
            while self.outbox.size:
                left = deadline - self._clock.monotonic()
                if left <= 0 or self.failed_attempts > failed:
                    return False
                self._state.wait(min(left, 0.2))
        return True

    def stop(self) -> None:
        """Make no further attempts. A running attempt is not awaited."""
        self._stopping.set()
        self._flush_requested.set()
        self.outbox.filled.set()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self.outbox.filled.wait()
            self.outbox.filled.clear()
            while not self._stopping.is_set():
                try:
                    batch = self.outbox.peek(MAX_BODY, 1 if self._careful_until else 2**31)
                    if batch is None:
                        break
                    self._attempt(batch)
                except Exception as error:  # noqa: BLE001 - the thread has to live, whatever the disk or a body does
                    self._note_failure(error)

    def _attempt(self, batch: Batch) -> None:
        try:
            if self._requester is None:
                self._requester = self._connect()
            renewal = self.renewal.make_frame() if self.renewal else b""
            body = batch.body + renewal
            answer = self._requester.request("POST", f"{API}/ingest", body, {"Content-Type": FRAMES})
        except InvalidRequestError as error:
            self._handle_refusal(batch, error)
        except Exception as error:  # noqa: BLE001 - whatever goes wrong, what was measured is stored and tried again
            self._note_failure(error)
        else:
            if self.renewal and renewal:
                self.renewal.note_renewal()
            self._note_delivery(batch, answer)

    def _note_delivery(self, batch: Batch, answer: Response) -> None:
        receipt = _receipt(answer)
        if receipt.early:
            self._keep_early_samples(batch, receipt)
            return
        # Counters are updated before the batch is removed: a caller that waits for an empty spool reads them next.
        self._count(receipt)
        if self._failures and self._clocks_apart_ms is None:
            _log.info("the server accepts samples again")
        self._failures = 0
        self.last_error = ""
        self._end_single_frames(batch)
        self.outbox.release(batch.end)
        with self._state:
            self._state.notify_all()

    def _count(self, receipt: _Receipt) -> None:
        if receipt.time and self._clocks_apart_ms is not None and abs(self._measure_lead_ms(receipt)) < _AGREE_MS:
            _log.info("the clocks of the server and of this node agree again")
            self._clocks_apart_ms = None
        unknown = set(receipt.unknown) - self._unknown
        if unknown:
            _log.warning(
                "the server does not know %s and dropped it; a newer server stores it", ", ".join(sorted(unknown))
            )
            self._unknown |= unknown
        self.acknowledged += receipt.accepted
        self.refused_lines += sum(receipt.rejected_lines.values())
        for reason, count in receipt.rejected.items():
            if count and reason not in self.refused:
                _log.warning("the server refused %d samples: %s", count, reason)
            self.refused[reason] = self.refused.get(reason, 0) + count

    def _handle_refusal(self, batch: Batch, error: InvalidRequestError) -> None:
        """Handle a refused body: send its frames one by one, and quarantine refused ones."""
        if batch.frames > 1:
            self._begin_single_frames(batch)
        elif isinstance(error, LimitExceededError) and error.field == "project":
            self._note_failure(error)  # the limit may free up as idle series expire
        else:
            self._put_aside(batch, f"{error.field}: {error.message}" if error.field else error.message)

    def _keep_early_samples(self, batch: Batch, receipt: _Receipt) -> None:
        """Keep samples ahead of the server's clock in the outbox.

        Quarantine them if they are ahead of this node's clock too.
        """
        if batch.frames > 1:
            self._begin_single_frames(batch)
            return
        now_ms = self._clock.now_ms()
        newest_ms = find_newest_time(batch.body)
        if newest_ms > now_ms + OVERLAP_MS:
            self._put_aside(
                batch, f"time: {format_iso(newest_ms)} is ahead of this node's clock, {format_iso(now_ms)}, too"
            )
            return
        ahead_ms = self._measure_lead_ms(receipt)
        clocks = f"this node's clock says {format_iso(now_ms)}"
        if receipt.time:
            side = "ahead" if ahead_ms < 0 else "behind"
            clocks += f", the server's {format_iso(receipt.time)}, {abs(ahead_ms) / 1000:.0f} s {side}"
        error = UnavailableError(f"the server refused samples that are too far ahead: {clocks}")
        if self._clocks_apart_ms is None or abs(ahead_ms - self._clocks_apart_ms) > _AGREE_MS:
            _log.warning("%s; they stay in the spool until the clocks agree", error.message)
            self._clocks_apart_ms = ahead_ms
        self._note_failure(error, quiet=True)

    def _measure_lead_ms(self, receipt: _Receipt) -> int:
        return self._clock.now_ms() - receipt.time if receipt.time else 0

    def _begin_single_frames(self, batch: Batch) -> None:
        self._careful_until = max(batch.end, self._careful_until or batch.end)

    def _end_single_frames(self, batch: Batch) -> None:
        if self._careful_until and batch.end >= self._careful_until:
            self._careful_until = None

    def _put_aside(self, batch: Batch, reason: str) -> None:
        _log.warning("the server refused a frame, which is quarantined: %s", reason)
        self.set_aside = reason
        self.outbox.set_aside(batch, reason)
        self._end_single_frames(batch)

    def _note_failure(self, error: Exception, *, quiet: bool = False) -> None:
        if not self._failures and not quiet:
            _log.warning("samples cannot be delivered and stay in the spool: %s", error)
        self.last_error = str(error)
        self._failures += 1
        with self._state:
            self.failed_attempts += 1
            self._state.notify_all()
        self._flush_requested.clear()
        self._flush_requested.wait(_pause(error, self._failures))


def _receipt(answer: Response) -> _Receipt:
    try:
        return msgspec.json.decode(answer.body, type=_Receipt)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _Receipt()


def _pause(error: Exception, failures: int) -> float:
    """Return the seconds until the next attempt: the server's Retry-After, else growing pauses; with jitter."""
    retry_after_ms = error.retry_after_ms if isinstance(error, ThrottledError | UnavailableError) else None
    if retry_after_ms is not None:
        return min(retry_after_ms / 1000, 3600.0) + compute_backoff(1, 1.0, 1.0)
    return compute_backoff(failures, _FIRST_WAIT, _LONGEST_WAIT)
