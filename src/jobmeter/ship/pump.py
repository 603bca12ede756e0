"""Pump of one shipper: reads its outbox, sends the lines, and stores its position."""

import logging
import secrets
from collections.abc import Callable, Sequence
from itertools import groupby

import msgspec

from jobmeter.errors import JobmeterError
from jobmeter.model.backoff import compute_backoff
from jobmeter.model.log import LogLine
from jobmeter.model.shipper import OutboxRow, Progress, Shipper
from jobmeter.model.time import DAY, HOUR, SECOND, Clock
from jobmeter.registry.base import Registry
from jobmeter.ship.events import ShipperEvents
from jobmeter.ship.line import ShippedLine
from jobmeter.ship.outbox import GAP_SECONDS, compute_number
from jobmeter.ship.sink import Sink, SinkError, SinkRefusedError
from jobmeter.store.base import Store

_log = logging.getLogger("jobmeter.ship")
IDLE_SECONDS = 1.0
LEASE_CHECK_SECONDS = 4.0
"""Interval in seconds at which a server tries to take a lease, and renews its own."""
FIRST_SECONDS, LONGEST_SECONDS = 0.5, 60.0
"""First and longest pause in seconds between two attempts; the pause doubles each time."""
_RANDOM = secrets.SystemRandom().random
TRIM_LINES = 100_000
TRIM_SECONDS = 600.0


class _Gap(msgspec.Struct):
    """Gap of reserved numbers without rows: up to ``last``, first observed at ``since`` (monotonic seconds)."""

    last: int
    since: float


