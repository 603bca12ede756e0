"""``jobmeter retention``: how long a project's samples are stored."""

import sys

import click
import msgspec

from jobmeter.cli import local
from jobmeter.cli.output import console, print_json
from jobmeter.errors import ConfigurationError

_DAYS = click.IntRange(1, 36_500)
_FIELDS = (("raw_days", "readings"), ("minute_days", "minutes"), ("hour_days", "hours"))


@click.command(short_help="Show or set how long samples are stored.")
@click.option("--raw-days", type=_DAYS, metavar="N", help="Store every reading for N days from now on.")
@click.option("--minute-days", type=_DAYS, metavar="N", help="Store the values of each minute for N days.")
@click.option("--hour-days", type=_DAYS, metavar="N", help="Store the values of each hour for N days.")
@click.option("--default", "back", is_flag=True, help="Go back to the retention of the server.")
@click.option("--yes", is_flag=True, help="Do not ask before shortening a retention.")
@click.option("--json", "as_json", is_flag=True, help="The days as an object.")
@local.connection_options
def command(back: bool, yes: bool, as_json: bool, connection: local.Connection, **days: int | None) -> None:
    """Show for how many days the samples of --project (by default: default) are stored, or set it.

    Stored samples expire as set when they came. What a job used is stored for ever in its
    summary.
    """
    changes = {name: number for name, number in days.items() if number is not None}
    if back and changes:
        raise click.UsageError("--default excludes a number of days")
    api = connection.open()
    project = connection.project or "default"
    current = api.retention(project)
    if changes:
        new = msgspec.structs.replace(current, **changes)
        shorter = [text for name, text in _FIELDS if getattr(new, name) < getattr(current, name)]
        if shorter:
            confirm(f"keep {' and '.join(shorter)} of project {project} for a shorter time?", yes=yes)
        current = api.set_retention(project, new)
    elif back:
        confirm(f"go back to the server's own retention for project {project}?", yes=yes)
        current = api.set_retention(project, None)
    if as_json:
        print_json({"project": project, **msgspec.structs.asdict(current)})
        return
    console().print(f"project {project} keeps", markup=False)
    for name, text in _FIELDS:
        console().print(f"  {text:<9}{getattr(current, name):>6} days", markup=False)


def confirm(question: str, *, yes: bool) -> None:
    """Return if the user confirms on the terminal, or confirmed with ``--yes``.

    Raises click.Abort for a no, ConfigurationError where there is no terminal.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise ConfigurationError(f"{question} There is no terminal to confirm on: add --yes")
    click.confirm(question, abort=True, err=True)
