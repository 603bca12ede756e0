"""Sink for Loki's push API in JSON: https://grafana.com/docs/loki/latest/reference/loki-http-api/#ingest-logs."""

from collections.abc import Sequence

import msgspec

from jobmeter.ship.guard import DestinationPolicy
from jobmeter.ship.http import PostSink
from jobmeter.ship.line import ShippedLine
from jobmeter.ship.sink import Origin, SinkSettings

_LABELS = ("resource_group", "project", "job", "replica", "node", "stream")
"""Labels of a stream, which identify its source. Other fields are structured metadata."""


class LokiSink(PostSink):
    """Posts to ``url``, by default with the path ``/loki/api/v1/push``; ``tenant`` is X-Scope-OrgID.

    Lines that Loki refuses as too old or too long are permanently refused.
    """

    path = "/loki/api/v1/push"
    content_type = "application/json"

    def __init__(self, settings: SinkSettings, guard: DestinationPolicy, origin: Origin) -> None:
        """Raise ConfigurationError for an invalid URL."""
        super().__init__(settings, guard, origin)
        if settings.tenant:
            self._headers["X-Scope-OrgID"] = settings.tenant

    def send(self, lines: Sequence[ShippedLine]) -> int:
        """Post the lines by stream. Returns the number of permanently refused lines."""
        streams: dict[tuple[tuple[str, str], ...], list[tuple[str, str, dict[str, str]]]] = {}
        for line in lines:
            labels = {name: line.attributes[name] for name in _LABELS if name in line.attributes}
            own = {"service_name": "jobmeter", **labels, **self._labels}
            rest = {name: value for name, value in line.attributes.items() if name not in _LABELS}
            if line.level:
                rest["level"] = line.level
            streams.setdefault(tuple(own.items()), []).append((str(line.line.time_ns), line.line.text, rest))
        body = {"streams": [{"stream": dict(labels), "values": values} for labels, values in streams.items()]}
        self.post(msgspec.json.encode(body))
        return 0
