"""``jobmeter retention``: shows or sets the retention of a project's samples."""

import sys

import click
import msgspec

from jobmeter.cli import local
from jobmeter.cli.options import define_verb
from jobmeter.cli.output import build_console, print_json
from jobmeter.errors import ConfigurationError

_DAYS = click.IntRange(1, 36_500)
_FIELDS = (("raw_days", "raw samples"), ("minute_days", "minute values"), ("hour_days", "hour values"))


@define_verb("jobmeter retention", "jobmeter retention --project vision --raw-days 30")
@click.option("--raw-days", type=_DAYS, metavar="N", help="Store raw samples for N days.")
@click.option("--minute-days", type=_DAYS, metavar="N", help="Store minute values for N days.")
@click.option("--hour-days", type=_DAYS, metavar="N", help="Store hour values for N days.")
@click.option("--default", "back", is_flag=True, help="Reset to the server's retention.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--json", "as_json", is_flag=True, help="The days as an object.")
@local.make_connection_options("The project (default: default).")
def command(back: bool, yes: bool, as_json: bool, connection: local.LocalConnection, **days: int | None) -> None:
    """Show or set the number of days for which the samples of a project are stored.

    A new retention is valid for samples that arrive from now on. Job summaries are stored for ever.
    """
    changes = {name: number for name, number in days.items() if number is not None}
    if back and changes:
        raise click.UsageError("give --default or a number of days, not both")
    api = connection.open()
    project = connection.project or "default"
    current = api.read_retention(project)
    if not changes and current == api.read_default_retention(connection.project):
        local.check_project(api, project)
    if changes:
        new = msgspec.structs.replace(current, **changes)
        shorter = [text for name, text in _FIELDS if getattr(new, name) < getattr(current, name)]
        if shorter:
            confirm(f"shorten the retention of {' and '.join(shorter)} of project {project}?", yes=yes)
        current = api.set_retention(project, new)
    elif back:
        confirm(f"reset project {project} to the server's retention?", yes=yes)
        current = api.set_retention(project, None)
    if as_json:
        print_json({"project": project, **msgspec.structs.asdict(current)})
        return
    build_console().print(f"retention of project {project}", markup=False)
    for name, text in _FIELDS:
        build_console().print(f"  {text:<14}{getattr(current, name):>6} days", markup=False)


def confirm(question: str, *, yes: bool) -> None:
    """Return if the user confirms on the terminal, or confirmed with ``--yes``.

    Raises click.Abort for a no, ConfigurationError without a terminal.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise ConfigurationError(f"{question} There is no terminal to confirm on: add --yes")
    click.confirm(question, abort=True, err=True)
