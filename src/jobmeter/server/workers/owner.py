"""Records of the storage process that workers cache, and the revisions that invalidate them."""

import asyncio
from collections.abc import Callable, Collection, Iterator
from typing import Any

import msgspec
from prometheus_client.core import CounterMetricFamily, Metric

from jobmeter.errors import JobmeterError, ThrottledError
from jobmeter.ingest.receipt import Receipt
from jobmeter.server.services import Services
from jobmeter.server.workers.frames import (
    PIECE_BYTES,
    AccessKeyLookup,
    AdmissionRequest,
    Counts,
    JobLookup,
    KeyLookup,
    NodesLookup,
    SamplesRead,
    Searched,
    SeriesLookup,
)
from jobmeter.store.base import Store
from jobmeter.store.window.revisions import KEYS, compute_key
from jobmeter.store.window.store import WindowedStore


def raise_keys(store: Store) -> None:
    """Invalidate every key in the caches of workers."""
    if isinstance(store, WindowedStore):
        store.window.revisions.raise_some((KEYS,))


def raise_jobs(store: Store, jobs: Collection[str] | None) -> None:
    """Invalidate the records of jobs with these ids in the caches of workers; None means all jobs."""
    if not isinstance(store, WindowedStore):
        return
    if jobs is None:
        store.window.revisions.raise_all()
    else:
        store.window.revisions.raise_some([compute_key(job) for job in jobs])


class OwnedRecords:
    """Finds records for workers, and counts the answers that workers give. See ``SharedRecords``."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self.answers = 0
        """Number of workers' own answers."""
        services.telemetry.register(self.iterate_metrics)

    @property
    def descriptor(self) -> int | None:
        """File descriptor of the window's memory; None without a window."""
        store = self._services.store
        return store.window.descriptor if isinstance(store, WindowedStore) else None

    def find(self, about: Searched) -> bytes | None:
        """Return the records in msgpack; None if they are too large or unavailable."""
        try:
            data = msgspec.msgpack.encode(self._find_records(about))
        except (JobmeterError, LookupError):
            return None
        return data if len(data) <= PIECE_BYTES else None

    def count(self, counts: Counts) -> None:
        """Count the answers of a worker like the answers of this process."""
        telemetry, usage = self._services.telemetry, self._services.usage
        self.answers += len(counts.requests)
        telemetry.note_activity()
        for router, status, seconds in counts.requests:
            telemetry.requests.count_request(router, status, seconds)
        for account, api, operation, failed in counts.calls:
            usage.count(account, api, operation, failed=failed)
        for rows, seconds in counts.questions:
            telemetry.requests.count_question(rows, seconds)

    def admit(self, about: AdmissionRequest) -> bool:
        """Use up the nonce, the rate and the budget of a worker's answer, in the order of ``jobmeter.server.pipeline``.

        Returns False if the worker must forward the call. A call that exceeds a limit uses nothing up, so that this
        process refuses the forwarded call for the same reason as without workers.
        """
        nonces, date_ms = self._services.nonces, about.date_ms
        signature = about.access_key_id, about.nonce, date_ms or 0
        if not nonces.is_alone:  # another server has come since the worker answered
            return False
        if date_ms is not None and (not nonces.is_fresh(date_ms) or (about.nonce and nonces.contains(*signature))):
            return False
        admission = self._services.admission
        try:
            if about.costs is not None:
                admission.check(about.key)
            if about.operation:
                self._services.limiter.take(about.key, about.operation, about.rate, about.account)
        except ThrottledError:
            return False
        if about.nonce and not nonces.remember(*signature):  # a thread has used the nonce meanwhile
            return False
        for rows, seconds in about.costs or ():
            admission.charge(about.key, rows, seconds)
        return True

    def take_samples(self, read: SamplesRead, done: Callable[[Receipt | None], None]) -> None:
        """Store samples that a worker has read. Every failure makes the worker forward the call, which reports it."""

        def finish(durable: asyncio.Future[None]) -> None:
            if durable.cancelled() or durable.exception() is not None:
                done(None)
            else:
                self._services.telemetry.count_ingested(receipt)
                done(receipt)

        try:
            begun = self._services.pipeline.submit_columns(read.frames, read.principal)
        except JobmeterError:
            begun = None
        if begun is None:
            done(None)
            return
        waiting, receipt = begun
        waiting.add_done_callback(finish)

    def iterate_metrics(self) -> Iterator[Metric]:
        """Return the number of workers' own answers as a metric."""
        yield CounterMetricFamily(
            "jobmeter_worker_answers", "Requests that worker processes answered themselves.", self.answers
        )

    def _find_records(self, about: Searched) -> Any:  # noqa: ANN401 - each search has its own result
        """Return the records. Raises LookupError if no worker may cache them."""
        registry, store, now_ms = self._services.registry, self._services.store, self._services.clock.now_ms()
        if isinstance(about, KeyLookup | AccessKeyLookup) and store.list_damaged():
            raise LookupError("answers have to name the damaged parts")
        match about:
            case KeyLookup():
                return registry.keys.find_by_token(about.token_hash)
            case AccessKeyLookup():
                key = registry.keys.find_by_access_key(about.access_key_id)
                is_active = key is not None and key.revoked is None
                secret = self._services.vault.open(key.sealed_secret, key.access_key_id) if key and is_active else ""
                return key, secret
            case JobLookup(projects=projects, job=job, is_head=is_head):
                if is_head:
                    registry.find_job_head(projects, job, now_ms)
                else:
                    registry.find_job(projects, job, now_ms)
                memory = registry.memory.heads if is_head else registry.memory.views
                found = memory.get_entry(job, projects)
                if found is None:
                    raise LookupError(job)
                return found
            case NodesLookup():
                return registry.list_nodes(about.projects, about.names)
            case SeriesLookup():
                return store.find(about.selector)
