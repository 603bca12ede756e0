"""Questions about alerts and silences, within the scope of the caller."""

import uuid
from collections.abc import Sequence

from msgspec.structs import replace

from jobmeter.access.decide import EVERYTHING
from jobmeter.access.principal import Principal, Scope
from jobmeter.alerts.muting import MOST_MATCHERS, MOST_SILENCES, MOST_TEXT, check_matcher, fulfils, mute_alerts
from jobmeter.alerts.notify import find_receivers
from jobmeter.errors import InvalidRequestError, LimitExceededError, NotFoundError
from jobmeter.model.alert import (
    SILENCE_KEEP_MS,
    Alert,
    AlertingQuestion,
    AlertingStatus,
    AlertPage,
    AlertsQuestion,
    AlertState,
    ExpireSilence,
    JobAlert,
    JobAlerts,
    PostAlerts,
    PutSilence,
    RuleGroupStatus,
    RulesQuestion,
    Silence,
    SilencesQuestion,
)
from jobmeter.model.time import DAY
from jobmeter.query.alerts import MOST_OF_JOB, JobAlertsQuestion, StoredSilencesQuestion, shows_project
from jobmeter.query.request import HeadQuestion
from jobmeter.server.services import Services

LONGEST_MS = 366 * DAY


def find_alerts(services: Services, _: AlertsQuestion, __: Principal, scope: Scope) -> AlertPage:
    """Return the pending and firing alerts of the caller's projects."""
    alerting, every = services.alerting, _open_alerts(services)
    page = _mute_alerts(services, every, _silences(services))
    visible = sorted(
        (one for one in every if shows_project(scope, one.project)), key=lambda one: (one.started, one.name)
    )
    return replace(page, alerts=visible, receivers=find_receivers(alerting.config, visible), url=alerting.url)


def find_job_alerts(services: Services, question: JobAlertsQuestion, principal: Principal, scope: Scope) -> JobAlerts:
    """Return the pending and firing alerts about a job. Raises NotFoundError."""
    job = services.executor.run(HeadQuestion(question.ref), scope)
    every = _open_alerts(services)
    own = [one for one in every if (one.project, one.labels.get("job_id")) == (job.project, job.id)]
    if not own:
        return JobAlerts(alerts=[], total=0)
    silences = _silences(services)
    page = _mute_alerts(services, every, silences)
    # The scope is that of the job's project, also for a caller of every project.
    sees_all = principal.project is None and principal.policies is None
    visible = {one.id: one for one in silences if sees_all or shows_project(scope, one.project)}
    own.sort(key=lambda one: (not one.firing, one.started, one.name))
    own, total = own[:MOST_OF_JOB], len(own)
    covering = {
        one.fingerprint: [name for name in page.silenced.get(one.fingerprint, ()) if name in visible] for one in own
    }
    used = {name for names in covering.values() for name in names}
    return JobAlerts(
        alerts=[
            JobAlert(
                fingerprint=one.fingerprint,
                name=one.name,
                state=one.state,
                severity=one.labels.get("severity", ""),
                summary=one.annotations.get("summary", ""),
                description=one.annotations.get("description", ""),
                value=one.value,
                labels=one.labels,
                start=one.started,
                fired=one.fired,
                muted=one.fingerprint in page.silenced or one.fingerprint in page.inhibited,
                silences=covering[one.fingerprint],
            )
            for one in own
        ],
        total=total,
        silences=[one for name, one in visible.items() if name in used],
    )


def _open_alerts(services: Services) -> list[Alert]:
    return [one for one in services.alerting.list_alerts() if one.state is not AlertState.RESOLVED]


def _silences(services: Services) -> Sequence[Silence]:
    return services.executor.run(SilencesQuestion(), EVERYTHING)


def _mute_alerts(services: Services, alerts: Sequence[Alert], silences: Sequence[Silence]) -> AlertPage:
    return mute_alerts(alerts, silences, services.alerting.config.inhibitions, services.clock.now_ms())


