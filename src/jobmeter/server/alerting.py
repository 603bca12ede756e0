"""Evaluate the rules of alerts, store the states, and decide and deliver messages."""

import logging
import shutil
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import numpy as np
from msgspec.structs import replace

from jobmeter.access.decide import EVERYTHING
from jobmeter.alerts.config import AlertConfig
from jobmeter.alerts.muting import mute_alerts
from jobmeter.alerts.notify import decide
from jobmeter.alerts.posted import check_posted, end_alerts, merge_posted
from jobmeter.alerts.rules import AlertRule, RuleGroup
from jobmeter.alerts.states import EvaluationError, advance_states, is_over, limit_alerts, resolve
from jobmeter.dialects.base import drive
from jobmeter.dialects.prometheus.select import prefetch
from jobmeter.errors import JobmeterError
from jobmeter.model.alert import (
    POSTED,
    Alert,
    AlertState,
    NotificationGroup,
    PostedAlert,
    RuleGroupStatus,
    RuleStatus,
    SilencesQuestion,
)
from jobmeter.model.job import JobState
from jobmeter.model.question import Question
from jobmeter.model.time import HOUR, MINUTE, SECOND, Clock
from jobmeter.promql.evaluate import evaluate
from jobmeter.promql.evaluation import LOOKBACK_MS
from jobmeter.promql.labels import Labels, get_value
from jobmeter.promql.values import Scalar, Vector
from jobmeter.query.alerts import ReportedGroupsQuestion, StoredAlertsQuestion
from jobmeter.query.execute import Executor
from jobmeter.query.facts import DiskFacts, DiskQuestion, JobFactsQuestion, NodeFactsQuestion
from jobmeter.registry.base import Registry
from jobmeter.registry.leases import LEASE_MS
from jobmeter.server.background import use_request_budget
from jobmeter.settings import Settings

_log = logging.getLogger("jobmeter.server")

INTERVAL_SECONDS = 1.0
MOST_ALERTS, MOST_OF_RULE = 20_000, 5_000
"""Most alerts of all rules, and most alerts of one rule."""
MOST_VALUES = 20_000_000
"""Most values that an expression computes."""
BUDGET_SECONDS = 0.2
"""Time after which a round evaluates no further group. The next round goes on."""
_STORE_MS = 5 * MINUTE
"""Interval at which the value of an alert is stored though its state is the same."""
_FORGOTTEN_MS = HOUR
"""Age from which a pending alert begins again after a restart."""
_POSTED_MS = 5 * SECOND
"""Interval at which this server reads the posted alerts that other servers stored."""
_EXTEND_MS = 3 * SECOND
_PAUSES = 20
"""Least pause after deciding on messages, as a multiple of the time that it took."""
Recorder = Callable[[AlertRule, Sequence[tuple[Labels, float]], int], None]
"""Function that stores the series of a recording rule."""


