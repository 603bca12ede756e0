"""``jobmeter key``: create, list and revoke keys in the registry directly, with or without a running server.

``jobmeter key env`` prints the key of the data folder for a shell.
"""

import json
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from jobmeter.cli.options import data_option, define_group
from jobmeter.errors import ConfigurationError, NotFoundError
from jobmeter.model.event import COMMAND_LINE
from jobmeter.model.time import SystemClock
from jobmeter.settings import Settings, load

if TYPE_CHECKING:
    from jobmeter.access.keys import KeyInfo
    from jobmeter.registry.base import Registry

_MOST_BYTES = 1024 * 1024
ROLES = ("admin", "writer", "reader")

_Command = Callable[..., Any]


def _add_registry_options(function: _Command) -> _Command:
    """Add the options that select the registry."""
    registry = click.option("--registry", metavar="URL", help="The registry's URL (JOBMETER_REGISTRY).")
    return data_option(registry(function))


@define_group("jobmeter key create --name ci --role writer", "jobmeter key list")
def command() -> None:
    """Create, show, list and revoke keys, with or without a running server."""


@command.define(
    "jobmeter key create --name ci --role writer --project vision",
    groups={"Key": ("name", "role", "policies", "project"), "Connection": ("data", "registry")},
)
@click.option("--name", metavar="NAME", required=True, help="Name of the key in listings and logs.")
@click.option(
    "--role", type=click.Choice(ROLES), help="Upper limit of the key's permissions; required without --policy."
)
@click.option(
    "--policy",
    "policies",
    multiple=True,
    metavar="NAME|FILE",
    help="Policy of the key: the name of a built-in one, or a JSON file; may be repeated.",
)
@click.option(
    "--project",
    metavar="NAME",
    help="Project to which the key is restricted (default: it reads every project and writes to `default`).",
)
@click.option("--json", "as_json", is_flag=True, help="One line of JSON.")
@_add_registry_options
def create(
    name: str,
    role: str | None,
    policies: tuple[str, ...],
    project: str | None,
    as_json: bool,
    data: Path | None,
    registry: str | None,
) -> None:
    """Create a key and show its secrets, which are never shown again.

    With policies, the key may do only what a policy allows and its role permits; without a role the policies alone
    decide.
    """
    if role is None and not policies:
        raise click.UsageError("a key needs a --role, a --policy, or both")
    with _open(data, registry) as (settings, opened):
        from jobmeter.access.keys import create_key
        from jobmeter.access.policy import encode_policies
        from jobmeter.access.vault import Vault

        text = encode_policies(map(_policy, policies))
        vault = Vault.load(settings, make=not opened.keys.list_keys())
        key = create_key(opened, vault, SystemClock(), name, role or "admin", project, text, actor=COMMAND_LINE)
    shown = msgspec.to_builtins(key)
    if as_json:
        click.echo(json.dumps(shown))
        return
    width = max(map(len, shown))
    for label, value in shown.items():
        click.echo(f"{label:<{width}}  {value or 'every project'}")
    click.echo("Keep the token and the secret now: they are not shown again.", err=True)


@command.define("jobmeter key list --json", name="list")
@click.option("--json", "as_json", is_flag=True, help="A JSON array.")
@_add_registry_options
def list_(as_json: bool, data: Path | None, registry: str | None) -> None:
    """List all keys, including revoked ones."""
    with _open(data, registry) as (_, opened):
        from jobmeter.access.keys import list_keys

        keys = list_keys(opened)
    if as_json:
        click.echo(json.dumps(msgspec.to_builtins(keys), indent=2))
    elif keys:
        _table(keys)
    else:
        click.echo("no keys yet: jobmeter key create --name NAME --role reader")


