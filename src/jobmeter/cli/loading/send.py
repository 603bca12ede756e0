"""Send requests in the background, two at a time, and retry throttled ones."""

import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Self

import numpy as np

from jobmeter.cli.loading.frames import Chunk
from jobmeter.cli.loading.rows import NAME_COLUMNS, BadRowError, Rows
from jobmeter.client.api import Api
from jobmeter.client.bodies import IngestReceipt
from jobmeter.errors import ForbiddenError, InvalidRequestError, JobmeterError, ThrottledError, UnavailableError
from jobmeter.model import catalog

IN_FLIGHT = 2
PATIENCE_SECONDS = 120.0
"""Time in seconds after which the import gives up if the server accepts nothing."""


@dataclass(slots=True)
class SentTotals:
    """Counts of rows that the server acknowledged."""

    accepted: int = 0
    rejected: dict[str, int] = field(default_factory=dict)

    def add(self, receipt: IngestReceipt) -> None:
        """Count one answer."""
        self.accepted += receipt.accepted
        for reason, count in receipt.rejected.items():
            self.rejected[reason] = self.rejected.get(reason, 0) + count


class Sender:
    """Sends at most ``IN_FLIGHT`` requests at a time. For one thread.

    Leaving its context waits for running requests. Requests may arrive in another order.
    """

    def __init__(self, api: Api, waiting: Callable[[str], None]) -> None:
        """``waiting`` is called with the reason of each retry, on another thread."""
        self.totals = SentTotals()
        self._api = api
        self._waiting = waiting
        self._pool = ThreadPoolExecutor(IN_FLIGHT, "import")
        self._under_way: deque[tuple[Future[IngestReceipt], Rows | None]] = deque()
        self._stopped = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._stopped = error is not None
        self._pool.shutdown(wait=True)
        for future, _ in self._under_way:
            if not future.exception():
                self.totals.add(future.result())
        self._under_way.clear()

    def send(self, body: bytes, chunk: Chunk | None = None) -> None:
        """Send a body; first wait for the oldest request if two are running. Raises its error.

        A row with an unknown metric is refused before sending, because a server would accept the other rows.
        """
        if chunk is not None:
            _check_metrics(chunk.rows)
        while len(self._under_way) >= IN_FLIGHT:
            self._collect_oldest()
        self._under_way.append((self._pool.submit(self._deliver, body), chunk.rows if chunk else None))

    def finish(self) -> None:
        """Wait until everything is acknowledged. Raises the first error."""
        while self._under_way:
            self._collect_oldest()

    def _collect_oldest(self) -> None:
        future, rows = self._under_way.popleft()
        try:
            receipt = future.result()
            self.totals.add(receipt)
            _refuse_unknown(receipt)
        except InvalidRequestError as error:
            raise _locate_error(error, rows) from error
        except ForbiddenError as error:
            raise _locate_forbidden(error, rows) from error

    def _deliver(self, body: bytes) -> IngestReceipt:
        deadline = time.monotonic() + PATIENCE_SECONDS
        pause = 0.5
        while True:
            try:
                return self._api.ingest(body)
            except (ThrottledError, UnavailableError) as error:
                pause = error.retry_after_ms / 1000 if isinstance(error, ThrottledError) else min(pause * 2, 15.0)
                if self._stopped or time.monotonic() + pause > deadline:
                    raise
                self._waiting(f"{error.message}; trying again in {pause:.0f} s")
            time.sleep(pause)


def _check_metrics(rows: Rows) -> None:
    for code, name in enumerate(rows.names["metric"].values):
        row = np.flatnonzero(rows.names["metric"].codes == code)
        if len(row) and catalog.find(name) is None:
            message = f"metric {name[:200]!r} is unknown (`jobmeter catalog` lists all)"
            raise BadRowError(rows.place(int(row[0])), "metric", message)


def _refuse_unknown(receipt: IngestReceipt) -> None:
    if receipt.unknown:
        names = ", ".join(map(repr, receipt.unknown))
        raise InvalidRequestError(f"{names}: unknown to the server (`jobmeter catalog` lists all)", "metric")


def _locate_forbidden(error: ForbiddenError, rows: Rows | None) -> JobmeterError:
    """Name the first row of the project that the key may not write to, if a row names one."""
    if rows is None or "project" not in rows.names:
        return error
    projects = rows.names["project"]
    for code, name in enumerate(projects.values):
        named = np.flatnonzero(projects.codes == code)
        if name and len(named) and error.message.endswith(f" {name}"):
            return BadRowError(rows.place(int(named[0])), "project", error.message)
    return error


def _locate_error(error: InvalidRequestError, rows: Rows | None) -> InvalidRequestError:
    """Add the position of the bad row to the server's error if known, else the range of rows sent."""
    if rows is None or not len(rows):
        return error
    for code, name in enumerate(rows.names["metric"].values):
        metric = catalog.find(name)
        of_metric = rows.names["metric"].codes == code
        low = -np.inf if metric is None or metric.minimum is None else metric.minimum
        high = np.inf if metric is None or metric.maximum is None else metric.maximum
        bad = of_metric if metric is None else of_metric & ((rows.value < low) | (rows.value > high))
        if bad.any() and name in error.message:
            row = int(np.flatnonzero(bad)[0])
            return BadRowError(rows.place(row), "metric" if metric is None else "value", error.message)
    place = f"{rows.place(0)} to {rows.place(len(rows) - 1).rpartition(', ')[2]}"
    return BadRowError(place, error.field if error.field in NAME_COLUMNS else "", error.message)
