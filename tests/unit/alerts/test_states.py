"""Tests of alert states, against a slow model of the rules that Prometheus documents."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobmeter.alerts.rules import load_rules
from jobmeter.alerts.states import RESOLVED_MS, EvaluationError, advance_states, limit_alerts
from jobmeter.model.alert import Alert, AlertState

STEP = 60_000


def rule_of(tmp_path_factory, hold, keep):
    path = tmp_path_factory.mktemp("rules") / "rules.yml"
    path.write_text(
        "groups:\n- name: g\n  rules:\n  - alert: A\n    expr: up == 0\n"
        f"    for: {hold}m\n    keep_firing_for: {keep}m\n    labels: {{severity: page}}\n"
    )
    return load_rules([str(path)], shipped=False)[0].rules[0]


SERIES = ((("__name__", "up"), ("node", "n1"), ("project", "lab")), 0.0)


def model(seen, hold, keep):
    """Return the state after each evaluation: inactive, pending, firing or resolved."""
    found, began, lost, fires, ended = [], None, None, False, None
    for at, there in enumerate(seen):
        if there:
            began = at if began is None else began
            lost, ended = None, None
            fires = fires or at - began >= hold
        elif fires:
            lost = at if lost is None else lost
            if not keep or at - lost >= keep:
                fires, began, lost, ended = False, None, None, at
        else:
            began = None
        shown = "firing" if fires else "pending" if began is not None else "inactive"
        if shown == "inactive" and ended is not None and (at - ended) * STEP < RESOLVED_MS:
            shown = "resolved"
        found.append(shown)
    return found


@given(st.lists(st.booleans(), max_size=60), st.integers(0, 5), st.integers(0, 4))
def test_states_follow_the_model(tmp_path_factory, seen, hold, keep):
    rule = rule_of(tmp_path_factory, hold, keep)
    alerts: dict[str, Alert] = {}
    found = []
    for at, there in enumerate(seen):
        alerts = advance_states(rule, alerts, [SERIES] if there else [], at * STEP + 1_000_000, 10)
        found.append(next((one.state.value for one in alerts.values()), "inactive"))
    assert found == model(seen, hold, keep)


def test_an_alert_has_the_labels_of_series_and_rule(tmp_path_factory):
    rule = rule_of(tmp_path_factory, 0, 0)
    (alert,) = advance_states(rule, {}, [SERIES], 1, 10).values()
    assert alert.labels == {"alertname": "A", "node": "n1", "project": "lab", "severity": "page"}
    assert (alert.project, alert.state, alert.fired, alert.value) == ("lab", AlertState.FIRING, 1, "0")


def test_too_many_series_and_equal_labels_are_errors(tmp_path_factory):
    rule = rule_of(tmp_path_factory, 0, 0)
    with pytest.raises(EvaluationError, match="the limit is 1"):
        advance_states(rule, {}, [SERIES, ((("node", "n2"),), 1.0)], 1, 1)
    with pytest.raises(EvaluationError, match="same labels"):
        advance_states(rule, {}, [SERIES, (SERIES[0][1:], 1.0)], 1, 10)


def test_times_of_a_clock_that_was_set_back_do_not_hold_alerts(tmp_path_factory):
    rule = rule_of(tmp_path_factory, 2, 1)
    late, now = 10**12, 10**11
    alerts = advance_states(rule, {}, [SERIES], late, 10)
    found = []
    for at, there in enumerate([True, True, True, False, False]):
        alerts = advance_states(rule, alerts, [SERIES] if there else [], now + at * STEP, 10)
        found.append(next(one.state.value for one in alerts.values()))
    assert found == ["pending", "pending", "firing", "firing", "resolved"]
    assert advance_states(rule, alerts, [], now - 10**9, 10) == {}


def test_ends_do_not_accumulate_where_every_series_is_new(tmp_path_factory):
    rule = rule_of(tmp_path_factory, 0, 0)
    alerts: dict[str, Alert] = {}
    for at in range(8):
        series = [((("node", f"n{at}.{number}"),), 0.0) for number in range(3)]
        alerts = limit_alerts(advance_states(rule, alerts, series, at + 1, 5), 5)
        assert len(alerts) <= 5
        assert sum(one.firing for one in alerts.values()) == 3
    assert {one.resolved for one in alerts.values()} == {None, 8}
