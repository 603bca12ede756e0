"""``jobmeter retention``: how long a project's samples are kept."""

import sys

import click
import msgspec

from jobmeter.cli import local
from jobmeter.cli.output import console, print_json
from jobmeter.errors import ConfigurationError

_DAYS = click.IntRange(1, 36_500)
_KEPT = (("raw_days", "readings"), ("minute_days", "minutes"), ("hour_days", "hours"))


@click.command(short_help="Show or set how long samples are kept.")
@click.option("--raw-days", type=_DAYS, metavar="N", help="Keep every reading for N days from now on.")
@click.option("--minute-days", type=_DAYS, metavar="N", help="Keep the values of each minute for N days.")
@click.option("--hour-days", type=_DAYS, metavar="N", help="Keep the values of each hour for N days.")
@click.option("--default", "back", is_flag=True, help="Go back to the retention of the server.")
@click.option("--yes", is_flag=True, help="Do not ask before something is kept for a shorter time.")
@click.option("--json", "as_json", is_flag=True, help="The days as an object.")
@local.connection_options
def command(back: bool, yes: bool, as_json: bool, connection: local.Connection, **days: int | None) -> None:
    """Show for how many days the samples of --project (by default: default) are kept, or set it.

    Samples that are stored already keep the time that was set when they came. What a job used is kept for ever in its
    summary.
    """
    wanted = {name: number for name, number in days.items() if number is not None}
    if back and wanted:
        raise click.UsageError("--default excludes a number of days")
    api = connection.open()
    project = connection.project or "default"
    kept = api.retention(project)
    if wanted:
        new = msgspec.structs.replace(kept, **wanted)
        shorter = [text for name, text in _KEPT if getattr(new, name) < getattr(kept, name)]
        if shorter:
            confirm(f"keep {' and '.join(shorter)} of project {project} for a shorter time?", yes=yes)
        kept = api.set_retention(project, new)
    elif back:
        confirm(f"go back to the server's own retention for project {project}?", yes=yes)
        kept = api.set_retention(project, None)
    if as_json:
        print_json({"project": project, **msgspec.structs.asdict(kept)})
        return
    console().print(f"project {project} keeps", markup=False)
    for name, text in _KEPT:
        console().print(f"  {text:<9}{getattr(kept, name):>6} days", markup=False)


def confirm(question: str, *, yes: bool) -> None:
    """Go on if whoever sits at the terminal agrees, or agreed with ``--yes``.

    Raises click.Abort for a no, ConfigurationError where nobody can be asked.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise ConfigurationError(f"{question} Nobody can be asked here: add --yes")
    click.confirm(question, abort=True, err=True)
