"""``jobmeter delete``: delete jobs and their data."""

from collections.abc import Sequence

import click

from jobmeter.cli import completion, local
from jobmeter.cli.options import define_verb
from jobmeter.cli.output import build_console, format_count, print_json
from jobmeter.cli.retention import confirm


@define_verb("jobmeter delete train-1", "jobmeter delete train-1 train-2 --yes")
@click.argument("jobs", metavar="JOB...", nargs=-1, required=True, shell_complete=completion.complete_jobs)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--json", "as_json", is_flag=True, help="The deleted jobs as an array of objects.")
@local.connection_options
def command(jobs: Sequence[str], yes: bool, as_json: bool, connection: local.LocalConnection) -> None:
    """Delete each JOB with its replicas, samples, log lines and events. This cannot be undone."""
    found = connection.find_each(jobs)
    named = ", ".join(one.id for one in found)
    confirm(f"delete {format_count(len(found), 'job')} and all data: {named}?", yes=yes)
    for one in found:
        one.api.delete(one.id, one.project)
        if not as_json:
            build_console().print(f"deleted {one.id}", markup=False)
    if as_json:
        print_json([{"id": one.id, "project": one.project} for one in found])
