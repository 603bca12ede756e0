"""Kinds of sinks. Only this module names them."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from jobmeter.errors import ConfigurationError, JobmeterError
from jobmeter.plugins import Plugin, PluginKind, load_plugins, select_working
from jobmeter.ship.guard import DestinationPolicy
from jobmeter.ship.sink import Origin, Sink, SinkSettings

KINDS = ("file", "loki", "otlp", "s3", "sls")
"""Kinds of sinks of this package."""
Opener = Callable[[SinkSettings, DestinationPolicy, Origin], Sink]
"""Function that opens a sink from its settings, the allowed addresses, and the origin of its lines."""


def find_opener(kind: str) -> Opener:
    """Return the opener of a kind of sinks. Raises ConfigurationError for an unknown kind."""
    from jobmeter.ship.sinks.file import FileSink
    from jobmeter.ship.sinks.loki import LokiSink
    from jobmeter.ship.sinks.otlp import OtlpSink
    from jobmeter.ship.sinks.s3 import S3Sink
    from jobmeter.ship.sinks.sls import SlsSink

    kinds: dict[str, Opener] = {"file": FileSink, "loki": LokiSink, "otlp": OtlpSink, "s3": S3Sink, "sls": SlsSink}
    if kind not in kinds:
        plugins = load_plugins(PluginKind.SINKS, kinds)
        broken = next((one for one in plugins if one.error and one.name == kind), None)
        if broken is not None:
            raise ConfigurationError(broken.problem)
        kinds |= {one.name: partial(_open, one) for one in select_working(plugins)}
    if kind not in kinds:
        raise ConfigurationError(f"kind {kind!r} is not one of {', '.join(kinds)}")
    return kinds[kind]


def _open(plugin: Plugin, settings: SinkSettings, policy: DestinationPolicy, origin: Origin) -> Sink:
    """Open a sink of a plug-in. Raises ConfigurationError if that fails in any way."""
    try:
        sink: Sink = plugin.part(settings, policy, origin)
    except JobmeterError:
        raise
    except Exception as error:
        raise ConfigurationError(
            replace(plugin, part=None, error=f"{type(error).__name__}: {error}").problem
        ) from error
    return sink
