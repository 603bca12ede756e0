"""Plug-ins of other installed packages, and errors in them."""

from collections.abc import Iterator

from jobmeter.collect.doctor.base import Check, SourceStatus
from jobmeter.plugins import PluginKind, load_plugins

_AREA = "plug-ins"


def check_plugins() -> Iterator[Check]:
    """Load the plug-ins of every kind; a broken one is a problem."""
    plugins = [plugin for kind in PluginKind for plugin in load_plugins(kind)]
    for one in plugins:
        text = one.problem if one.error else f"{one.name} of {one.package}"
        yield Check(_AREA, one.kind, SourceStatus.PROBLEM if one.error else SourceStatus.OK, text)
    if not plugins:
        yield Check(_AREA, "none", SourceStatus.ABSENT, "no installed package has a plug-in")