def post_alerts(services: Services, question: PostAlerts, _: Principal, scope: Scope) -> int:
    """Store alerts of another program. Raises InvalidRequestError, LimitExceededError."""
    return services.alerting.post(question.alerts, None if scope.projects is None else next(iter(scope.projects)))


def find_rules(services: Services, _: RulesQuestion, __: Principal, scope: Scope) -> Sequence[RuleGroupStatus]:
    """Return the rules with the last evaluation of each.

    An error may name series of any project. So its text is for callers who see every project.
    """
    groups = services.alerting.list_rules()
    if scope.projects is None:
        return groups
    return [
        replace(
            group, rules=[replace(rule, error="it was not evaluated" if rule.error else "") for rule in group.rules]
        )
        for group in groups
    ]


def read_alerting_status(services: Services, _: AlertingQuestion, __: Principal, ___: Scope) -> AlertingStatus:
    """Return the names of the receivers, and since when rules are evaluated."""
    alerting = services.alerting
    names = alerting.config.receivers
    config = "".join(f"# receiver {name}\n" for name in names)
    return AlertingStatus(receivers=names, config=config, started=alerting.started)


def put_silence(services: Services, question: PutSilence, _: Principal, scope: Scope) -> Silence:
    """Create or change a silence. Raises InvalidRequestError, LimitExceededError or NotFoundError."""
    now_ms = services.clock.now_ms()
    _check(question, now_ms)
    every = services.executor.run(StoredSilencesQuestion(), EVERYTHING)
    expired = [one.id for one in every if one.end <= now_ms - SILENCE_KEEP_MS]
    if question.id:
        old = _find(every, question.id, scope)
        project, name = old.project, old.id
    else:
        if len(every) - len(expired) >= MOST_SILENCES:
            raise LimitExceededError(f"there are {MOST_SILENCES} silences already: let some expire", "matchers")
        project = "" if scope.projects is None else next(iter(scope.projects))
        name = str(uuid.uuid4())
    made = Silence(
        id=name,
        project=project,
        matchers=question.matchers,
        start=question.start,
        end=question.end,
        author=question.author,
        comment=question.comment,
        updated=now_ms,
    )
    services.registry.alerts.put_silence(made, expired)
    return made


def expire_silence(services: Services, question: ExpireSilence, _: Principal, scope: Scope) -> Silence:
    """End a silence now; a no-op for one that has ended. Raises NotFoundError."""
    now_ms = services.clock.now_ms()
    found = _find(services.executor.run(StoredSilencesQuestion(), EVERYTHING), question.id, scope)
    if found.end > now_ms:
        found = replace(found, start=min(found.start, now_ms), end=now_ms, updated=now_ms)
        services.registry.alerts.put_silence(found)
    return found


def _find(every: Sequence[Silence], name: str, scope: Scope) -> Silence:
    found = next((one for one in every if one.id == name and shows_project(scope, one.project)), None)
    if found is None:
        raise NotFoundError(f"there is no silence {name[:64]!r}", "silence", name[:64])
    return found


def _check(question: PutSilence, now_ms: int) -> None:
    if not 1 <= len(question.matchers) <= MOST_MATCHERS:
        raise InvalidRequestError(f"a silence needs 1 to {MOST_MATCHERS} matchers", "matchers")
    for matcher in question.matchers:
        check_matcher(matcher)
    if fulfils(question.matchers, {}):
        raise InvalidRequestError("at least one matcher must need a label: these match every alert", "matchers")
    if not question.start < question.end or question.end <= now_ms or question.end > now_ms + LONGEST_MS:
        raise InvalidRequestError("a silence ends after its start, in the future, and within a year", "endsAt")
    for field, text in (("createdBy", question.author), ("comment", question.comment)):
        if not text.strip() or len(text) > MOST_TEXT:
            raise InvalidRequestError(f"{field} must have 1 to {MOST_TEXT} characters", field)
