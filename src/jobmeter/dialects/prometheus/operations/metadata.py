"""Series, labels, metadata and status: https://prometheus.io/docs/prometheus/latest/querying/api/#querying-metadata."""

from collections.abc import Generator, Sequence
from functools import cache
from typing import Annotated, Any

from msgspec import field

from jobmeter import __version__
from jobmeter.dialects.base import Steps, answer_with, ask
from jobmeter.dialects.base.request import Request
from jobmeter.dialects.prometheus import answers
from jobmeter.dialects.prometheus.facts import FACTS
from jobmeter.dialects.prometheus.names import JOB, PROJECT, find_metric, list_labels, list_names
from jobmeter.dialects.prometheus.requests import API, TIME, Alternatives, QueryRequest, Selectors, operation
from jobmeter.dialects.prometheus.select import MOST_NAMES, Row, find
from jobmeter.model.catalog import METRICS, Kind
from jobmeter.model.question import Question
from jobmeter.model.series import NamePart
from jobmeter.promql.labels import get_value
from jobmeter.promql.nodes import NAME, Matcher, VectorMatch
from jobmeter.query.series import NamesQuestion

_PARTS = {
    JOB: NamePart.JOB,
    PROJECT: NamePart.PROJECT,
    "cluster": NamePart.CLUSTER,
    "device": NamePart.DEVICE,
    "node": NamePart.NODE,
    "replica": NamePart.REPLICA,
}
"""Labels that are fields of our series."""
_VERSION = "3.5.0"
"""The version of Prometheus whose API this is: Grafana selects its features by it."""


class NamesRequest(Request, frozen=True, kw_only=True):
    """A request for names of labels, or values of a label, of all series or of matching series."""

    match: Annotated[Alternatives, "A selector; several are alternatives.", Selectors()] = field(
        default=(), name="match[]"
    )
    start: Annotated[int, "Series that were written last before this time are left out.", TIME] = 0
    limit: Annotated[int, "Most entries of the answer; 0 is all."] = 0

    def find(self, alternatives: Alternatives) -> Generator[Question[Any], Any, Sequence[Row]]:
        """Return the matching series that have samples since the start."""
        return find(alternatives, self.start, self.context.project)


@operation(f"GET, POST {API}/series", "metrics:read", name="series")
class SeriesRequest(NamesRequest, frozen=True, kw_only=True):
    """Returns the matching series."""

    match: Annotated[Alternatives, "A selector; several are alternatives.", Selectors()] = field(name="match[]")

    def _steps(self) -> Steps:
        found = yield from self.find(self.match)
        rows = [dict(one.labels) for one in found]
        if self.limit and len(rows) > self.limit:
            return answers.make_success(rows[: self.limit], warnings=[answers.TRUNCATED])
        return answers.make_success(rows)


@operation(f"GET, POST {API}/labels", "metrics:read", name="labels")
class LabelsRequest(NamesRequest, frozen=True, kw_only=True):
    """Returns the names of labels."""

    def _steps(self) -> Steps:
        if self.match:
            found = yield from self.find(self.match)
            return answers.make_names((name for one in found for name, _ in one.labels), self.limit)
        names = {NAME}
        for name, part in _PARTS.items():
            some = yield from ask(NamesQuestion(part=part, limit=1, special=True))
            names |= {name} if some else set()
        stored = yield from ask(NamesQuestion(part=NamePart.LABEL, limit=MOST_NAMES, special=True))
        return answers.make_names(names.union(*map(list_labels, stored)), self.limit)


@operation(f"GET {API}/label/{{label}}/values", "metrics:read", name="label_values")
class LabelValuesRequest(NamesRequest, frozen=True, kw_only=True):
    """Returns the values of a label."""

    label: Annotated[str, "Name of a label."]

    def _steps(self) -> Steps:
        alternatives, label = self.match, self.label
        if not alternatives:
            values = yield from _list_stored_values(label)
            if values is not None:
                return answers.make_names(values, self.limit)
            alternatives = ((Matcher(label, VectorMatch.NOT_EQUAL, ""),),)
        found = yield from self.find(alternatives)
        return answers.make_names((value for one in found if (value := get_value(one.labels, label))), self.limit)


def _list_stored_values(label: str) -> Generator[Question[Any], Any, list[str] | None]:
    """Return the values of a label that is a field of our series; None for any other label."""
    if label == NAME:
        stored = yield from ask(NamesQuestion(part=NamePart.METRIC, limit=MOST_NAMES, special=True))
        return [name for one in stored for name in list_names(one)]
    part = _PARTS.get(label)
    if part is None:
        return None
    found = yield from ask(NamesQuestion(part=part, limit=MOST_NAMES, special=True))
    return found


@cache
def _catalogue() -> dict[str, list[dict[str, str]]]:
    found = {}
    for metric in METRICS:
        kind = "counter" if metric.kind is Kind.COUNTER else "gauge"
        for name in list_names(metric.name):
            found[name] = [{"type": kind, "help": metric.text, "unit": ""}]
    return found | {name: [{"type": "gauge", "help": text, "unit": ""}] for name, text in FACTS.items()}


@operation(f"GET {API}/metadata", "metrics:read", name="metadata")
class MetadataRequest(Request, frozen=True, kw_only=True):
    """Returns the type and meaning of metrics."""

    metric: Annotated[str, "Name of one metric. Default: all of them."] = ""
    limit: Annotated[int, "Most entries of the answer; 0 is all."] = 0

    def _steps(self) -> Steps:
        known = self.metric in FACTS or find_metric(self.metric) is not None
        if self.metric:
            rows = {self.metric: _catalogue()[self.metric]} if known else {}
        else:
            rows = dict(list(_catalogue().items())[: self.limit or None])
        return answer_with(answers.make_success(rows))


@operation(f"GET {API}/status/buildinfo", "metrics:read", name="buildinfo")
class BuildInfoRequest(Request, frozen=True):
    """Returns the version of the API, with Jobmeter's version as the revision."""

    def _steps(self) -> Steps:
        empty = dict.fromkeys(("branch", "buildUser", "buildDate", "goVersion"), "")
        return answer_with(answers.make_success({"version": _VERSION, "revision": f"jobmeter-{__version__}", **empty}))


@operation(f"GET, POST {API}/query_exemplars", "metrics:read", name="query_exemplars")
class ExemplarsRequest(QueryRequest, frozen=True):
    """Returns an empty list: Jobmeter stores traces, not exemplars."""

    def _steps(self) -> Steps:
        return answer_with(answers.make_success([]))
