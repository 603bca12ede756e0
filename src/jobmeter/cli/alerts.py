"""``jobmeter alerts``: lists the alerts that are pending or fire."""

import click

from jobmeter.cli import local
from jobmeter.cli.options import define_verb
from jobmeter.cli.output import build_console, format_duration, print_json, show_listing
from jobmeter.client.alerts import ShownAlert, read_alerts
from jobmeter.model.alert import ALERT_NAME
from jobmeter.model.time import SystemClock, parse_time

_HIDDEN = {ALERT_NAME, "severity", "sentence"}
_SPARE = ("labels", "severity", "since")


@define_verb("jobmeter alerts", "jobmeter alerts --firing --json")
@click.option("--firing", is_flag=True, help="Only alerts that fire.")
@click.option("--json", "as_json", is_flag=True, help="An array of objects.")
@local.listing_options
def command(firing: bool, as_json: bool, connection: local.LocalConnection) -> None:
    """List the pending and firing alerts, with the silences that mute them."""
    api = connection.open()
    found = [
        one
        for one in read_alerts(api.transport)
        if (not firing or one.state == "firing")
        and (not connection.project or one.labels.get("project") == connection.project)
    ]
    if not found:
        local.check_project(api, connection.project)
    if as_json:
        print_json(found)
        return
    now_ms = SystemClock().now_ms()
    columns = ("alert", "state", "severity", "since", "about", "labels")
    rows, empty = [_row(one, now_ms) for one in found], "no pending or firing alerts"
    show_listing(build_console(), columns, rows, spare=_SPARE, folded="about", empty=empty)


def _row(one: ShownAlert, now_ms: int) -> tuple[str, ...]:
    age = format_duration(max(now_ms - parse_time(one.active), 0) // 1000 * 1000)
    text = one.annotations.get("summary") or one.annotations.get("description") or "-"
    rest = ", ".join(f"{name}={value}" for name, value in sorted(one.labels.items()) if name not in _HIDDEN)
    state = f"{one.state}, muted" if one.muted else one.state
    return one.labels.get(ALERT_NAME, "-"), state, one.labels.get("severity", "-"), f"{age} ago", text, rest or "-"