@command.define("jobmeter key policies key-1f2e3d4c5b --policy policy.json")
@click.argument("key_id", metavar="ID")
@click.option(
    "--policy",
    "policies",
    multiple=True,
    required=True,
    metavar="NAME|FILE",
    help="New policy of the key: the name of a built-in one, or a JSON file; may be repeated.",
)
@_add_registry_options
def policies(key_id: str, policies: tuple[str, ...], data: Path | None, registry: str | None) -> None:
    """Replace the policies of a key. They take effect at its next call, on a running server within a second."""
    with _open(data, registry) as (_, opened):
        from jobmeter.access.keys import change_policies
        from jobmeter.access.policy import encode_policies

        text = encode_policies(map(_policy, policies))
        changed = change_policies(opened, SystemClock(), key_id, text, actor=COMMAND_LINE)
    click.echo(f"{changed.id} has the policies {', '.join(changed.policies)}")


def _policy(given: str) -> tuple[str, bytes | None]:
    """Return a policy by name, or from a file if the text is a path."""
    path = Path(given)
    if not path.is_file():
        return given, None
    try:
        with path.open("rb") as file:
            return path.stem, file.read(_MOST_BYTES)
    except OSError as error:
        raise ConfigurationError(f"the policy {given} cannot be read: {error.strerror}") from error


@command.define("jobmeter key show key-1f2e3d4c5b")
@click.argument("key_id", metavar="ID")
@click.option("--json", "as_json", is_flag=True, help="An object.")
@_add_registry_options
def show(key_id: str, as_json: bool, data: Path | None, registry: str | None) -> None:
    """Show a key and the documents of its policies, without secrets."""
    with _open(data, registry) as (_, opened):
        from jobmeter.access.keys import list_keys, list_policies

        found = next((key for key in list_keys(opened) if key.id == key_id), None)
        if found is None:
            raise NotFoundError(f"there is no key {key_id[:64]!r}: `jobmeter key list` lists all", "key", key_id[:64])
        policies = [{"name": name, "document": document} for name, document in list_policies(opened, key_id)]
    if as_json:
        click.echo(json.dumps({**msgspec.to_builtins(found), "policies": policies}, indent=2))
        return
    for label, value in msgspec.to_builtins(found).items():
        if label not in {"created", "revoked", "last_used", "policies"}:
            click.echo(f"{label:<13}  {value or 'every project'}")
    click.echo(f"{'state':<13}  {'active' if found.revoked is None else 'revoked'}")
    for policy in policies:
        click.echo(f"{'policy':<13}  {policy['name']}")
        click.echo(json.dumps(policy["document"], indent=2))


@command.define("jobmeter key revoke key-1f2e3d4c5b")
@click.argument("key_id", metavar="ID")
@_add_registry_options
def revoke(key_id: str, data: Path | None, registry: str | None) -> None:
    """Revoke a key: its token and signatures are no longer accepted."""
    with _open(data, registry) as (_, opened):
        from jobmeter.access.keys import revoke_key

        revoke_key(opened, SystemClock(), key_id, actor=COMMAND_LINE)
    click.echo(f"revoked {key_id}")


@command.define('eval "$(jobmeter key env)"')
@data_option
def env(data: Path | None) -> None:
    """Print JOBMETER_SERVER and JOBMETER_KEY for a shell: eval "$(jobmeter key env)".

    Every other verb uses the same values: by default the server on the data folder, which is started if it does not
    run, and the folder's administrator key.
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
            f"keys need the server extra ({error.name} is missing): pip install 'jobmeter[server]'"
        ) from error
    opened = open_registry(settings.registry_url, settings.retention)
    try:
        yield settings, opened
    finally:
        opened.close()


def _table(keys: Sequence["KeyInfo"]) -> None:
    from jobmeter.cli.output import build_console, format_time, show_listing

    columns = ("id", "name", "role", "project", "access key id", "created", "state", "last used")
    rows = [
        (
            key.id,
            key.name,
            key.role.value,
            key.project or "all",
            key.access_key_id,
            format_time(key.created)[:10],
            "active" if key.revoked is None else "revoked",
            "never" if key.last_used is None else format_time(key.last_used),
        )
        for key in keys
    ]
    show_listing(build_console(), columns, rows, spare=("last used", "created", "access key id", "project", "role"))
