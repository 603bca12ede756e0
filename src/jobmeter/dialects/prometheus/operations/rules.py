"""Rules and alerts: https://prometheus.io/docs/prometheus/latest/querying/api/#rules."""

from collections.abc import Iterable
from typing import Any

from jobmeter.access.call import Call
from jobmeter.dialects.base import Context, Operation, Parameter, Steps, execute
from jobmeter.dialects.prometheus import answers
from jobmeter.dialects.prometheus.arguments import Arguments
from jobmeter.errors import InvalidRequestError
from jobmeter.model.alert import ALERT_NAME, Alert, AlertsQuestion, AlertState, RulesQuestion, RuleStatus
from jobmeter.model.time import SECOND, iso

_NEVER = "0001-01-01T00:00:00Z"
_KINDS = {"alert": True, "record": False}


def rules(call: Call, context: Context) -> Steps:
    """Answer the groups of rules with their alerts."""
    arguments = Arguments(call, context.now_ms)
    kind, with_alerts = arguments.get("type"), arguments.get("exclude_alerts") != "true"
    if kind and kind not in _KINDS:
        raise InvalidRequestError(f'invalid parameter "type": not supported value "{kind[:64]}"', "type")
    groups = yield from execute(RulesQuestion())
    page = yield from execute(AlertsQuestion())
    found = []
    for group in groups:
        listed = [
            _rule(rule, [one for one in page.alerts if one.rule == rule.id], with_alerts=with_alerts)
            for rule in group.rules
            if not kind or _KINDS[kind] is rule.is_alert
        ]
        evaluated = [rule.evaluated for rule in group.rules if rule.evaluated is not None]
        found.append(
            {
                "name": group.name,
                "file": group.file,
                "rules": listed,
                "interval": group.interval_ms / SECOND,
                "limit": 0,
                "evaluationTime": sum(rule.seconds for rule in group.rules),
                "lastEvaluation": iso(max(evaluated)) if evaluated else _NEVER,
            }
        )
    return answers.success({"groups": found})


def _rule(rule: RuleStatus, alerts: Iterable[Alert], *, with_alerts: bool) -> dict[str, Any]:
    own = list(alerts)
    common: dict[str, Any] = {
        "name": rule.name,
        "query": rule.query,
        "labels": rule.labels,
        "health": rule.health,
        "evaluationTime": rule.seconds,
        "lastEvaluation": _NEVER if rule.evaluated is None else iso(rule.evaluated),
        "type": "alerting" if rule.is_alert else "recording",
    }
    if rule.error:
        common["lastError"] = rule.error
    if not rule.is_alert:
        return common
    states = {one.state for one in own}
    state = next((one for one in (AlertState.FIRING, AlertState.PENDING) if one in states), None)
    return common | {
        "state": "inactive" if state is None else state.value,
        "duration": rule.hold_ms / SECOND,
        "keepFiringFor": rule.keep_ms / SECOND,
        "annotations": rule.annotations,
        "alerts": [_alert(one) for one in own] if with_alerts else [],
    }


def _alert(alert: Alert) -> dict[str, Any]:
    return {
        "labels": alert.labels,
        "annotations": alert.annotations,
        "state": alert.state.value,
        "activeAt": iso(alert.started),
        "value": alert.value,
        **({} if alert.missing is None else {"keepFiringSince": iso(alert.missing)}),
    }


def alerts(call: Call, context: Context) -> Steps:  # noqa: ARG001 - as of every operation
    """Answer the pending and firing alerts."""
    page = yield from execute(AlertsQuestion())
    return answers.success({"alerts": [_alert(one) for one in page.alerts]})


_TYPE = Parameter("type", "query", "`alert` or `record`: rules of this type alone.")
_WITHOUT = Parameter("exclude_alerts", "query", "`true` leaves out the alerts of each rule.")

OPERATIONS = tuple(
    Operation(
        name=name,
        action="alerts:read",
        method="GET",
        path=f"/prometheus/api/v1/{name}",
        answer=answer,
        parameters=parameters,
        text=text,
    )
    for name, answer, parameters, text in (
        ("rules", rules, (_TYPE, _WITHOUT), "Gives the rules with their state, last evaluation and alerts."),
        ("alerts", alerts, (), f"Gives the pending and firing alerts. `{ALERT_NAME}` is the name of the rule."),
    )
)
