"""``jobmeter backup``: copy a running server's data into a folder."""

from pathlib import Path

import click
import msgspec

from jobmeter.cli import local
from jobmeter.cli.options import FOLDER, build_key_option, ca_file_option, data_option, define_verb
from jobmeter.client.transport import API

HOURS_SECONDS = 6 * 3600.0
"""Longest duration of a copy in seconds."""


@define_verb("jobmeter backup /backup/jobmeter", "jobmeter backup /backup/jobmeter --server https://meter.example")
@click.argument("directory", type=FOLDER)
@data_option
@build_key_option("The token of an administrator's key (JOBMETER_KEY).")
@click.option("--server", metavar="URL", help="The server to copy (JOBMETER_SERVER).")
@ca_file_option
def command(directory: Path, data: Path | None, key: str | None, server: str | None, ca_file: str | None) -> None:
    """Copy a running server's data into DIRECTORY.

    The server itself writes the folder, on its own machine; it must be empty or must not exist. The copy is consistent
    while samples arrive. It contains the secret key: protect it like the data folder.
    """
    transport = local.connect(server, key, data, start=False, ca_file=ca_file).with_timeout(HOURS_SECONDS)
    body = msgspec.json.encode({"directory": str(directory.absolute())})
    try:
        transport.request("POST", f"{API}/backup", body)
    finally:
        transport.close()
    click.echo(f"copied to {directory.absolute()}")