class Pump:
    """Ships the lines of one shipper. One thread calls ``step`` repeatedly.

    Of several servers the holder of the lease ships. A server that lost the lease without noticing can only send lines
    twice: a position is stored only by a server that has the previous one.
    """

    def __init__(
        self,
        shipper: Shipper,
        sink: Callable[[], Sink],
        store: Store,
        registry: Registry,
        clock: Clock,
        random: Callable[[], float] = _RANDOM,
    ) -> None:
        self.shipper = shipper
        """The shipper's state as last read."""
        self._open = sink
        self._sink: Sink | None = None
        self._store = store
        self._registry = registry
        self._clock = clock
        self._random = random
        self._lease = registry.leases.prepare(f"ship-{shipper.id}", clock)
        self._renewed: float | None = None
        self._failed = 0
        self._gap: _Gap | None = None
        self._expired_until = 0
        self._events = ShipperEvents(registry, clock)
        self._trimmed, self._trimmed_at = shipper.cursor, clock.monotonic()

    @property
    def failing(self) -> bool:
        """True if the last attempt failed."""
        return self._failed > 0

    def step(self) -> float:
        """Do the due work. Returns the seconds until the next step, unless lines arrive.

        Raises JobmeterError when the registry or the engine does not answer.
        """
        if not self._holds_lease():
            return LEASE_CHECK_SECONDS
        if self._sink is None:
            try:
                self._sink = self._open()
            except JobmeterError as error:
                return self._note_failure(SinkError(error.message), self.shipper.oldest)
        rows = self._read_rows(self._sink)
        self._events.flush(self.shipper)
        if not rows:
            self._beat()
            return IDLE_SECONDS
        with self._lease.keep_renewed():
            return self._deliver(rows, self._sink)

    def close(self) -> None:
        """Close the sink and release the lease."""
        if self._sink is not None:
            self._sink.close()
        self._events.flush(self.shipper, now=True)
        if self._renewed is not None:
            self._lease.release()

    def _holds_lease(self) -> bool:
        now = self._clock.monotonic()
        if self._renewed is not None and now - self._renewed < LEASE_CHECK_SECONDS:
            return True
        had = self._renewed is not None
        taken = self._lease.take()
        self._renewed = now if taken else None
        if not taken or had:
            return taken
        there, self._gap = self._reload(), None
        self._events.begin(self.shipper)
        updated = self.shipper.updated
        # Lines that waited while no server shipped for a day expired; they were not lost in transit.
        waited = updated is not None and self._clock.now_ms() - updated > DAY
        self._expired_until = self.shipper.reserved if waited else 0
        return there

    def _reload(self) -> bool:
        """Continue from the shipper's stored position. False if it was deleted."""
        found = [one for one in self._registry.shippers.list_shippers() if one.id == self.shipper.id]
        if found:
            self.shipper = found[0]
        return bool(found)

    def _read_rows(self, sink: Sink) -> list[OutboxRow]:
        """Read the rows after the cursor up to a gap, when a batch is due."""
        cursor = self.shipper.cursor
        found = self._store.outbox.read(compute_number(self.shipper), cursor, sink.most_lines, sink.most_bytes)
        rows = [row for place, row in enumerate(found, cursor + 1) if row.number == place]
        if not rows:
            self._check_gap(found)
            return []
        self._gap = None
        now_ms = self._clock.now_ms()
        full = len(rows) >= sink.most_lines or len(found) > len(rows) or _size(rows) >= sink.most_bytes // 2
        if not full and now_ms - rows[0].arrived < sink.linger_seconds * SECOND:
            self._note_oldest(rows[0].arrived)
            return []
        return rows

    def _check_gap(self, found: Sequence[OutboxRow]) -> None:
        """Handle reserved numbers without rows: they are being written, were never written, or have expired."""
        now = self._clock.monotonic()
        if self._gap is None:
            self._reload()
            last = found[0].number - 1 if found else self.shipper.reserved
            if last > self.shipper.cursor:
                self._gap = _Gap(last, now)
            return
        if now - self._gap.since < GAP_SECONDS:
            return
        last, self._gap = self._gap.last, None
        if found:
            last = min(last, found[0].number - 1)
        cursor = self.shipper.cursor
        if last > cursor:
            dropped = max(0, min(last, self._expired_until) - cursor)
            if self._advance(Progress(before=cursor, cursor=last, dropped=dropped)):
                self._events.count_lost(self.shipper, dropped=dropped)

    def _deliver(self, rows: Sequence[OutboxRow], sink: Sink) -> float:
        """Send the rows up to the first expired one; if the first row has expired, count the expired ones."""
        before, now_ms = self.shipper.cursor, self._clock.now_ms()
        expired, run = next((gone, list(some)) for gone, some in groupby(rows, lambda row: _has_expired(row, now_ms)))
        last = run[-1].number
        if expired:
            _log.warning("shipper %s: %d lines expired before its sink accepted them", self.shipper.id, len(run))
            if self._advance(Progress(before=before, cursor=last, dropped=len(run), error=self.shipper.error)):
                self._events.count_lost(self.shipper, dropped=len(run))
            return 0.0
        group = self.shipper.resource_group
        try:
            decoded = ((row, msgspec.json.decode(row.line, type=LogLine)) for row in run)
            rejected = self._send(sink, [ShippedLine(row.number, row.arrived, group, line) for row, line in decoded])
        except SinkError as error:
            return self._note_failure(error, run[0].arrived)
        self._failed = 0
        if self._advance(Progress(before=before, cursor=last, shipped=len(run) - rejected, rejected=rejected)):
            self._events.record_success(self.shipper)
            self._events.count_lost(self.shipper, rejected=rejected)
        self._trim()
        return 0.0

    def _send(self, sink: Sink, lines: Sequence[ShippedLine]) -> int:
        """Send the lines. A permanently refused batch is split in halves, so that only bad lines are lost."""
        try:
            return sink.send(lines)
        except SinkRefusedError as error:
            if len(lines) == 1:
                _log.warning(
                    "shipper %s: its sink rejected line %d: %s", self.shipper.id, lines[0].number, error.message
                )
                return 1
            middle = len(lines) // 2
            return self._send(sink, lines[:middle]) + self._send(sink, lines[middle:])

    def _note_failure(self, error: SinkError, oldest: int | None) -> float:
        """Store the reason of the failure. Returns the pause before the next attempt."""
        if not self._failed:
            _log.warning("shipper %s: its sink does not accept lines: %s", self.shipper.id, error.message)
        self._failed += 1
        cursor = self.shipper.cursor
        failure = Progress(before=cursor, cursor=cursor, failures=1, error=error.message[:500], oldest=oldest)
        if self._advance(failure):
            self._events.record_failure(self.shipper, failure.error)
        return compute_backoff(self._failed, FIRST_SECONDS, LONGEST_SECONDS, self._random)

    def _note_oldest(self, oldest: int) -> None:
        if self.shipper.oldest is None:
            cursor = self.shipper.cursor
            self._advance(Progress(before=cursor, cursor=cursor, oldest=oldest))

    def _beat(self) -> None:
        """Store the position each hour when idle, so that lines that expired unshipped can be counted later."""
        updated, now_ms = self.shipper.updated, self._clock.now_ms()
        if updated is None or now_ms - updated > HOUR:
            cursor = self.shipper.cursor
            self._advance(Progress(before=cursor, cursor=cursor, error=self.shipper.error, oldest=self.shipper.oldest))

    def _advance(self, progress: Progress) -> bool:
        """Store the progress. False if another server has stored its own."""
        moved = self._registry.shippers.advance(self.shipper.id, progress, self._clock.now_ms())
        if not moved:
            _log.warning("shipper %s: another server took it over, or it was deleted", self.shipper.id)
            self._renewed = None
        self._reload()
        return moved

    def _trim(self) -> None:
        """Delete shipped rows, rarely: the engine rewrites a part for it."""
        cursor, now = self.shipper.cursor, self._clock.monotonic()
        due = cursor - self._trimmed >= TRIM_LINES or now - self._trimmed_at >= TRIM_SECONDS
        if due and cursor > self._trimmed:
            self._store.outbox.trim(compute_number(self.shipper), cursor)
            self._trimmed, self._trimmed_at = cursor, now


def _size(rows: Sequence[OutboxRow]) -> int:
    return sum(len(row.line) for row in rows)


def _has_expired(row: OutboxRow, now_ms: int) -> bool:
    return now_ms - row.arrived > row.raw_days * DAY
