"""``jobmeter open``: opens the page in a browser, signed in by a one-time link."""

import os
import sys
import webbrowser

import click

from jobmeter.cli import completion, local
from jobmeter.cli.options import define_verb
from jobmeter.client.api import Api


@define_verb("jobmeter open", "jobmeter open last --print")
@click.argument("job", required=False, shell_complete=completion.complete_jobs)
@click.option("--print", "only_print", is_flag=True, help="Print the link without opening it.")
@local.connection_options
def command(job: str | None, only_print: bool, connection: local.LocalConnection) -> None:
    """Open the page, or the page of JOB, signed in with your key.

    The link works once, for fifteen minutes. On a machine without a browser it is printed: open it in any browser that
    can reach the server.
    """
    if job:
        found = connection.find(job)
        show_page(found.api, found.id, found.project or "", only_print=only_print)
    else:
        show_page(connection.open(), only_print=only_print)


def show_page(api: Api, job: str = "", project: str = "", *, only_print: bool) -> None:
    """Open the page, or the page of a job, signed in; print the link if asked to, or without a browser."""
    link = api.create_page_link(job, project)
    if only_print or not _has_browser() or not webbrowser.open(link):
        click.echo(link)
    else:
        click.echo(f"opened {api.transport.server} in the browser", err=True)


def _has_browser() -> bool:
    """True if a window can open: a text browser would take over the terminal."""
    return sys.platform == "darwin" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
