"""``jobmeter``: finds the verb, loads only its module, and shows an error as one line."""

import sys
from collections.abc import Mapping, Sequence
from importlib import import_module

import click

from jobmeter import __version__
from jobmeter.cli.terminal import guard
from jobmeter.errors import JobmeterError
from jobmeter.model.nearest import did_you_mean

GROUPS: Mapping[str, Mapping[str, str]] = {
    "Measure": {
        "run": "Run a command as a job and measure it.",
        "agent": "Measure this node and the jobs on it.",
        "scheduler": "Send a cluster's jobs from its scheduler to a server.",
        "import": "Import samples and job records from files.",
        "doctor": "Check what is measured on this machine.",
    },
    "Look": {
        "jobs": "List jobs.",
        "show": "Show a job: its replicas, devices and summary.",
        "metrics": "Print metrics of a job.",
        "top": "Watch the usage of jobs, or of one job, live.",
        "logs": "Print log lines of a job or a node.",
        "traces": "Show the slowest traces of a job.",
        "events": "List events of a job, of a node, or of everything.",
        "nodes": "List nodes.",
        "alerts": "List alerts that are pending or fire.",
        "open": "Open the page in a browser, signed in.",
        "catalog": "List all metrics.",
    },
    "Diagnose": {
        "diagnose": "Find out why a job is slow or failed.",
        "compare": "Compare jobs side by side.",
    },
    "Operate": {
        "serve": "Start the server.",
        "status": "Show server status.",
        "usage": "Show API calls and their cost.",
        "silence": "Silence alerts, list and end silences.",
        "retention": "Show or set the retention of samples.",
        "delete": "Delete jobs and their data.",
        "backup": "Back up a running server.",
        "restore": "Restore a backup into an empty data folder.",
    },
    "Share": {
        "key": "Create, list and revoke keys.",
        "share": "Create a share token for a job.",
        "shippers": "Ship log lines to other systems.",
    },
}
"""Verbs by heading, with their short help."""
VERBS: Mapping[str, str] = {verb: text for verbs in GROUPS.values() for verb, text in verbs.items()}
"""Short help of each verb. Verb ``x`` is ``command`` in ``jobmeter.cli.x_`` or ``jobmeter.cli.x``."""

_MODULES = {"import": "import_"}


class _Verbs(click.Group):
    """Group of verbs. Loads the module of the called verb only, so that imports of others cost nothing."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """List the verbs, in the order of ``VERBS``."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Load the verb of that name; None for an unknown one."""
        if cmd_name not in VERBS:
            return None
        command: click.Command = import_module(f"jobmeter.cli.{_MODULES.get(cmd_name, cmd_name)}").command
        command.short_help = VERBS[cmd_name]
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the verb; the error for an unknown one suggests similar verbs."""
        if args and not args[0].startswith("-") and args[0] not in VERBS:
            near = did_you_mean(args[0], VERBS) or "; see `jobmeter --help`"
            raise click.UsageError(f"No such command {args[0]!r}{near}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the verbs by heading, without loading them."""
        width = max(map(len, VERBS))
        for heading, verbs in GROUPS.items():
            with formatter.section(heading):
                formatter.write_dl([(verb.ljust(width), text) for verb, text in verbs.items()])


@click.group(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="jobmeter")
def cli() -> None:
    """Measure jobs, and look at the measurements."""


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
