"""Plug-ins: parts of other installed packages, found by entry points.

A package names each part in an entry point, whose name is the part's name. The registry of each kind loads its plug-ins
after its own parts. A broken plug-in is logged once and left out.
"""

import logging
import sys
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

_log = logging.getLogger("jobmeter.plugins")
_MOST_CHARACTERS = 500


class PluginKind(StrEnum):
    """Kinds of plug-ins. The group of its entry points is ``jobmeter.KIND``."""

    RULES = "rules"
    DIALECTS = "dialects"
    VERBS = "verbs"
    SINKS = "sinks"
    COLLECTORS = "collectors"
    VENDORS = "vendors"


_VENDOR = ("name", "title", "open", "metrics", "prefix", "variables", "is_present")
_DIALECT = ("name", "title", "schemes", "operations", "gaps", "find_operation", "render_error")
_FORMS: Mapping[PluginKind, tuple[str, tuple[str, ...]]] = MappingProxyType(
    {
        PluginKind.RULES: ("a jobmeter.diagnose.rule.Rule", ("name", "title", "find", "metrics")),
        PluginKind.DIALECTS: ("a jobmeter.dialects.base.Dialect", _DIALECT),
        PluginKind.VERBS: ("a click.Command", ("invoke", "get_short_help_str")),
        PluginKind.SINKS: ("a function of settings, allowed addresses and origin", ("__call__",)),
        PluginKind.COLLECTORS: ("a function of the agent's place", ("__call__",)),
        PluginKind.VENDORS: ("a jobmeter.collect.accelerators.vendor.Vendor", _VENDOR),
    }
)
"""Form of each kind in words, and attributes that its parts have."""
_NAMED = frozenset({PluginKind.RULES, PluginKind.DIALECTS, PluginKind.VENDORS})
"""Kinds whose parts state their names themselves."""


@dataclass(frozen=True, slots=True)
class Plugin:
    """A part of an installed package. Exactly one of ``part`` and ``error`` is set."""

    kind: PluginKind
    name: str
    package: str
    """Name and version of the package."""
    part: Any = None
    error: str = ""

    @property
    def problem(self) -> str:
        """Sentence about a plug-in that is left out."""
        return f"the plug-in {self.name} ({self.kind}) of {self.package} is not loaded: {self.error}"


def load_plugins(kind: PluginKind, taken: Container[str] = ()) -> list[Plugin]:
    """Load the plug-ins of a kind, sorted by package and name, with the broken ones.

    A plug-in whose name is ``taken``, or that an earlier plug-in has, is broken. Logs each broken plug-in once.
    """
    found: list[Plugin] = []
    for entry in _entries().get(kind, ()):
        plugin = _load_plugin(kind, entry, _package(entry))
        if not plugin.error and (plugin.name in taken or plugin.name in {one.name for one in found if not one.error}):
            plugin = replace(plugin, part=None, error="another part has the same name; rename it")
        if plugin.error:
            _warn(plugin.problem)
        found.append(plugin)
    return found


def select_working(plugins: Iterable[Plugin]) -> list[Plugin]:
    """Return the plug-ins that are not broken."""
    return [plugin for plugin in plugins if not plugin.error]


def report_failure(plugin: Plugin, error: str) -> None:
    """Log once that a loaded plug-in is left out."""
    _warn(replace(plugin, part=None, error=error[:_MOST_CHARACTERS]).problem)


@cache
def _warn(problem: str) -> None:
    _log.warning(problem)


@cache
def _entries() -> "Mapping[str, list[EntryPoint]]":
    """Return the entry points of each kind."""
    if not any(map(_may_have_plugins, sys.path)):
        return {}
    # Importing it takes longer than everything else here.
    from importlib.metadata import entry_points  # noqa: PLC0415

    try:
        installed = entry_points()
    except Exception as error:  # noqa: BLE001 - a damaged package of somebody else must not stop the program
        _warn(f"no plug-in is loaded: the entry points of an installed package are damaged: {_text(error)}")
        return {}
    found = {kind: list(installed.select(group=f"jobmeter.{kind}")) for kind in PluginKind}
    return {kind: sorted(entries, key=lambda one: (_package(one), one.name)) for kind, entries in found.items()}


def _may_have_plugins(location: str) -> bool:
    """Return False if no package of a folder of modules names an entry point of a plug-in."""
    folder = Path(location)
    try:
        if folder.is_file():
            return True  # an archive
        return any(b"[jobmeter." in path.read_bytes() for path in folder.glob("*-info/entry_points.txt"))
    except OSError:
        return True


@cache
def _load_plugin(kind: PluginKind, entry: "EntryPoint", package: str) -> Plugin:
    # The package is an argument because equal entry points of two packages are one key of the cache otherwise.
    plugin = Plugin(kind, entry.name, package)
    try:
        part = entry.load()
        error = _mistake(kind, entry, part)
    except (Exception, SystemExit) as raised:  # noqa: BLE001 - a module of somebody else may raise anything
        return replace(plugin, error=_text(raised))
    return replace(plugin, error=error) if error else replace(plugin, part=part)


def _mistake(kind: PluginKind, entry: "EntryPoint", part: Any) -> str:  # noqa: ANN401 - any object
    form, attributes = _FORMS[kind]
    if not all(hasattr(part, name) for name in attributes):
        return f"{entry.value} is not {form}"
    if kind in _NAMED and part.name != entry.name:
        return f"{entry.value} has the name {part.name!r}; use it in both places"
    return ""


def _package(entry: "EntryPoint") -> str:
    return "an unknown package" if entry.dist is None else f"{entry.dist.name} {entry.dist.version}"


def _text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:_MOST_CHARACTERS]