class Alerting:
    """Background work that evaluates rules. ``shared``: only the server that holds the lease does the work."""

    name = "alerts"
    interval = INTERVAL_SECONDS

    def __init__(
        self,
        executor: Executor,
        registry: Registry,
        clock: Clock,
        settings: Settings,
        groups: Sequence[RuleGroup],
        config: AlertConfig,
        recorder: Recorder,
        *,
        shared: bool = False,
    ) -> None:
        self._executor = executor
        self._registry = registry
        self._clock = clock
        self._settings = settings
        self._groups = groups
        self.config = config
        self._recorder = recorder
        self._lease = registry.leases.prepare(self.name, clock) if shared else None
        self._lock = threading.Lock()
        self._posting = threading.Lock()
        self._next_posted = 0
        self._alerts: dict[str, dict[str, Alert]] | None = None
        self._reported: dict[str, NotificationGroup] = {}
        self._due = [0] * len(groups)
        self._rules = {POSTED, *(rule.id for group in groups for rule in group.rules)}
        self._status: dict[str, RuleStatus] = {}
        self.url = settings.public_url.rstrip("/")
        self.started = clock.now_ms()
        self._extended = 0
        self._next_notice = 0.0

    def round(self) -> None:
        """Evaluate the groups that are due, then decide on messages."""
        now_ms, began = self._clock.now_ms(), self._clock.monotonic()
        # Another server may have had the lease since this one last extended it, and have changed the states.
        lapsed = self._lease is not None and not 0 <= now_ms - self._extended < LEASE_MS
        if not self._holds_lease(now_ms, at_once=True):
            with self._lock:
                self._alerts = None  # another server changes the states
            return
        with nullcontext() if self._lease is None else self._lease.keep_renewed():
            self._evaluate_due(now_ms, began, reload=self._alerts is None or lapsed)

    def _evaluate_due(self, now_ms: int, began: float, *, reload: bool) -> None:
        if reload:
            self._load(now_ms)
        self._drop_removed(now_ms)
        self._end_posted(now_ms)
        for place in sorted(filter(partial(self._is_due, now_ms), range(len(self._groups))), key=self._due.__getitem__):
            if self._clock.monotonic() - began > BUDGET_SECONDS:
                break
            group = self._groups[place]
            self._due[place] = now_ms - now_ms % group.interval_ms + group.interval_ms
            self._evaluate(group, now_ms)
        started = self._clock.monotonic()
        if started >= self._next_notice:
            self._notify(now_ms)
            over = self._clock.monotonic()
            self._next_notice = over + _PAUSES * (over - started)

    def _is_due(self, now_ms: int, place: int) -> bool:
        """Return whether a group is due: its time has come, or the clock was set back since its last evaluation."""
        return not self._due[place] - self._groups[place].interval_ms <= now_ms < self._due[place]

    def _holds_lease(self, now_ms: int, *, at_once: bool = False) -> bool:
        """Return True if this server has the lease. Extend the lease every three seconds, or at once."""
        if self._lease is None or (not at_once and now_ms - self._extended < _EXTEND_MS):
            return True
        leased = self._lease.take()
        self._extended = now_ms if leased else 0
        return leased

    def _load(self, now_ms: int) -> None:
        """Read the states of the last process. Alerts of rules that are no longer there are resolved."""
        found: dict[str, dict[str, Alert]] = {}
        changed: list[Alert] = []
        gone: list[str] = []
        for alert in self._executor.run(StoredAlertsQuestion(), EVERYTHING):
            is_old = alert.rule not in self._rules or now_ms - alert.updated > _FORGOTTEN_MS
            if alert.state is AlertState.PENDING and is_old:
                gone.append(alert.fingerprint)
                continue
            if alert.firing and alert.rule not in self._rules:
                alert = resolve(alert, now_ms)  # noqa: PLW2901 - the alert as it is now
                changed.append(alert)
            found.setdefault(alert.rule, {})[alert.fingerprint] = alert
        self._registry.alerts.put(changed, gone)
        self._reported = {one.key: one for one in self._executor.run(ReportedGroupsQuestion(), EVERYTHING)}
        with self._lock:
            self._alerts = found

    def _drop_removed(self, now_ms: int) -> None:
        """Delete the alerts of rules that are no longer there, once their ends had time to be reported."""
        all_alerts = self._alerts or {}
        for rule in all_alerts.keys() - self._rules:
            gone = [name for name, one in all_alerts[rule].items() if is_over(one, now_ms)]
            if gone:
                self._registry.alerts.put((), gone)
                with self._lock:
                    all_alerts[rule] = {name: one for name, one in all_alerts[rule].items() if name not in gone}

    def post(self, posted: Sequence[PostedAlert], project: str | None) -> int:
        """Store alerts of another program. ``project`` belongs to the caller's key, None for a key of all projects.

        Return the number of alerts that changed. Raises InvalidRequestError, LimitExceededError.
        """
        check_posted(posted)
        now_ms = self._clock.now_ms()
        with self._posting:
            if self._lease is not None:
                self._read_posted(now_ms)
            old = {one.fingerprint: one for one in self.list_alerts() if one.rule == POSTED}
            changed = merge_posted(old, posted, project, now_ms, self.config.resolve_ms)
            self._registry.alerts.put(changed.values())
            self._take_posted(changed)
        return len(changed)

    def _take_posted(self, changed: Mapping[str, Alert], gone: Collection[str] = ()) -> None:
        with self._lock:
            if self._alerts is not None:
                merged = {**self._alerts.get(POSTED, {}), **changed}
                self._alerts[POSTED] = {name: one for name, one in merged.items() if name not in gone}

    def _end_posted(self, now_ms: int) -> None:
        """Read the alerts of other programs that other servers stored. Then end the alerts that nobody repeated."""
        with self._posting:
            over, gone = end_alerts(self._get_posted(), now_ms)
            if self._lease is not None and (over or not now_ms <= self._next_posted <= now_ms + _POSTED_MS):
                self._read_posted(now_ms)
                over, gone = end_alerts(self._get_posted(), now_ms)
            if over or gone:
                self._registry.alerts.put(over, gone)
                self._take_posted({one.fingerprint: one for one in over}, gone)

    def _read_posted(self, now_ms: int) -> None:
        """Take over the alerts of other programs that other servers stored since the last time."""
        own = self._get_posted()
        since = self._next_posted - _POSTED_MS - MINUTE
        stored = self._executor.run(StoredAlertsQuestion(max(since, 0)), EVERYTHING)
        newer = {
            one.fingerprint: one
            for one in stored
            if one.rule == POSTED and (one.fingerprint not in own or one.updated > own[one.fingerprint].updated)
        }
        self._take_posted(newer)
        self._next_posted = now_ms + _POSTED_MS

    def _get_posted(self) -> Mapping[str, Alert]:
        return (self._alerts or {}).get(POSTED, {})

    def _evaluate(self, group: RuleGroup, now_ms: int) -> None:
        answers: dict[Question[Any], Any] = {}
        found: dict[str, list[tuple[Labels, float]]] = {}
        for rule in group.rules:
            if not self._holds_lease(self._clock.now_ms()):
                return
            began, error = self._clock.monotonic(), ""
            try:
                with use_request_budget(self._clock):
                    if rule.query not in found:
                        found[rule.query] = self._series(rule, now_ms, answers)
                    self._apply(group, rule, now_ms, found[rule.query])
                if rule.record:
                    found.clear()  # the rules that follow may read the new samples
            except (JobmeterError, EvaluationError) as failed:
                error = failed.message if isinstance(failed, JobmeterError) else str(failed)
                _log.warning("the rule %s was not evaluated: %s", rule.id, error)
            seconds = self._clock.monotonic() - began
            self._status[rule.id] = replace(
                make_status(rule), health="err" if error else "ok", error=error, evaluated=now_ms, seconds=seconds
            )

    def _apply(self, group: RuleGroup, rule: AlertRule, now_ms: int, series: list[tuple[Labels, float]]) -> None:
        """Store the next states of a rule's alerts, or the series of a recording rule."""
        if rule.record:
            self._recorder(rule, series[: group.limit or MOST_OF_RULE], now_ms)
            return
        all_alerts = self._alerts or {}
        before = all_alerts.get(rule.id, {})
        # Alerts of other programs have a separate limit: they take no room from rules.
        others = sum(len(own) for name, own in all_alerts.items() if name not in {POSTED, rule.id})
        room = min(MOST_OF_RULE, MOST_ALERTS - others)
        found = limit_alerts(advance_states(rule, before, series, now_ms, min(group.limit or room, room)), room)
        changed = [one for one in found.values() if _is_changed(before.get(one.fingerprint), one, now_ms)]
        gone = [one for one in before if one not in found]
        if changed or gone:
            self._registry.alerts.put(changed, gone)
        # An unchanged alert has the time at which it was stored, so that its value is stored again in time.
        stored = {one.fingerprint for one in changed}
        merged = {
            name: one if name in stored or name not in before else replace(one, updated=before[name].updated)
            for name, one in found.items()
        }
        with self._lock:
            all_alerts[rule.id] = merged
            self._alerts = all_alerts

    def _series(self, rule: AlertRule, now_ms: int, answers: dict[Question[Any], Any]) -> list[tuple[Labels, float]]:
        """Return the series of a rule's expression now, without series of jobs that have ended."""

        def answer(question: Question[Any]) -> Any:  # noqa: ANN401 - each question has its own result
            if isinstance(question, DiskQuestion):
                return read_disk_facts(self._settings, self._clock)
            if not isinstance(question, JobFactsQuestion | NodeFactsQuestion):
                return self._executor.run(question, EVERYTHING)
            if isinstance(question, NodeFactsQuestion):
                question = replace(question, silent_ms=self._settings.node_seconds * SECOND)
            if question not in answers:
                answers[question] = self._executor.run(question, EVERYTHING)
            return answers[question]

        times = np.array([now_ms], np.int64)
        reader = drive(prefetch(rule.node, times, LOOKBACK_MS, None, of_owners=True), answer)
        found = evaluate(rule.node, reader, times, most=MOST_VALUES).value
        if isinstance(found, Scalar):
            return [((), float(found.values[0]))]
        if not isinstance(found, Vector):
            return []
        rows = list(zip(found.labels, found.values[:, 0].tolist(), strict=True))
        if reader.of_facts or not any(get_value(labels, "job_id") for labels, _ in rows):
            return rows
        jobs = answer(JobFactsQuestion(since_ms=now_ms - LOOKBACK_MS)).jobs
        over = {(job.project, job.id) for job in jobs if job.state.finished and job.state is not JobState.UNKNOWN}
        return [row for row in rows if (get_value(row[0], "project"), get_value(row[0], "job_id")) not in over]

    def _notify(self, now_ms: int) -> None:
        if self.config.route is None:
            return
        alerts = [one for one in self._list_all() or () if one.state is not AlertState.PENDING]
        if not alerts and not self._reported:
            return
        silences = self._executor.run(SilencesQuestion(), EVERYTHING) if alerts else []
        page = mute_alerts(alerts, silences, self.config.inhibitions, now_ms)
        made = decide(self.config, page, self._reported, now_ms, self.url)
        if not (made.messages or made.groups or made.forgotten):
            return
        dropped = self._registry.alerts.decide(made.groups, made.forgotten, made.messages, now_ms)
        if dropped:
            _log.error("%d messages about alerts were dropped: their destination is away for too long", dropped)
        self._reported |= {one.key: one for one in made.groups}
        for key in made.forgotten:
            self._reported.pop(key, None)

    def _list_all(self) -> list[Alert] | None:
        with self._lock:
            return None if self._alerts is None else [one for own in self._alerts.values() for one in own.values()]

    def list_alerts(self) -> list[Alert]:
        """Return every alert: of this process where it evaluates, else as another server stored them."""
        found = self._list_all()
        return self._executor.run(StoredAlertsQuestion(), EVERYTHING) if found is None else found

    def list_rules(self) -> list[RuleGroupStatus]:
        """Return the groups of rules with the last evaluation of each rule by this process."""
        return [
            RuleGroupStatus(
                name=group.name,
                file=group.file,
                interval_ms=group.interval_ms,
                limit=group.limit,
                rules=[self._status.get(rule.id) or make_status(rule) for rule in group.rules],
            )
            for group in self._groups
        ]


def make_status(rule: AlertRule) -> RuleStatus:
    """Return the status of a rule before its first evaluation."""
    return RuleStatus(
        id=rule.id,
        name=rule.name,
        query=rule.query,
        is_alert=not rule.record,
        hold_ms=rule.hold_ms,
        keep_ms=rule.keep_ms,
        labels=rule.texts["labels"],
        annotations=rule.texts["annotations"],
    )


def read_disk_facts(settings: Settings, clock: Clock) -> DiskFacts:
    """Return the space on the disk of the data folder."""
    try:
        usage = shutil.disk_usage(settings.data)
    except OSError:
        return DiskFacts(now_ms=clock.now_ms())
    return DiskFacts(free=usage.free, size=usage.total, now_ms=clock.now_ms())


def _is_changed(old: Alert | None, new: Alert, now_ms: int) -> bool:
    if old is None or (old.state, old.missing, old.resolved, old.annotations) != (
        new.state,
        new.missing,
        new.resolved,
        new.annotations,
    ):
        return True
    return new.state is not AlertState.RESOLVED and now_ms - old.updated >= _STORE_MS
