"""Questions for alerts of a job, stored alerts, silences, and messages about them."""

from collections.abc import Sequence

import msgspec

from jobmeter.access.principal import Scope
from jobmeter.model.alert import SILENCE_KEEP_MS, Alert, JobAlerts, Message, NotificationGroup, Silence
from jobmeter.model.question import Question
from jobmeter.query.request import JobRef
from jobmeter.registry.base import Registry

MOST_OF_JOB = 100
"""Most alerts in an answer about a job."""


class JobAlertsQuestion(msgspec.Struct, Question[JobAlerts], frozen=True):
    """Question for the pending and firing alerts about a job. Raises NotFoundError."""

    by_resource = of_job = True

    ref: JobRef


class StoredAlertsQuestion(msgspec.Struct, Question[list[Alert]], frozen=True):
    """Question for the alerts stored at or after ``since``, epoch ms, in the order of their starts."""

    whole_server = True

    since: int = 0


class ReportedGroupsQuestion(msgspec.Struct, Question[list[NotificationGroup]], frozen=True):
    """Question for every group of alerts that was reported."""

    whole_server = True


class StoredSilencesQuestion(msgspec.Struct, Question[list[Silence]], frozen=True):
    """Question for every stored silence, the newest end first."""

    whole_server = True


class WaitingMessagesQuestion(msgspec.Struct, Question[list[Message]], frozen=True):
    """Question for the oldest message of each destination."""

    whole_server = True


def list_silences(registry: Registry, scope: Scope, now_ms: int) -> Sequence[Silence]:
    """Answer a ``SilencesQuestion``."""
    after = now_ms - SILENCE_KEEP_MS
    return [one for one in registry.alerts.list_silences() if one.end > after and shows_project(scope, one.project)]


def shows_project(scope: Scope, project: str) -> bool:
    """Return True if the scope has a project. An alert without a project belongs to scopes of all projects alone."""
    return scope.allows(project) if project else scope.projects is None and scope.job is None
