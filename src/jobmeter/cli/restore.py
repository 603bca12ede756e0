"""``jobmeter restore``: restores a backup into an empty data folder."""

from pathlib import Path

import click

from jobmeter.cli.options import data_option, define_verb
from jobmeter.errors import ConfigurationError
from jobmeter.settings import load


@define_verb("jobmeter restore /backup/jobmeter", "jobmeter restore /backup/jobmeter --data /srv/jobmeter")
@click.argument("directory", type=click.Path(path_type=Path, exists=True, file_okay=False))
@data_option
@click.option("--store", metavar="DSN", help="The engine, if it is not in the data folder (JOBMETER_STORE).")
@click.option("--registry", metavar="URL", help="The registry, if it is not in the data folder (JOBMETER_REGISTRY).")
def command(directory: Path, **flags: object) -> None:
    """Restore the backup in DIRECTORY into an empty data folder that no server uses.

    The next `jobmeter serve` creates its own administrator's key; every key of the backup stays valid.
    """
    try:
        from jobmeter.server.backup import bring_back
    except ModuleNotFoundError as error:
        raise ConfigurationError(f"{error.name} is missing: install jobmeter[server] to restore a backup") from error
    settings = load(None, **flags)
    bring_back(settings, directory.absolute())
    click.echo(f"restored into {settings.data}")
