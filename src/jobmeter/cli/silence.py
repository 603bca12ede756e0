"""``jobmeter silence``: mutes alerts for a time."""

import getpass
import re
from collections.abc import Sequence

import click

from jobmeter.cli import local
from jobmeter.cli.options import define_group
from jobmeter.cli.output import build_console, format_time, print_json, show_listing
from jobmeter.client.alerts import ShownSilence, add_silence, expire_silence, read_silences
from jobmeter.model.alert import LabelMatcher
from jobmeter.model.time import SystemClock, format_iso, parse_duration, parse_time

_MATCHER = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)(=~|!~|!=|=)"?(.*?)"?', re.DOTALL)


@define_group(
    "jobmeter silence add alertname=GpuIdle job_id=train-1 --for 2h --comment 'waiting for data'",
    "jobmeter silence list",
)
def command() -> None:
    """Silence alerts: while a silence lasts, the server sends no messages about them."""


@command.define(
    "jobmeter silence add alertname=GpuIdle --for 2h --comment 'waiting for data'",
    groups={"Silence": ("length", "comment", "author")},
)
@click.argument("matchers", nargs=-1, required=True)
@click.option("--for", "length", required=True, metavar="DURATION", help="Length of the silence, such as 30m or 7d.")
@click.option("--comment", metavar="TEXT", required=True, help="Reason for the silence, shown in lists of silences.")
@click.option("--author", metavar="NAME", help="Who silences the alerts (default: the user of this machine).")
@local.server_options
def add(
    matchers: Sequence[str], length: str, comment: str, author: str | None, connection: local.LocalConnection
) -> None:
    """Silence the alerts that match all MATCHERS: name=value, name!=value, name=~pattern or name!~pattern."""
    found = [_matcher(text) for text in matchers]
    now_ms = SystemClock().now_ms()
    end_ms = now_ms + parse_duration(length, "--for")
    span, by = (format_iso(now_ms), format_iso(end_ms)), (author or getpass.getuser(), comment)
    made = add_silence(connection.open().transport, found, span, by)
    build_console().print(f"silence {made} lasts until {format_time(end_ms)} UTC", markup=False)


@command.define("jobmeter silence list --expired", name="list")
@click.option("--expired", is_flag=True, help="Also list silences that ended in the last five days.")
@click.option("--json", "as_json", is_flag=True, help="An array of objects.")
@local.server_options
def list_(expired: bool, as_json: bool, connection: local.LocalConnection) -> None:
    """List the silences."""
    every = read_silences(connection.open().transport)
    found = [one for one in every if expired or one.status.get("state") != "expired"]
    if as_json:
        print_json(found)
        return
    columns, spare = ("id", "state", "matchers", "until", "author", "comment"), ("comment", "author")
    rows = [_row(one) for one in found]
    show_listing(build_console(), columns, rows, spare=spare, folded="matchers", empty="no silences")


@command.define("jobmeter silence expire 3f2a9c4e-8d11-4b60-9c57-0e6b2f1d7a35")
@click.argument("silence")
@local.server_options
def expire(silence: str, connection: local.LocalConnection) -> None:
    """End the silence with the id SILENCE now."""
    expire_silence(connection.open().transport, silence)
    build_console().print(f"ended silence {silence}", markup=False)


def _row(one: ShownSilence) -> tuple[str, ...]:
    matchers, until = " ".join(map(_text, one.matchers)), format_time(parse_time(one.end))
    return one.id, one.status.get("state", "-"), matchers, until, one.author, one.comment


def _matcher(text: str) -> LabelMatcher:
    found = _MATCHER.fullmatch(text)
    if found is None:
        raise click.UsageError(f"{text!r} is not a matcher such as alertname=GpuIdle")
    name, operator, value = found.groups()
    return LabelMatcher(name, value, operator.endswith("~"), operator[0] == "=")


def _text(one: LabelMatcher) -> str:
    operator = {(True, False): "=", (False, False): "!=", (True, True): "=~", (False, True): "!~"}
    return f"{one.name}{operator[one.is_equal, one.is_regex]}{one.value}"
