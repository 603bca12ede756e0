"""The only file that names kinds of sinks."""

from typing import TYPE_CHECKING

from jobmeter.errors import ConfigurationError

if TYPE_CHECKING:
    from jobmeter.ship.sink import Opener

KINDS = ("file", "loki", "otlp", "s3", "sls")
"""The kinds of sinks."""


def opener(kind: str) -> "Opener":
    """The opener of sinks of that kind. Raises ConfigurationError for an unknown kind."""
    from jobmeter.ship.sinks.file import FileSink
    from jobmeter.ship.sinks.loki import LokiSink
    from jobmeter.ship.sinks.otlp import OtlpSink
    from jobmeter.ship.sinks.s3 import S3Sink
    from jobmeter.ship.sinks.sls import SlsSink

    kinds: dict[str, Opener] = {
        "file": FileSink,
        "loki": LokiSink,
        "otlp": OtlpSink,
        "s3": S3Sink,
        "sls": SlsSink,
    }
    if kind not in kinds:
        raise ConfigurationError(f"kind {kind!r} is not one of {', '.join(KINDS)}")
    return kinds[kind]
