"""Information about the server: aggregators, filters, settings, version, counts."""

from jobmeter import __version__
from jobmeter.dialects.base import ServerQuestion, Steps, answer_with, ask
from jobmeter.dialects.base.request import Request
from jobmeter.dialects.opentsdb.answers import answer
from jobmeter.dialects.opentsdb.requests import operation
from jobmeter.query.tsdb.filters import KINDS
from jobmeter.query.tsdb.functions import AGGREGATORS

VERSION = "2.4.1"
"""The version of OpenTSDB's API."""
_SETTINGS = {
    "tsd.core.auto_create_metrics": "true",
    "tsd.core.timezone": "UTC",
    "tsd.http.query.allow_delete": "false",
    "tsd.http.request.enable_chunked": "true",
    "tsd.mode": "rw",
    "tsd.query.skip_unresolved_tagvs": "true",
}


@operation("GET, POST /api/aggregators", "catalog:read", name="aggregators")
class AggregatorsRequest(Request, frozen=True):
    """The names of the aggregators, sorted."""

    def _steps(self) -> Steps:
        return answer_with(answer(sorted(AGGREGATORS)))


@operation("GET, POST /api/config/filters", "catalog:read", name="filters")
class FilterTypesRequest(Request, frozen=True):
    """The types of filters: `{<type>: {examples, description}}`."""

    def _steps(self) -> Steps:
        found = {name: {"examples": kind.examples, "description": kind.description} for name, kind in KINDS.items()}
        return answer_with(answer(found))


@operation("GET, POST /api/config", "catalog:read", name="config")
class ConfigRequest(Request, frozen=True):
    """Settings that clients read, as texts."""

    def _steps(self) -> Steps:
        return answer_with(answer(_SETTINGS))


@operation("GET, POST /api/version", "catalog:read", name="version")
class VersionRequest(Request, frozen=True):
    """The version of the API, 2.4.1; Jobmeter's is the repository's revision."""

    def _steps(self) -> Steps:
        found = {
            "short_revision": __version__,
            "repo": "jobmeter",
            "host": "",
            "version": VERSION,
            "full_revision": __version__,
            "repo_status": "MINT",
            "user": "",
            "branch": "",
            "timestamp": "0",
        }
        return answer_with(answer(found))


@operation("GET, POST /api/stats", "server:read", name="stats")
class StatsRequest(Request, frozen=True):
    """Counts of this server since its start: `[{metric, timestamp, value, tags}]`."""

    def _steps(self) -> Steps:
        figures = yield from ask(ServerQuestion())
        seconds = self.context.now_ms // 1000
        return answer(
            [
                {"metric": name, "timestamp": seconds, "value": str(count), "tags": dict(tags)}
                for name, tags, count in figures
            ]
        )
