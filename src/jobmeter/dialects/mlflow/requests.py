"""Requests as the client sends them: the query of a GET, the JSON body of a POST.

Unknown fields are ignored, as at MLflow's server. Whole numbers may be text: the JSON of protocol buffers has them so.
"""

from typing import Any, TypeVar

import msgspec

from jobmeter.access.call import Call
from jobmeter.errors import InvalidRequestError

R = TypeVar("R")


class KeyValue(msgspec.Struct, frozen=True):
    """Parameter or tag."""

    key: str
    value: str = ""


class MetricValue(msgspec.Struct, frozen=True):
    """Value of a metric. ``timestamp`` in epoch milliseconds; ``value`` is text if JSON has no such number."""

    key: str
    value: float | str
    timestamp: int
    step: int = 0


class NewExperiment(msgspec.Struct, frozen=True):
    """Request of ``experiments/create``."""

    name: str
    artifact_location: str = ""
    tags: list[KeyValue] = []


class ExperimentByName(msgspec.Struct, frozen=True):
    """Request of ``experiments/get-by-name``."""

    experiment_name: str


class ExperimentById(msgspec.Struct, frozen=True):
    """Request of ``experiments/get``."""

    experiment_id: str


class NewRun(msgspec.Struct, frozen=True):
    """Request of ``runs/create``."""

    experiment_id: str = "0"
    user_id: str = ""
    run_name: str = ""
    start_time: int | None = None
    tags: list[KeyValue] = []


class RunById(msgspec.Struct, frozen=True, kw_only=True):
    """Request that names a run; ``run_uuid`` is the field of old clients."""

    run_id: str = ""
    run_uuid: str = ""

    @property
    def run(self) -> str:
        """The id of the run. Raises InvalidRequestError if it is absent."""
        found = self.run_id or self.run_uuid
        if not found:
            raise InvalidRequestError("Missing value for required parameter 'run_id'.", "run_id")
        return found


class RunUpdate(RunById, frozen=True, kw_only=True):
    """Request of ``runs/update``."""

    status: str = ""
    end_time: int | None = None
    run_name: str = ""


class LoggedBatch(RunById, frozen=True, kw_only=True):
    """Request of ``runs/log-batch``."""

    metrics: list[MetricValue] = []
    params: list[KeyValue] = []
    tags: list[KeyValue] = []


class LoggedMetric(RunById, frozen=True, kw_only=True):
    """Request of ``runs/log-metric``."""

    key: str
    value: float | str
    timestamp: int
    step: int = 0


class LoggedText(RunById, frozen=True, kw_only=True):
    """Request of ``runs/log-parameter`` and ``runs/set-tag``."""

    key: str
    value: str = ""


class History(RunById, frozen=True, kw_only=True):
    """Request of ``metrics/get-history``."""

    metric_key: str
    max_results: int | None = None
    page_token: str = ""


class Search(msgspec.Struct, frozen=True, kw_only=True):
    """Request of ``runs/search``."""

    experiment_ids: list[str] = []
    filter: str = ""
    run_view_type: str = "ACTIVE_ONLY"
    max_results: int = 1_000
    order_by: list[str] = []
    page_token: str = ""


def read(call: Call, kind: type[R]) -> R:
    """Read a request. Raises InvalidRequestError that names the wrong field."""
    try:
        given: Any = dict(call.parameters) if call.method == "GET" else msgspec.json.decode(call.body or b"{}")
        if isinstance(given, dict):
            given = {name: value for name, value in given.items() if value is not None}
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidRequestError(f"Invalid request: {error}", "body") from error
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError("The request is not a JSON object.", "body") from error


def offset_of(token: str) -> int:
    """Return the position that a page token names. Raises InvalidRequestError for a token not from an answer."""
    if not token:
        return 0
    if not (token.isascii() and token.isdigit() and len(token) < 10):
        raise InvalidRequestError("Invalid page token: take it from next_page_token of an answer.", "page_token")
    return int(token)
