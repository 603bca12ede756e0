"""``jobmeter open``: opens the page in a browser, signed in by a one-time link."""

import os
import sys
import webbrowser

import click

from jobmeter.cli import completion, local
from jobmeter.cli.options import examples


@click.command(epilog=examples("jobmeter open", "jobmeter open last --print"))
@click.argument("job", required=False, shell_complete=completion.jobs)
@click.option("--print", "only_print", is_flag=True, help="Print the link without opening it.")
@local.connection_options
def command(job: str | None, only_print: bool, connection: local.LocalConnection) -> None:
    """Open the page, or the page of JOB, signed in with your key.

    The link works once, within fifteen minutes. Without a browser it is printed: open it in a browser that can reach
    the server.
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
    """True if a window can open: a text browser would take over the terminal."""
    return sys.platform == "darwin" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
