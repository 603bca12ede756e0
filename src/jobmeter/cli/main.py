"""``jobmeter``: finds the verb, loads only its module, and shows an error as one line."""

import re
import sys
from collections.abc import Sequence

import click

from jobmeter import __version__
from jobmeter.cli.registry import GROUPS, VERBS, load_plugin_verbs, load_verb
from jobmeter.cli.terminal import guard
from jobmeter.errors import JobmeterError
from jobmeter.model.nearest import MOST, did_you_mean


class _Verbs(click.Group):
    """Group of verbs. Loads the module of the called verb only, so that imports of others cost nothing."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """List the verbs, in the order of ``VERBS``; verbs of plug-ins follow."""
        return [*VERBS, *(one.name for one in load_plugin_verbs())]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Load the verb of that name; None for an unknown one."""
        return load_verb(cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the verb; the error for an unknown one suggests similar verbs."""
        if args and not args[0].startswith("-") and load_verb(args[0]) is None:
            raise click.UsageError(f"No such command {args[0]!r}{_suggest_verbs(args[0])}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the verbs by heading, loading only plug-ins."""
        width = max(map(len, VERBS))
        headings = {heading: list(verbs.items()) for heading, verbs in GROUPS.items()}
        headings["Plug-ins"] = [
            (one.name, f"Not loaded: {one.error}" if one.error else one.part.get_short_help_str())
            for one in load_plugin_verbs()
        ]
        for heading, verbs in headings.items():
            if verbs:
                with formatter.section(heading):
                    formatter.write_dl([(name.ljust(width), text) for name, text in verbs])


def _suggest_verbs(word: str) -> str:
    """Suggest verbs with a similar name, else verbs whose help has the word; without either, name every verb."""
    described = [name for name, text in VERBS.items() if word.lower() in re.findall("[a-z]+", text.lower())][:MOST]
    if near := did_you_mean(word, VERBS):
        return near
    return f"; did you mean {', '.join(described)}?" if described else f"; choose from {', '.join(VERBS)}"


@click.group(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="jobmeter")
def cli() -> None:
    """Measure jobs, and read and explain the measurements."""


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
