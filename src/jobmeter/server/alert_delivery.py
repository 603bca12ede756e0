"""Deliver the stored messages about alerts, each destination in order."""

import logging
import math
from collections.abc import Sequence

import numpy as np

from jobmeter.access.decide import EVERYTHING
from jobmeter.access.principal import Principal, Role
from jobmeter.alerts.config import AlertConfig, Destination
from jobmeter.alerts.deliver import deliver
from jobmeter.alerts.messages import Mail
from jobmeter.alerts.rules import AlertRule
from jobmeter.diagnose.report import diagnose
from jobmeter.diagnose.thresholds import Thresholds
from jobmeter.errors import InvalidRequestError, NotFoundError
from jobmeter.ingest.exporters.resolve import resolve
from jobmeter.ingest.pipeline import IngestPipeline
from jobmeter.model.alert import Message
from jobmeter.model.backoff import compute_backoff
from jobmeter.model.batch import SampleBatch
from jobmeter.model.series import DEFAULT_PROJECT, Series
from jobmeter.model.time import DAY, SECOND, Clock
from jobmeter.promql.labels import Labels, drop_name, get_value
from jobmeter.promql.nodes import NAME
from jobmeter.query.alerts import WaitingMessagesQuestion
from jobmeter.query.execute import Executor
from jobmeter.query.request import HeadQuestion, JobRef
from jobmeter.registry.base import Registry
from jobmeter.server.alerting import Recorder
from jobmeter.ship.sink import SinkError, SinkRefusedError

_log = logging.getLogger("jobmeter.server")
_RULES = Principal(id="rules", name="recording rules", role=Role.WRITER)


def make_recorder(pipeline: IngestPipeline) -> Recorder:
    """Return the function that stores the series of a recording rule, in the project that their labels name."""

    def record(rule: AlertRule, series: Sequence[tuple[Labels, float]], now_ms: int) -> None:
        found: dict[Series, float] = {}
        for labels, value in series:
            given = {**dict(drop_name(labels)), **{name: one.render({}, value) for name, one in rule.labels.items()}}
            pairs = [(NAME, rule.name), *((name, text) for name, text in sorted(given.items()) if text)]
            try:
                resolved = resolve(pairs, get_value(labels, "project") or DEFAULT_PROJECT)
            except InvalidRequestError as error:
                _log.warning("a series of the rule %s was not stored: %s", rule.id, error.message)
                continue
            if math.isfinite(value):
                found[resolved.series] = value * resolved.factor
        if found:
            times = np.full(len(found), now_ms, np.int64)
            values = np.array(list(found.values()), np.float64)
            pipeline.submit_samples(
                SampleBatch(list(found), np.arange(len(found), dtype=np.uint32), times, values), _RULES
            )

    return record


INTERVAL_SECONDS = 1.0
FIRST_SECONDS, LONGEST_SECONDS = 1.0, 300.0
"""First and longest pause in seconds after a failed delivery."""
OLDEST_MS = DAY
"""Age at which an undelivered message is dropped."""
_ROUND_SECONDS = 10.0


class AlertDelivery:
    """Background work that delivers messages. ``shared``: only the server that holds the lease does the work.

    A message is deleted after its destination accepted it. A process that is killed in between repeats this message.
    """

    name = "alert-delivery"
    interval = INTERVAL_SECONDS

    def __init__(
        self,
        config: AlertConfig,
        executor: Executor,
        registry: Registry,
        clock: Clock,
        thresholds: Thresholds,
        *,
        shared: bool = False,
    ) -> None:
        self._config = config
        self._destinations = {one.name: one for one in config.destinations}
        self._executor = executor
        self._registry = registry
        self._clock = clock
        self._thresholds = thresholds
        self._lease = registry.leases.prepare(self.name, clock) if shared else None

    def round(self) -> None:
        """Deliver the messages that are due, the oldest of each destination first."""
        if not self._destinations:
            return
        if self._lease is None:
            self._deliver_due()
        elif self._lease.take():
            with self._lease.keep_renewed():
                self._deliver_due()

    def _deliver_due(self) -> None:
        until = self._clock.monotonic() + _ROUND_SECONDS
        while self._clock.monotonic() < until:
            now_ms = self._clock.now_ms()
            waiting = self._executor.run(WaitingMessagesQuestion(), EVERYTHING)
            # A next try after the longest pause was set before the clock was set back.
            due = [one for one in waiting if not 0 < one.next_try - now_ms <= LONGEST_SECONDS * SECOND]
            if not due:
                return
            for message in due:
                self._deliver(message, now_ms)
                if self._clock.monotonic() >= until:
                    return

    def _deliver(self, message: Message, now_ms: int) -> None:
        destination = self._destinations.get(message.destination)
        if destination is None or now_ms - message.created > OLDEST_MS:
            reason = "its receiver is gone" if destination is None else f"no delivery for a day: {message.error}"
            _log.error("a message to %s was dropped: %s", message.destination, reason)
            self._registry.alerts.delete_message(message.id)
            return
        try:
            deliver(destination, message, self._config.guard, self._user, self.find_evidence)
        except SinkRefusedError as error:
            _log.error("a message to %s was refused and dropped: %s", destination.name, error.message)
        except SinkError as error:
            self._retry(destination, message, error.message)
            return
        self._registry.alerts.delete_message(message.id)

    def _retry(self, destination: Destination, message: Message, error: str) -> None:
        seconds = compute_backoff(message.tries + 1, FIRST_SECONDS, LONGEST_SECONDS)
        _log.warning("a message to %s was not delivered: %s", destination.name, error)
        self._registry.alerts.retry(message.id, self._clock.now_ms() + int(seconds * SECOND), error)

    def _user(self, project: str, job: str) -> str:
        try:
            return self._executor.run(HeadQuestion(JobRef(job, project)), EVERYTHING).user
        except NotFoundError:
            return ""

    def find_evidence(self, mail: Mail) -> list[str]:
        """Return the evidence of a new diagnosis for the mail's finding. Without a diagnosis the mail goes alone."""
        if not mail.rule:
            return []
        ref = JobRef(mail.job, mail.project)
        try:
            found = diagnose(self._executor, ref, EVERYTHING, self._clock, self._thresholds).findings
        except Exception as error:  # noqa: BLE001 - the mail must go, whatever fails
            _log.warning("a mail about %s of job %s has no evidence: %s", mail.rule, mail.job, error)
            return []
        return [one.text for finding in found if finding.rule == mail.rule for one in finding.evidence]
