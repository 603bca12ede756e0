"""``jobmeter share``: lets somebody without a key read one job."""

import click

from jobmeter.cli import completion, local
from jobmeter.cli.options import define_verb
from jobmeter.cli.output import format_time, print_json
from jobmeter.errors import InvalidRequestError
from jobmeter.model.time import DAY, SECOND, parse_duration

_LONGEST_MS = 365 * DAY


@define_verb("jobmeter share last", "jobmeter share train-1 --expires 30d")
@click.argument("job", shell_complete=completion.complete_jobs)
@click.option(
    "--expires", default="7d", show_default=True, metavar="DURATION", help="Lifetime of the token, up to 365d."
)
@click.option("--json", "as_json", is_flag=True, help="An object: job, project, token, expires.")
@local.connection_options
def command(job: str, expires: str, as_json: bool, connection: local.LocalConnection) -> None:
    """Print a token with which anybody can read the metrics of JOB, and nothing else, until it expires.

    PAI-DLC's GetJobMetrics accepts it as Token, without any key. It cannot be revoked before it expires.
    """
    length_ms = parse_duration(expires, "--expires")
    if not SECOND <= length_ms <= _LONGEST_MS:
        raise InvalidRequestError(f"--expires {expires!r} must be from 1s to 365d", "--expires")
    named = connection.find(job)
    made = named.api.share(named.id, length_ms // SECOND, named.project)
    if as_json:
        print_json({"job": named.id, "project": named.project, "token": made.token, "expires": made.expires})
        return
    click.echo(made.token)
    click.echo(f"gives access to the metrics of {named.id} until {format_time(made.expires)} UTC", err=True)
