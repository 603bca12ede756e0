"""``jobmeter tag``: adds tags to a job, removes and lists them."""

import getpass
from collections.abc import Sequence

import click

from jobmeter.cli import completion, local
from jobmeter.cli.options import GroupedCommand, check_option, define_verb
from jobmeter.cli.output import build_console, format_time, print_json, show_listing
from jobmeter.model.annotation import TagChange, check_tag


class TagCommand(GroupedCommand):
    """Command that reads ``-NAME`` as ``--remove NAME``, unless ``-NAME`` is an option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments."""
        options = {flag for parameter in self.get_params(ctx) for flag in parameter.opts}
        words = [word for arg in args for word in (_removal(arg) if arg not in options else (arg,))]
        return super().parse_args(ctx, words)


def _removal(arg: str) -> tuple[str, ...]:
    is_removal = len(arg) > 1 and arg[0] == "-" and arg[1] != "-"
    return ("--remove", arg[1:]) if is_removal else (arg,)


@define_verb("jobmeter tag train-1 +baseline -draft", "jobmeter tag train-1", cls=TagCommand)
@click.argument("job", shell_complete=completion.complete_jobs)
@click.argument("tags", nargs=-1, metavar="[+TAG|-TAG]...")
@click.option("--remove", "removed", multiple=True, metavar="TAG", help="Remove this tag; -TAG is short for it.")
@click.option("--author", metavar="NAME", help="Who adds the tags (default: the user of this machine).")
@click.option("--json", "as_json", is_flag=True, help="The tags as an array of objects.")
@local.connection_options
def command(
    job: str,
    tags: Sequence[str],
    removed: Sequence[str],
    author: str | None,
    as_json: bool,
    connection: local.LocalConnection,
) -> None:
    """Add the tags +TAG to JOB and remove the tags -TAG; without any, list the tags of JOB.

    A tag is a short label: people set it, and `jobmeter jobs --tag` and the page find jobs by it.
    """
    added = [check_option(check_tag, tag.removeprefix("+"), "+TAG") for tag in tags]
    gone = [check_option(check_tag, tag, "-TAG") for tag in removed]
    named = connection.find(job)
    if added or gone:
        change = TagChange(add=added, remove=gone, author=getpass.getuser() if author is None else author)
        found = named.api.change_tags(named.id, change, named.project).tags
    else:
        found = named.api.read_annotations(named.id, named.project).tags
    if as_json:
        print_json(found)
        return
    rows = [(one.tag, one.author or one.by, format_time(one.created)) for one in found]
    show_listing(build_console(), ("tag", "author", "added"), rows, empty=f"{named.id} has no tags")
