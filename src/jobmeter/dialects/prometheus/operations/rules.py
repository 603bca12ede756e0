"""Rules and alerts: https://prometheus.io/docs/prometheus/latest/querying/api/#rules."""

from collections.abc import Sequence
from typing import Annotated, Any

from jobmeter.dialects.base import Steps, ask
from jobmeter.dialects.base.request import Request
from jobmeter.dialects.prometheus import answers
from jobmeter.dialects.prometheus.requests import API, operation
from jobmeter.errors import InvalidRequestError
from jobmeter.model.alert import Alert, AlertsQuestion, AlertState, RulesQuestion, RuleStatus
from jobmeter.model.grouping import group_pairs
from jobmeter.model.time import SECOND, format_iso

_NEVER = "0001-01-01T00:00:00Z"
_KINDS = {"alert": True, "record": False}


@operation(f"GET {API}/rules", "alerts:read", name="rules")
class RulesRequest(Request, frozen=True, kw_only=True):
    """Returns the rules with their state, last evaluation and alerts."""

    type: Annotated[str, "`alert` or `record`: rules of this type alone."] = ""
    exclude_alerts: Annotated[str, "`true` leaves out the alerts of each rule."] = ""

    def _steps(self) -> Steps:
        if self.type and self.type not in _KINDS:
            raise InvalidRequestError(f'invalid parameter "type": not supported value "{self.type[:64]}"', "type")
        groups = yield from ask(RulesQuestion())
        page = yield from ask(AlertsQuestion())
        by_rule = group_pairs((one.rule, one) for one in page.alerts)
        found = []
        for group in groups:
            listed = [
                _rule(rule, by_rule.get(rule.id, ()), with_alerts=self.exclude_alerts != "true")
                for rule in group.rules
                if not self.type or _KINDS[self.type] is rule.is_alert
            ]
            evaluated = [rule.evaluated for rule in group.rules if rule.evaluated is not None]
            found.append(
                {
                    "name": group.name,
                    "file": group.file,
                    "rules": listed,
                    "interval": group.interval_ms / SECOND,
                    "limit": group.limit,
                    "evaluationTime": sum(rule.seconds for rule in group.rules),
                    "lastEvaluation": format_iso(max(evaluated)) if evaluated else _NEVER,
                }
            )
        return answers.make_success({"groups": found})


@operation(f"GET {API}/alerts", "alerts:read", name="alerts")
class AlertsRequest(Request, frozen=True):
    """Returns the pending and firing alerts. `alertname` is the name of the rule."""

    def _steps(self) -> Steps:
        page = yield from ask(AlertsQuestion())
        return answers.make_success({"alerts": [_alert(one) for one in page.alerts]})


def _rule(rule: RuleStatus, own: Sequence[Alert], *, with_alerts: bool) -> dict[str, Any]:
    common: dict[str, Any] = {
        "name": rule.name,
        "query": rule.query,
        "labels": rule.labels,
        "health": rule.health,
        "evaluationTime": rule.seconds,
        "lastEvaluation": _NEVER if rule.evaluated is None else format_iso(rule.evaluated),
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
        "activeAt": format_iso(alert.started),
        "value": alert.value,
        **({} if alert.missing is None else {"keepFiringSince": format_iso(alert.missing)}),
    }
