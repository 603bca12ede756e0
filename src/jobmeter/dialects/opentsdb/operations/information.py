"""Information about the server: aggregators, filters, settings, version, counts."""

from collections.abc import Callable

from jobmeter import __version__
from jobmeter.access.call import Call
from jobmeter.dialects.base import Context, Operation, ServerQuestion, Steps, execute, only
from jobmeter.dialects.opentsdb.answers import answer
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


def aggregators(call: Call, context: Context) -> Steps:  # noqa: ARG001 - an operation's shape
    """Return the names of the aggregators."""
    return only(answer(sorted(AGGREGATORS)))


def filters(call: Call, context: Context) -> Steps:  # noqa: ARG001
    """Return the types of filters, with examples."""
    found = {name: {"examples": kind.examples, "description": kind.description} for name, kind in KINDS.items()}
    return only(answer(found))


def config(call: Call, context: Context) -> Steps:  # noqa: ARG001
    """Return settings that clients read."""
    return only(answer(_SETTINGS))


def version(call: Call, context: Context) -> Steps:  # noqa: ARG001
    """Return the version of the API, and that of Jobmeter as the repository's state."""
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
    return only(answer(found))


def stats(call: Call, context: Context) -> Steps:  # noqa: ARG001
    """Return counters of this server, as data points."""
    figures = yield from execute(ServerQuestion())
    seconds = context.now_ms // 1000
    return answer(
        [
            {"metric": name, "timestamp": seconds, "value": str(count), "tags": dict(tags)}
            for name, tags, count in figures
        ]
    )


def _operation(name: str, path: str, action: str, text: str, work: Callable[[Call, Context], Steps]) -> Operation:
    return Operation(
        name=name,
        action=action,
        method="GET, POST",
        path=path,
        answer=work,
        parameters=(),
        text=text,
    )


OPERATIONS = (
    _operation("aggregators", "/api/aggregators", "catalog:read", "The names of the aggregators, sorted.", aggregators),
    _operation(
        "filters",
        "/api/config/filters",
        "catalog:read",
        "The types of filters: `{<type>: {examples, description}}`.",
        filters,
    ),
    _operation("config", "/api/config", "catalog:read", "Settings that clients look at, as texts.", config),
    _operation("version", "/api/version", "catalog:read", f"The version of the API, {VERSION}.", version),
    _operation(
        "stats",
        "/api/stats",
        "server:read",
        "Counts of this server since its start: `[{metric, timestamp, value, tags}]`.",
        stats,
    ),
)
