"""``jobmeter delete``: forget jobs and everything measured for them."""

from collections.abc import Sequence

import click

from jobmeter.cli import completion, local
from jobmeter.cli.output import console, counted, print_json
from jobmeter.cli.retention import confirm


@click.command(short_help="Forget jobs and what was measured.")
@click.argument("jobs", metavar="JOB...", nargs=-1, required=True, shell_complete=completion.jobs)
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--json", "as_json", is_flag=True, help="The forgotten jobs as an array of objects.")
@local.connection_options
def command(jobs: Sequence[str], yes: bool, as_json: bool, connection: local.Connection) -> None:
    """Forget each JOB with its replicas, samples, log lines and events. It cannot be brought back."""
    found = connection.find_each(jobs)
    named = ", ".join(one.id for one in found)
    confirm(f"forget {counted(len(found), 'job')} and everything measured: {named}?", yes=yes)
    for one in found:
        one.api.delete(one.id, one.project)
        if not as_json:
            console().print(f"forgot {one.id}", markup=False)
    if as_json:
        print_json([{"id": one.id, "project": one.project} for one in found])
