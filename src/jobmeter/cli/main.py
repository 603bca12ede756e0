"""``jobmeter``: finds the verb, loads its file alone, and shows a failure as one line."""

import sys
from collections.abc import Sequence
from importlib import import_module

import click

from jobmeter import __version__
from jobmeter.cli.terminal import guard
from jobmeter.errors import JobmeterError
from jobmeter.model.nearest import did_you_mean

VERBS = {
    "run": "Run a command as a job and measure it.",
    "serve": "Start the server.",
    "agent": "Measure this node and the jobs on it.",
    "scheduler": "Send a cluster's jobs from its scheduler to a server.",
    "import": "Import samples and job records from files.",
    "jobs": "List jobs.",
    "show": "Show one job: its replicas, devices, summary.",
    "metrics": "Print a job's metrics.",
    "logs": "Print a job's log lines.",
    "traces": "Show the slowest traces of a job.",
    "events": "Show what happened to a job, or everywhere.",
    "compare": "Put jobs beside each other.",
    "diagnose": "Tell why a job is slow, or why it died.",
    "top": "Watch jobs, or one job, live.",
    "open": "Open the page in a browser, signed in.",
    "nodes": "List nodes.",
    "status": "Show how the server does.",
    "doctor": "Show what is measured on this machine, what is not, and why.",
    "retention": "Show or set how long samples are stored.",
    "shippers": "Ship log lines to other systems.",
    "share": "Let others read one job.",
    "delete": "Forget jobs and what was measured.",
    "key": "Create, list and revoke keys.",
    "usage": "Show how often the API was called, and what it cost.",
    "catalog": "List every metric.",
    "backup": "Copy a running server's data into a folder.",
    "restore": "Bring a backup back into an empty data folder.",
}
"""Every verb with its one line of help; verb ``x`` is ``command`` of ``jobmeter.cli.x_`` or ``jobmeter.cli.x``."""

_MODULES = {"import": "import_"}


class _Verbs(click.Group):
    """Loads a verb's module when it is called: a verb does not pay for another one's imports."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """The verbs, in the order of ``VERBS``."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """The verb of that name, None for an unknown one."""
        if cmd_name not in VERBS:
            return None
        command: click.Command = import_module(f"jobmeter.cli.{_MODULES.get(cmd_name, cmd_name)}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """See ``click.Group``; the error for an unknown verb suggests similar ones."""
        if args and not args[0].startswith("-") and args[0] not in VERBS:
            near = did_you_mean(args[0], VERBS) or "; see `jobmeter --help`"
            raise click.UsageError(f"No such command {args[0]!r}{near}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """The list of verbs, without loading them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))


@click.group(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="jobmeter")
def cli() -> None:
    """Jobmeter measures jobs and serves what it measured."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and leave with its exit status: 1 for a failure, 2 for wrong usage, 130 when interrupted."""
    guard()
    try:
        sys.exit(cli.main(args=arguments, prog_name="jobmeter", standalone_mode=False))
    except click.exceptions.Abort:
        click.echo("Aborted!", err=True)
        sys.exit(130)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except JobmeterError as error:
        click.echo(f"jobmeter: {error.message}", err=True)
        sys.exit(1)
