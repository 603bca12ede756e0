"""``jobmeter backup``: copy a running server's data into a folder."""

from pathlib import Path

import click
import msgspec

from jobmeter.cli import local
from jobmeter.cli.options import FOLDER, define_verb
from jobmeter.client.transport import API

HOURS_SECONDS = 6 * 3600.0
"""Longest duration of a copy or a move, in seconds."""


@define_verb("jobmeter backup /backup/jobmeter", "jobmeter backup /backup/jobmeter --server https://meter.example")
@click.argument("directory", type=FOLDER)
@local.server_options
def command(directory: Path, connection: local.LocalConnection) -> None:
    """Copy a running server's data into DIRECTORY.

    The server itself writes the folder, on its own machine; it must be empty or must not exist. The copy is consistent
    while samples arrive. It contains the secret key: protect it like the data folder. Needs an administrator's key.
    """
    transport = connection.connect(start=False).with_timeout(HOURS_SECONDS)
    body = msgspec.json.encode({"directory": str(directory.absolute())})
    try:
        transport.request("POST", f"{API}/backup", body)
    finally:
        transport.close()
    click.echo(f"copied to {directory.absolute()}")
