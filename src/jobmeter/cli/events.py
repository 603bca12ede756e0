"""``jobmeter events``: what happened to a job, and when."""

import sys

import click
import msgspec

from jobmeter.cli import completion, local
from jobmeter.cli.listing import show_listing
from jobmeter.cli.output import console, counted, moment, print_json
from jobmeter.client.api import EventSearch
from jobmeter.model.event import Event, Level
from jobmeter.model.time import parse_duration

SHOWN = 100
"""Events in the table when nobody says how many."""


@click.command(short_help="Show what happened to a job.")
@click.argument("job", shell_complete=completion.jobs)
@click.option(
    "--level",
    type=click.Choice([str(level) for level in Level], case_sensitive=False),
    help="Only events of this level or above.",
)
@click.option("--since", metavar="LENGTH", help="At most this long ago, such as 30m or 7d.")
@click.option(
    "--limit", type=click.IntRange(1), metavar="N", help=f"The newest N; {SHOWN} by default, all with --json."
)
@click.option("--json", "as_json", is_flag=True, help="An array of objects.")
@local.connection_options
def command(
    job: str, level: str | None, since: str | None, limit: int | None, as_json: bool, connection: local.Connection
) -> None:
    """Show what happened to JOB and its replicas, the newest last."""
    if since:
        parse_duration(since, "--since")
    named = connection.find(job)
    search = EventSearch(level=level, since=since, project=named.project)
    events, total = named.api.newest_events(named.id, search, limit or (sys.maxsize if as_json else SHOWN))
    events.reverse()
    if as_json:
        print_json([msgspec.structs.asdict(event) for event in events])
        return
    if not events:
        console().print("no event matches" if level or since else "nothing was told of this job yet", markup=False)
        return
    columns = ("time", "replica", "source", "level", "reason", "message")
    rows = [_row(event) for event in events]
    show_listing(console(), columns, rows, spare=("source", "level", "replica"), folded="message")
    if total > len(events):
        console().print(f"the newest {len(events)} of {counted(total, 'event')}: --limit {total} shows all")


def _row(event: Event) -> tuple[str, ...]:
    replica = f"{event.replica} (attempt {event.attempt})" if event.attempt else event.replica
    return moment(event.time), replica, str(event.source), str(event.level), event.reason, event.message
