"""``jobmeter key``: create, list and revoke keys, straight in the registry, with or without a running server.

``jobmeter key env`` hands the key of the data folder to a shell.
"""

import json
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jobmeter.errors import ConfigurationError
from jobmeter.model.time import SystemClock, iso
from jobmeter.settings import Settings, load

if TYPE_CHECKING:
    from jobmeter.access.keys import KeyInfo
    from jobmeter.registry.base import Registry

ROLES = ("admin", "writer", "reader")

_Command = Callable[..., Any]


def _where(function: _Command) -> _Command:
    """The flags that say which registry is meant."""
    data = click.option(
        "--data",
        type=click.Path(file_okay=False, path_type=Path),
        help="Data folder [env: JOBMETER_DATA].",
    )
    registry = click.option("--registry", metavar="URL", help="Registry's URL [env: JOBMETER_REGISTRY].")
    return data(registry(function))


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Create, list and revoke keys."""


@command.command()
@click.option("--name", required=True, help="What the key is called in listings and logs.")
@click.option("--role", required=True, type=click.Choice(ROLES), help="What the key may do at most.")
@click.option("--project", help="The only project it sees; without one it sees all and writes to 'default'.")
@click.option("--json", "as_json", is_flag=True, help="One line of JSON.")
@_where
def create(name: str, role: str, project: str | None, as_json: bool, data: Path | None, registry: str | None) -> None:
    """Make a key and show its secrets, this once."""
    with _open(data, registry) as (settings, opened):
        from jobmeter.access.keys import create_key
        from jobmeter.access.vault import Vault

        key = create_key(opened, Vault.load(settings, make=not opened.keys()), SystemClock(), name, role, project)
    shown = {
        "id": key.id,
        "token": key.token,
        "access_key_id": key.access_key_id,
        "access_key_secret": key.access_key_secret,
        "role": key.role.value,
        "project": key.project,
    }
    if as_json:
        click.echo(json.dumps(shown))
        return
    width = max(map(len, shown))
    for label, value in shown.items():
        click.echo(f"{label:<{width}}  {value or 'every project'}")
    click.echo("Keep the token and the secret now: they are not shown again.", err=True)


@command.command("list")
@click.option("--json", "as_json", is_flag=True, help="A JSON array.")
@_where
def list_(as_json: bool, data: Path | None, registry: str | None) -> None:
    """Show every key, revoked ones included."""
    with _open(data, registry) as (_, opened):
        from jobmeter.access.keys import list_keys

        keys = list_keys(opened)
    if as_json:
        click.echo(json.dumps([_object(key) for key in keys], indent=2))
    elif keys:
        _table(keys)
    else:
        click.echo("No keys yet. Make one: jobmeter key create --name NAME --role reader")


@command.command()
@click.argument("key_id", metavar="ID")
@_where
def revoke(key_id: str, data: Path | None, registry: str | None) -> None:
    """End a key: nothing it signs or names is accepted any more."""
    with _open(data, registry) as (_, opened):
        from jobmeter.access.keys import revoke_key

        revoke_key(opened, SystemClock(), key_id)
    click.echo(f"revoked {key_id}")


@command.command()
@click.option("--data", type=click.Path(file_okay=False, path_type=Path), help="Data folder [env: JOBMETER_DATA].")
def env(data: Path | None) -> None:
    """Print JOBMETER_SERVER and JOBMETER_KEY for a shell: eval "$(jobmeter key env)".

    They are those that every other verb uses: by default the server on the data folder, started where none runs, and
    the folder's administrator key.
    """
    from jobmeter.cli.local import connect

    transport = connect(None, None, data)
    click.echo(f"export JOBMETER_SERVER={shlex.quote(transport.server)}")
    click.echo(f"export JOBMETER_KEY={shlex.quote(transport.key)}")


@contextmanager
def _open(data: Path | None, registry: str | None) -> Iterator[tuple[Settings, "Registry"]]:
    settings = load(data=data, registry=registry)
    try:
        from jobmeter.registry.open import open_registry
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"keys need the server's packages ({error.name} is missing): install Jobmeter with its server extra"
        ) from error
    opened = open_registry(settings.registry_url, settings.retention)
    try:
        yield settings, opened
    finally:
        opened.close()


def _object(key: "KeyInfo") -> dict[str, object]:
    return {
        "id": key.id,
        "name": key.name,
        "role": key.role.value,
        "project": key.project,
        "access_key_id": key.access_key_id,
        "created": key.created,
        "revoked": key.revoked,
        "last_used": key.last_used,
    }


def _table(keys: Sequence["KeyInfo"]) -> None:
    from jobmeter.cli.listing import show_listing
    from jobmeter.cli.output import console

    columns = ("id", "name", "role", "project", "access key id", "created", "state", "last used")
    rows = [
        (
            key.id,
            key.name,
            key.role.value,
            key.project or "all",
            key.access_key_id,
            iso(key.created)[:10],
            "active" if key.revoked is None else "revoked",
            "never" if key.last_used is None else iso(key.last_used),
        )
        for key in keys
    ]
    show_listing(console(), columns, rows, spare=("last used", "created", "access key id", "project", "role"))
