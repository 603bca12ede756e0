"""``jobmeter share``: let somebody without a key read one job."""

import click

from jobmeter.cli import completion, local
from jobmeter.cli.output import moment, print_json
from jobmeter.errors import InvalidRequestError
from jobmeter.model.time import DAY, SECOND, parse_duration

_LONGEST_MS = 365 * DAY


@click.command(short_help="Let others read one job.")
@click.argument("job", shell_complete=completion.jobs)
@click.option("--expires", default="7d", show_default=True, metavar="LENGTH", help="How long it is valid, up to 365d.")
@click.option("--json", "as_json", is_flag=True, help="An object: job, project, token, expires.")
@local.connection_options
def command(job: str, expires: str, as_json: bool, connection: local.Connection) -> None:
    """Print a token whose holder may read what JOB used until it ends, and nothing else.

    PAI-DLC's GetJobMetrics takes it as Token, without any key. Nobody can take it back before it ends.
    """
    length_ms = parse_duration(expires, "--expires")
    if not SECOND <= length_ms <= _LONGEST_MS:
        raise InvalidRequestError(f"--expires {expires!r} is not from 1s to 365d", "--expires")
    named = connection.find(job)
    made = named.api.share(named.id, length_ms // SECOND, named.project)
    if as_json:
        print_json({"job": named.id, "project": named.project, "token": made.token, "expires": made.expires})
        return
    click.echo(made.token)
    click.echo(f"opens the metrics of {named.id} until {moment(made.expires)} UTC", err=True)
