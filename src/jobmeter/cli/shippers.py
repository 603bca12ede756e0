"""``jobmeter shippers``: ships log lines of resource groups to sinks, and shows the progress."""

from collections.abc import Sequence

import click

from jobmeter.cli import local
from jobmeter.cli.options import define_group
from jobmeter.cli.output import build_console, format_count, format_duration, print_json, show_listing
from jobmeter.client.api import Api
from jobmeter.errors import ConflictError, NotFoundError
from jobmeter.model.answers import ShipperBody

_json = click.option("--json", "as_json", is_flag=True, help="The shipper as an object.")


@define_group("jobmeter shippers create vision --to logs/training", "jobmeter shippers list")
def command() -> None:
    """Ship the log lines of resource groups to the sinks in the server's settings (JOBMETER_SINKS)."""


@command.define("jobmeter shippers list --json", name="list")
@click.option("--json", "as_json", is_flag=True, help="An array of objects.")
@local.listing_options
def list_(as_json: bool, connection: local.LocalConnection) -> None:
    """List the shippers with their state and lag."""
    found = connection.open().list_shippers(connection.project)
    if as_json:
        print_json(found)
    else:
        _table(found)


@command.define("jobmeter shippers create vision --to logs/training")
@click.argument("group")
@click.option("--to", "sink", required=True, metavar="PROJECT/LOGSTORE", help="The sink, by its name in the settings.")
@_json
@local.listing_options
def create(group: str, sink: str, as_json: bool, connection: local.LocalConnection) -> None:
    """Ship the log lines of the resource group GROUP from now on; with --project only lines of that project."""
    project, slash, logstore = sink.partition("/")
    if not slash or not project or not logstore:
        raise click.UsageError(f"--to {sink!r} is not PROJECT/LOGSTORE")
    made = connection.open().create_shipper(group, (project, logstore), connection.project)
    if as_json:
        print_json(made)
        return
    build_console().print(f"{made.id} ships the logs of {made.resource_group} to {project}/{logstore}", markup=False)


@command.define("jobmeter shippers show vision")
@click.argument("shipper")
@_json
@local.listing_options
def show(shipper: str, as_json: bool, connection: local.LocalConnection) -> None:
    """Show SHIPPER, an id or a resource group: shipped and waiting lines, and its lag."""
    found = _find(connection.open(), shipper, connection.project)
    if as_json:
        print_json(found)
        return
    for name, value in _facts(found):
        build_console().print(f"{name:<15} {value}", markup=False)


@command.define("jobmeter shippers delete vision")
@click.argument("shipper")
@local.listing_options
def delete(shipper: str, connection: local.LocalConnection) -> None:
    """Delete SHIPPER, an id or a resource group. Waiting lines are not shipped; stored lines stay."""
    api = connection.open()
    gone = api.delete_shipper(_find(api, shipper, connection.project).id)
    build_console().print(f"deleted {gone.id}; {format_count(gone.waiting, 'waiting line')} not shipped", markup=False)


def _find(api: Api, text: str, project: str | None) -> ShipperBody:
    every = api.list_shippers(project)
    found = [one for one in every if one.id == text] or [one for one in every if one.resource_group == text]
    if not found:
        raise NotFoundError(f"there is no shipper {text}: `jobmeter shippers list` lists all", "shipper", text)
    if len(found) > 1:
        raise ConflictError(
            f"{text} has shippers in several projects: use one of the ids {', '.join(one.id for one in found)}"
        )
    return found[0]


def _facts(one: ShipperBody) -> list[tuple[str, str]]:
    facts = [
        ("shipper", one.id),
        ("resource group", one.resource_group),
        ("project", one.project or "all"),
        ("sink", f"{one.sink_project}/{one.logstore}"),
        ("state", one.state),
        ("waiting", format_count(one.waiting, "line")),
        ("lag", _lag(one)),
        ("shipped", format_count(one.shipped, "line")),
        ("dropped", f"{format_count(one.dropped, 'line')}, expired or beyond the limit"),
        ("rejected", f"{format_count(one.rejected, 'line')}, refused by the sink"),
        ("failures", str(one.failures)),
    ]
    return facts + ([("error", one.error)] if one.error else [])


def _lag(one: ShipperBody) -> str:
    return format_duration(int(one.lag_seconds * 1000)) if one.lag_seconds else "-"


def _table(found: Sequence[ShipperBody]) -> None:
    columns = ("id", "resource group", "project", "sink", "state", "waiting", "lag", "shipped", "dropped", "error")
    rows = [
        (
            one.id,
            one.resource_group,
            one.project or "all",
            f"{one.sink_project}/{one.logstore}",
            one.state,
            str(one.waiting),
            _lag(one),
            str(one.shipped),
            str(one.dropped + one.rejected),
            one.error or "-",
        )
        for one in found
    ]
    spare, numbers = ("error", "project", "dropped", "shipped"), ("waiting", "shipped", "dropped")
    empty = "no shippers yet: jobmeter shippers create GROUP --to PROJECT/LOGSTORE"
    show_listing(build_console(), columns, rows, right=numbers, spare=spare, empty=empty)
