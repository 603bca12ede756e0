"""``jobmeter events``: lists the events of a job, of a node, or all events."""

import sys
from collections.abc import Sequence

import click
import msgspec

from jobmeter.cli import completion, local
from jobmeter.cli.options import build_choice, build_names_option, define_verb, make_since_option
from jobmeter.cli.output import build_console, format_count, format_time, print_json, show_listing
from jobmeter.client.searches import EventSearch
from jobmeter.model.event import Event, EventSource, EventType, Level

SHOWN = 100
"""Default number of events in the table."""


_GROUPS = {"Filters": ("nodes", "replicas", "types", "sources", "level", "contains", "since", "project")}


@define_verb("jobmeter events last", "jobmeter events --node node-1 --since 1d", groups=_GROUPS)
@click.argument("job", required=False, shell_complete=completion.complete_jobs)
@build_names_option(
    "--node", "nodes", complete=completion.nodes, help_text="Only events of this node; may be repeated."
)
@build_names_option("--replica", "replicas", complete=completion.replicas, help_text="Only events of this replica.")
@click.option("--type", "types", multiple=True, type=build_choice(EventType), help="Only events of this type.")
@click.option("--source", "sources", multiple=True, type=build_choice(EventSource), help="Only events of this source.")
@click.option("--level", type=build_choice(Level), help="Only events of this level or above.")
@click.option("--contains", default="", metavar="TEXT", help="Only events whose reason or message contains this text.")
@make_since_option("Only events at most this long ago, such as 30m or 7d.")
@click.option(
    "--limit", type=click.IntRange(1), metavar="N", help=f"Only the newest N (default: {SHOWN}; with --json all)."
)
@click.option("--json", "as_json", is_flag=True, help="An array of objects.")
@local.listing_options
def command(
    job: str | None,
    since: str | None,
    limit: int | None,
    as_json: bool,
    connection: local.LocalConnection,
    **options: object,
) -> None:
    """List the events of JOB and its replicas, newest last; without JOB, all events."""
    if job and options["nodes"]:
        raise click.UsageError("give JOB or --node, not both: the events of a job name their nodes")
    named = connection.find(job) if job else None
    project = named.project if named else connection.project
    search = EventSearch(since=since, project=project, **options)  # type: ignore[arg-type]
    api = named.api if named else connection.open()
    events, total = api.read_newest_events(
        named.id if named else None, search, limit or (sys.maxsize if as_json else SHOWN)
    )
    events.reverse()
    if not events:
        local.check_project(api, project)
    if as_json:
        print_json([_document(event) for event in events])
        return
    narrowed = bool(since) or any(options.values())
    _print(events, total, "no event matches" if narrowed else "no events yet")


def _print(events: Sequence[Event], total: int, empty: str) -> None:
    of_one = len({event.job for event in events}) == 1 and bool(events[0].job)
    columns = ("time", "replica" if of_one else "object", "type", "source", "level", "reason", "message")
    rows, spare = [_row(event, of_one=of_one) for event in events], ("source", "type", "level", columns[1])
    show_listing(build_console(), columns, rows, spare=spare, folded="message", empty=empty)
    if total > len(events):
        build_console().print(f"the newest {len(events)} of {format_count(total, 'event')}: --limit {total} shows all")


def _row(event: Event, *, of_one: bool) -> tuple[str, ...]:
    whom = event.replica if of_one else _name_subject(event)
    whom = f"{whom} (attempt {event.attempt})" if event.attempt else whom
    message = f"{event.message} By {event.actor}." if event.actor else event.message
    return format_time(event.time), whom, event.type, event.source, event.level, event.reason, message


def _name_subject(event: Event) -> str:
    about = f"{event.object.kind} {event.object.name}".strip()
    where = event.job or event.node
    return about if not where or where == event.object.name else f"{about} of {where}"


def _document(event: Event) -> dict[str, object]:
    whom = {"kind": event.object.kind, "name": event.object.name}
    return {"id": event.id, "type": event.type, "object": whom, **msgspec.structs.asdict(event)}
