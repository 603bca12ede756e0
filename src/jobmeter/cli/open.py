"""``jobmeter open``: the page in a browser, signed in by a link that works once."""

import os
import sys
import webbrowser

import click

from jobmeter.cli import completion, local


@click.command(short_help="Open the page in a browser, signed in.")
@click.argument("job", required=False, shell_complete=completion.jobs)
@click.option("--print", "only_print", is_flag=True, help="Print the link and open nothing.")
@local.connection_options
def command(job: str | None, only_print: bool, connection: local.Connection) -> None:
    """Open the page, or that of JOB, signed in with your key.

    The link works once, within fifteen minutes. Where there is no browser it is printed: open it where there is one
    that reaches the server.
    """
    if job:
        found = connection.find(job)
        link, server = found.api.page_link(found.id, found.project or ""), found.api.transport.server
    else:
        api = connection.open()
        link, server = api.page_link(), api.transport.server
    if only_print or not _has_browser() or not webbrowser.open(link):
        click.echo(link)
    else:
        click.echo(f"opened {server} in the browser", err=True)


def _has_browser() -> bool:
    """True where a window can open: a terminal's browser would take the terminal."""
    return sys.platform == "darwin" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
