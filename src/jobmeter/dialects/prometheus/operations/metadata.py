"""Series, labels, metadata and status: https://prometheus.io/docs/prometheus/latest/querying/api/#querying-metadata."""

from collections.abc import Generator
from functools import cache
from typing import Any

from jobmeter import __version__
from jobmeter.access.call import Call
from jobmeter.dialects.base import Context, Operation, Parameter, Steps, execute, only
from jobmeter.dialects.prometheus import answers
from jobmeter.dialects.prometheus.arguments import Arguments
from jobmeter.dialects.prometheus.facts import FACTS
from jobmeter.dialects.prometheus.names import JOB, PROJECT, metric_of, names_of
from jobmeter.dialects.prometheus.select import MOST_NAMES, find
from jobmeter.model.catalog import METRICS, Kind
from jobmeter.model.question import Question
from jobmeter.model.series import NamePart
from jobmeter.promql.labels import value_of
from jobmeter.promql.nodes import NAME, Match, Matcher
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
"""The version of Prometheus whose API this is: Grafana chooses its features by it."""


def series(call: Call, context: Context) -> Steps:
    """Answer the label sets of the series that match."""
    arguments = Arguments(call, context.now_ms)
    alternatives = arguments.selectors(required=True)
    limit = arguments.limit()
    found = yield from find(alternatives, arguments.time("start", 0), context.project)
    rows = [dict(one.labels) for one in found]
    if limit and len(rows) > limit:
        return answers.success(rows[:limit], warnings=[answers.TRUNCATED])
    return answers.success(rows)


def labels(call: Call, context: Context) -> Steps:
    """Answer the names of labels."""
    arguments = Arguments(call, context.now_ms)
    alternatives, limit = arguments.selectors(required=False), arguments.limit()
    if alternatives:
        found = yield from find(alternatives, arguments.time("start", 0), context.project)
        return answers.names((name for one in found for name, _ in one.labels), limit)
    names = {NAME}
    for name, part in _PARTS.items():
        some = yield from execute(NamesQuestion(part=part, limit=1))
        names |= {name} if some else set()
    stored = yield from execute(NamesQuestion(part=NamePart.LABEL, limit=MOST_NAMES))
    return answers.names((*names, *(one.replace(".", "_") for one in stored)), limit)


def label_values(call: Call, context: Context) -> Steps:
    """Answer the values of a label."""
    arguments = Arguments(call, context.now_ms)
    alternatives, limit = arguments.selectors(required=False), arguments.limit()
    label = context.path["label"]
    if not alternatives:
        values = yield from _stored_values(label)
        if values is not None:
            return answers.names(values, limit)
        alternatives = ((Matcher(label, Match.NOT_EQUAL, ""),),)
    found = yield from find(alternatives, arguments.time("start", 0), context.project)
    return answers.names((value for one in found if (value := value_of(one.labels, label))), limit)


def _stored_values(label: str) -> Generator[Question[Any], Any, list[str] | None]:
    """Return the values of a label that is a field of our series; None for any other one."""
    if label == NAME:
        stored = yield from execute(NamesQuestion(part=NamePart.METRIC, limit=MOST_NAMES))
        return [name for one in stored for name in names_of(one)]
    part = _PARTS.get(label)
    if part is None:
        return None
    found = yield from execute(NamesQuestion(part=part, limit=MOST_NAMES))
    return found


@cache
def _catalogue() -> dict[str, list[dict[str, str]]]:
    found = {}
    for metric in METRICS:
        kind = "counter" if metric.kind is Kind.COUNTER else "gauge"
        for name in names_of(metric.name):
            found[name] = [{"type": kind, "help": metric.text, "unit": ""}]
    return found | {name: [{"type": "gauge", "help": text, "unit": ""}] for name, text in FACTS.items()}


def metadata(call: Call, context: Context) -> Steps:
    """Answer type and meaning of metrics."""
    arguments = Arguments(call, context.now_ms)
    name, limit = arguments.get("metric"), arguments.limit()
    if name:
        rows = {name: _catalogue()[name]} if name in FACTS or metric_of(name) is not None else {}
    else:
        rows = dict(list(_catalogue().items())[: limit or None])
    return only(answers.success(rows))


def build(call: Call, context: Context) -> Steps:  # noqa: ARG001 - as of every operation
    """Answer the version of the API, and Jobmeter's own as the revision."""
    return only(
        answers.success(
            {
                "version": _VERSION,
                "revision": f"jobmeter-{__version__}",
                "branch": "",
                "buildUser": "",
                "buildDate": "",
                "goVersion": "",
            }
        )
    )


def exemplars(call: Call, context: Context) -> Steps:
    """Answer no exemplars: traces are stored by themselves."""
    Arguments(call, context.now_ms).required("query")
    return only(answers.success([]))


_MATCH = Parameter("match[]", "query", "A selector; several are alternatives.")
_START = Parameter("start", "query", "Series that were written last before this time are left out.")
_LIMIT = Parameter("limit", "query", "Most entries of the answer; 0, the default, is all.")
_LABEL = Parameter("label", "path", "Name of a label.", required=True)
_NAME = Parameter("metric", "query", "Name of one metric. Default: all of them.")
_BOTH, _GET = "GET, POST", "GET"

OPERATIONS = tuple(
    Operation(
        name=name,
        action="metrics:read",
        method=method,
        path=f"/prometheus/api/v1/{path}",
        answer=answer,
        parameters=parameters,
        text=text,
    )
    for name, method, path, answer, parameters, text in (
        ("series", _BOTH, "series", series, (_MATCH, _START, _LIMIT), "Gives the series that match."),
        ("labels", _BOTH, "labels", labels, (_MATCH, _START, _LIMIT), "Gives the names of labels."),
        (
            "label_values",
            _GET,
            "label/{label}/values",
            label_values,
            (_LABEL, _MATCH, _START, _LIMIT),
            "Gives the values of a label.",
        ),
        ("metadata", _GET, "metadata", metadata, (_NAME, _LIMIT), "Gives type and meaning of metrics."),
        ("buildinfo", _GET, "status/buildinfo", build, (), "Gives the version of the API."),
        (
            "query_exemplars",
            _BOTH,
            "query_exemplars",
            exemplars,
            (Parameter("query", "query", "A query of PromQL.", required=True),),
            "Gives no exemplars: traces have an API of their own.",
        ),
    )
)
