"""``jobmeter note``: writes a note about a job, lists and deletes notes."""

import getpass

import click

from jobmeter.cli import completion, local
from jobmeter.cli.options import check_option, define_verb
from jobmeter.cli.output import build_console, format_time, print_json, show_listing
from jobmeter.model.annotation import NewNote
from jobmeter.model.time import parse_time


@define_verb(
    "jobmeter note train-1 'Learning rate lowered.' --at 2026-11-20T15:00:00Z",
    "jobmeter note train-1 --delete note-0123456789abcdef",
)
@click.argument("job", shell_complete=completion.complete_jobs)
@click.argument("text", required=False)
@click.option("--at", metavar="TIME", help="The moment that the note is about: ISO 8601 or epoch milliseconds.")
@click.option("--author", metavar="NAME", help="Author of the note (default: the user of this machine).")
@click.option("--delete", "deleted", metavar="ID", help="Delete the note with this id.")
@click.option("--json", "as_json", is_flag=True, help="The written note, or all notes as an array of objects.")
@local.connection_options
def command(
    job: str,
    text: str | None,
    at: str | None,
    author: str | None,
    deleted: str | None,
    as_json: bool,
    connection: local.LocalConnection,
) -> None:
    """Write the note TEXT about JOB; without TEXT, list the notes of JOB.

    With --at the note is about a moment of the job: the page marks it on the time axis of every chart.
    """
    if deleted and (text or at):
        raise click.UsageError("--delete removes a note: give neither TEXT nor --at")
    if at and text is None:
        raise click.UsageError("--at is the moment of a note: give TEXT too")
    time = None if at is None else check_option(parse_time, at, "--at")
    named = connection.find(job)
    if deleted:
        named.api.delete_note(named.id, deleted, named.project)
        if as_json:
            print_json({"id": deleted})
        else:
            build_console().print(f"deleted {deleted} of {named.id}", markup=False)
    elif text is not None:
        note = NewNote(text=text, time=time, author=getpass.getuser() if author is None else author)
        made = named.api.write_note(named.id, note, named.project)
        if as_json:
            print_json(made)
        else:
            build_console().print(f"wrote {made.id} about {named.id}", markup=False)
    else:
        _list(named, as_json=as_json)


def _list(named: local.NamedJob, *, as_json: bool) -> None:
    found = named.api.read_annotations(named.id, named.project).notes
    if as_json:
        print_json(found)
        return
    rows = [(one.id, format_time(one.time), one.author or one.by, format_time(one.created), one.text) for one in found]
    columns, empty = ("id", "about", "author", "written", "note"), f"{named.id} has no notes"
    show_listing(build_console(), columns, rows, spare=("written",), folded="note", empty=empty)
