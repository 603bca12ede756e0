"""File of sinks: the sink of each ProjectName and LogStore. See docs/how-to/ship-logs.md."""

import os
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from jobmeter.errors import ConfigurationError, NotFoundError
from jobmeter.ship.guard import DestinationPolicy
from jobmeter.ship.registry import find_opener
from jobmeter.ship.sink import Origin, Sink, SinkSettings

ANY = "*"
_SECRETS = ("access_key_secret", "token")


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    allow: list[str] = []
    sink: list[SinkSettings] = []


class Sinks:
    """Sinks of a server, by project and logstore."""

    def __init__(self, rows: Sequence[SinkSettings], guard: DestinationPolicy) -> None:
        """Raise ConfigurationError for an invalid sink, or two sinks of a project and logstore."""
        self._rows: dict[tuple[str, str], SinkSettings] = {}
        self._guard = guard
        for row in rows:
            key = row.project, row.logstore
            if not all(key):
                raise ConfigurationError("a sink needs a project and a logstore")
            if key in self._rows:
                raise ConfigurationError(f"there are two sinks for {row.project}/{row.logstore}")
            self._rows[key] = row
            find_opener(row.kind)(row, guard, Origin("0", row.project, row.logstore)).close()

    def find(self, project: str, logstore: str) -> SinkSettings:
        """Return the sink of a project and logstore. Raises NotFoundError (kind ``sink``)."""
        found = self._rows.get((project, logstore)) or self._rows.get((project, ANY))
        if found is None:
            name = f"{project}/{logstore}"
            raise NotFoundError(f"the settings of this server have no sink for {name}", "sink", name)
        return found

    def open(self, origin: Origin) -> Sink:
        """Open the sink of a shipper. Raises as ``find``."""
        row = self.find(origin.project, origin.logstore)
        return find_opener(row.kind)(row, self._guard, origin)


def load(file: str, environment: Mapping[str, str] | None = None) -> Sinks:
    """Load the sinks from a TOML file; none without a file. Error messages of ConfigurationError contain no secrets."""
    if not file:
        return Sinks((), DestinationPolicy.from_settings(()))
    try:
        content = tomllib.loads(Path(file).read_text())
        found = msgspec.convert(content, _File)
    except OSError as error:
        raise ConfigurationError(f"the file of sinks {file} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"the file of sinks {file} is not TOML: {error}") from error
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"the file of sinks {file}: {error}") from error
    variables = os.environ if environment is None else environment
    return Sinks([_add_secrets(row, variables) for row in found.sink], DestinationPolicy.from_settings(found.allow))


def _add_secrets(row: SinkSettings, environment: Mapping[str, str]) -> SinkSettings:
    found: dict[str, Any] = {}
    for name in _SECRETS:
        variable = getattr(row, f"{name}_env")
        if variable:
            if not environment.get(variable):
                raise ConfigurationError(f"{name}_env: the variable {variable} is not set")
            found[name] = environment[variable]
    return msgspec.structs.replace(row, **found)
