"""Alerts of rules, silences, and messages to receivers. Times in epoch milliseconds."""

from collections.abc import Sequence
from enum import StrEnum

import msgspec

from jobmeter.model.question import Question
from jobmeter.model.time import DAY

ALERT_NAME = "alertname"
"""Label with the name of an alert's rule."""
POSTED = "posted"
"""Rule of alerts that other programs post."""
SILENCE_KEEP_MS = 5 * DAY
"""Time for which a silence remains after its end."""


class AlertState(StrEnum):
    """State of an alert. An inactive one does not exist."""

    PENDING = "pending"
    FIRING = "firing"
    RESOLVED = "resolved"


class Alert(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A series of an alerting rule's expression.

    ``rule`` is the id of the rule. The expression first returned the series at ``started``; the alert fired at
    ``fired`` and ended at ``resolved``. ``missing`` is the time from which a firing alert lacks its series and only
    ``keep_firing_for`` keeps it. ``project`` may see the alert; empty: only callers who see every project.
    """

    fingerprint: str
    rule: str
    project: str
    labels: dict[str, str]
    annotations: dict[str, str]
    state: AlertState
    value: str
    """The value of the series as Prometheus writes it: JSON has no NaN and no infinities."""
    started: int
    fired: int | None = None
    resolved: int | None = None
    missing: int | None = None
    updated: int = 0
    ends: int | None = None
    """Time at which an alert of another program ends unless the program repeats it."""
    address: str = ""
    """Address that another program gave for its alert."""

    @property
    def name(self) -> str:
        """Name of its rule."""
        return self.labels.get(ALERT_NAME, "")

    @property
    def firing(self) -> bool:
        """True while it fires."""
        return self.state is AlertState.FIRING


class LabelMatcher(msgspec.Struct, frozen=True):
    """Condition of a silence or a route on a label, in the form of Alertmanager's API."""

    name: str
    value: str
    is_regex: bool = msgspec.field(name="isRegex", default=False)
    is_equal: bool = msgspec.field(name="isEqual", default=True)


class Silence(msgspec.Struct, frozen=True, kw_only=True):
    """Matchers of alerts that send no messages from ``start`` to ``end``.

    It covers only alerts of ``project``, the project of its author's key. Empty: alerts of every project.
    """

    id: str
    project: str
    matchers: tuple[LabelMatcher, ...]
    start: int
    end: int
    author: str
    comment: str
    updated: int


class NotificationGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Alerts that a destination gets in one message: their states in the last message, and its time ``sent``."""

    key: str
    sent: int
    states: dict[str, AlertState]
    forever: bool = False
    """True if it is remembered so that it is reported once only."""


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """A message on its way to a destination. ``id`` is 0 until it is stored; ``body`` is what the destination reads."""

    destination: str
    body: str
    created: int
    id: int = 0
    tries: int = 0
    next_try: int = 0
    error: str = ""


class AlertPage(msgspec.Struct, frozen=True):
    """Alerts, with the ids of the silences and the fingerprints of the alerts that mute each of them.

    ``receivers`` has the receivers of each alert, with the labels of its group there.
    """

    alerts: Sequence[Alert]
    silenced: dict[str, list[str]] = {}
    inhibited: dict[str, list[str]] = {}
    receivers: dict[str, list[tuple[str, dict[str, str]]]] = {}
    url: str = ""
    """The server's address for links; empty if unknown."""


class JobAlert(msgspec.Struct, frozen=True, kw_only=True):
    """A pending or firing alert about a job.

    ``severity``, ``summary`` and ``description`` are empty unless the rule has them. ``start`` is the time at which the
    expression first returned the series. ``fired`` is null for a pending alert. ``muted``: a silence or another alert
    suppresses its messages.
    """

    fingerprint: str
    name: str
    state: AlertState
    severity: str
    summary: str
    description: str
    value: str
    labels: dict[str, str]
    start: int
    fired: int | None
    muted: bool
    silences: Sequence[str] = ()
    """Ids of the silences that cover it, without those that the caller may not see."""


class JobAlerts(msgspec.Struct, frozen=True, kw_only=True):
    """Alerts about a job, firing ones first, then the oldest. ``total`` also counts alerts beyond the limit.

    Each of ``silences`` covers at least one of ``alerts``.
    """

    alerts: Sequence[JobAlert]
    total: int
    silences: Sequence[Silence] = ()


class NewSilence(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Silence to add, from now for ``seconds``, for alerts of one name about a job."""

    alert: str
    seconds: int
    author: str
    comment: str


class AlertsQuestion(msgspec.Struct, Question[AlertPage], frozen=True, kw_only=True):
    """Question for the pending and firing alerts that the caller may see, oldest first."""

    of_job = True


class PostedAlert(msgspec.Struct, frozen=True, kw_only=True):
    """An alert of another program. ``start`` defaults to now. Without ``end`` it ends unless it is posted again."""

    labels: dict[str, str]
    annotations: dict[str, str] = {}
    start: int | None = None
    end: int | None = None
    address: str = ""


class PostAlerts(msgspec.Struct, Question[int], frozen=True, kw_only=True):
    """Store alerts of another program, all or none. Returns the number of alerts that changed."""

    alerts: tuple[PostedAlert, ...]


class RuleStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A rule with its last evaluation: ``health`` is ok, err or unknown."""

    id: str
    name: str
    query: str
    is_alert: bool
    hold_ms: int = 0
    keep_ms: int = 0
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    health: str = "unknown"
    error: str = ""
    evaluated: int | None = None
    seconds: float = 0.0


class RuleGroupStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A group of rules with its file, its interval, and the most series of each rule (0: the default)."""

    name: str
    file: str
    interval_ms: int
    limit: int = 0
    rules: Sequence[RuleStatus]


class RulesQuestion(msgspec.Struct, Question[Sequence[RuleGroupStatus]], frozen=True, kw_only=True):
    """Question for the groups of rules that the server evaluates."""

    of_job = True


class AlertingStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of alerts without secrets: the names of receivers, and the start of the server."""

    receivers: Sequence[str]
    config: str
    started: int


class AlertingQuestion(msgspec.Struct, Question[AlertingStatus], frozen=True, kw_only=True):
    """Question for the settings of alerts."""

    of_job = True


class SilencesQuestion(msgspec.Struct, Question[Sequence[Silence]], frozen=True, kw_only=True):
    """Question for the silences that the caller may see, the newest end first; ended ones for five days."""

    of_job = True


class PutSilence(msgspec.Struct, Question[Silence], frozen=True, kw_only=True):
    """Create a silence, or change the one with this ``id``. Returns the silence."""

    matchers: tuple[LabelMatcher, ...]
    start: int
    end: int
    author: str
    comment: str
    id: str = ""


class ExpireSilence(msgspec.Struct, Question[Silence], frozen=True, kw_only=True):
    """End a silence now. Returns the silence."""

    id: str
