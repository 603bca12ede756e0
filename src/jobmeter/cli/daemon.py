"""Options and checks of the programs that send data until they are stopped: the agent and a scheduler's watcher."""

import signal
from collections.abc import Callable
from threading import Event
from types import FrameType

import click

from jobmeter.errors import InvalidRequestError

ca_file_option = click.option(
    "--ca-file",
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    help="Certificates, in PEM, to verify the server.",
)


def check_server(server: str) -> None:
    """Raise a usage error unless ``server`` is an address."""
    if not server.startswith(("http://", "https://")):
        raise click.UsageError(f"--server {server!r} is not an address such as https://host:8400")


def checked(check: Callable[[str, str], str], value: str, option: str) -> str:
    """The value, if ``check`` accepts it; else raises a usage error."""
    try:
        return check(value, option)
    except InvalidRequestError as error:
        raise click.UsageError(error.message) from error


def stopped() -> Event:
    """An event that SIGTERM and SIGINT set."""
    stop = Event()

    def stopping(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stopping)
    return stop
