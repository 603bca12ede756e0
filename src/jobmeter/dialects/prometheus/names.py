"""Series under the names and labels of Prometheus.

A metric of the catalogue is ``jobmeter_<name>_<unit>``, with ``_total`` for a counter. If a table of
``ingest.exporters`` maps an exporter's metric to ours, our metric also has the exporter's name, so that published
dashboards find it. A series from remote write keeps its name and its labels.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache

import msgspec

from jobmeter.errors import InvalidRequestError
from jobmeter.ingest.exporters import RULES
from jobmeter.ingest.exporters.resolve import EXTERNAL, convert_to_sent_label, read_sent, resolve
from jobmeter.ingest.rule import RuleTarget, TranslationRule
from jobmeter.model.catalog import CATALOG, Kind, Metric
from jobmeter.model.grouping import group_pairs
from jobmeter.model.series import Series
from jobmeter.promql.labels import Labels, get_value, make_labels
from jobmeter.promql.nodes import NAME

PREFIX = "jobmeter_"
APP = "app."
JOB = "job_id"
PROJECT = "project"
_UNITS = {
    "By": "bytes",
    "kBy": "kilobytes",
    "s": "seconds",
    "ms": "milliseconds",
    "ns": "nanoseconds",
    "W": "watts",
    "J": "joules",
    "Cel": "celsius",
    "Hz": "hertz",
    "1": "ratio",
}
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_:]")


class Exposed(msgspec.Struct, frozen=True):
    """Series under a name of Prometheus. Its values are the stored values divided by ``divisor``.

    ``special`` is the series of its special values (NaN, infinities, stale markers; see ``model.special``), if any.
    """

    labels: Labels
    series: Series
    divisor: float = 1.0
    special: Series | None = None


class SentNames(msgspec.Struct, frozen=True):
    """A mapped series, with the name and labels under which it was sent; ``holder`` is the series that stores them."""

    row: Exposed
    holder: Series

    @property
    def key(self) -> tuple[Series, str]:
        """The mapped series, and the name."""
        return self.row.series, get_value(self.row.labels, NAME)


def _replace_invalid(text: str) -> str:
    return _NOT_IN_NAMES.sub("_", text)


@cache
def make_own_name(name: str) -> str:
    """Return Jobmeter's own name of a metric in Prometheus' form."""
    metric = CATALOG.get(name)
    if metric is None:
        return PREFIX + _replace_invalid(name)
    unit = _UNITS.get(metric.unit, "")
    words = [PREFIX + _replace_invalid(name)]
    if unit and not words[0].endswith(f"_{unit}"):
        words.append(unit)
    if metric.kind is Kind.COUNTER:
        words.append("total")
    return "_".join(words)


@cache
def _catalogue() -> Mapping[str, Metric]:
    return {make_own_name(name): metric for name, metric in CATALOG.items()}


def find_metric(name: str) -> Metric | None:
    """Return the catalogue metric that has this name, its own or an exporter's; None for an unknown name."""
    metric = _catalogue().get(name)
    if metric is not None or name not in RULES:
        return metric
    return CATALOG.get(RULES[name][0].metric)


def find_stored_names(name: str, programs: Iterable[str] = ()) -> frozenset[str]:
    """Return the stored metrics that may be answered under this name.

    ``programs`` are the stored names of programs' metrics, which cannot be derived from their Prometheus form.
    """
    found = {EXTERNAL + name}
    metric = _catalogue().get(name)
    if metric is not None:
        found.add(metric.name)
    found |= find_mapped(EXTERNAL + name)
    found |= {one for one in programs if make_own_name(one) == name}
    return frozenset(found)


def find_mapped(metric: str) -> set[str]:
    """Return the catalogue metrics to which some series of a metric of an exporter are mapped, by its stored name."""
    return {rule.metric for rule in RULES.get(metric.removeprefix(EXTERNAL), ())}


def list_sent_names(series: Iterable[Series]) -> Iterator[SentNames]:
    """Yield the sent names and labels that some of the series store."""
    for one in series:
        if (found := read_sent(one)) is not None:
            labels, mapped = found
            yield SentNames(Exposed(make_labels(labels.items()), mapped.series, mapped.factor), one)


def expose(series: Series, name: str = "", special: Series | None = None) -> Iterator[Exposed]:
    """Yield a series under ``name``, or only under its own name if ``name`` is empty; ``special`` as in ``Exposed``.

    The labels under an exporter's name are derived from the series.
    """
    if series.metric.startswith(EXTERNAL):
        yield Exposed(_label_external(series), series, special=special)
        return
    own = make_own_name(series.metric)
    if name in {"", own}:
        yield Exposed(make_labels([(NAME, own), *_identity(series).items()]), series, special=special)
    for rule in RULES.get(name, ()):
        labels = _invert_rule(rule, series)
        if labels is not None:
            yield Exposed(make_labels([(NAME, name), *labels.items()]), series, rule.factor, special)


def list_names(metric: str) -> list[str]:
    """Return every name under which a stored metric is answered."""
    if metric.startswith(EXTERNAL):
        return [metric.removeprefix(EXTERNAL)]
    return [make_own_name(metric), *_exporters().get(metric, ())]


def list_labels(label: str) -> set[str]:
    """Return every name under which answers have a stored label."""
    return {_replace_invalid(label), _replace_invalid(convert_to_sent_label(label))}


@cache
def _exporters() -> Mapping[str, tuple[str, ...]]:
    found = group_pairs((metric, name) for name, rules in RULES.items() for metric in {rule.metric for rule in rules})
    return {metric: tuple(names) for metric, names in found.items()}


def _identity(series: Series) -> dict[str, str]:
    found = {_replace_invalid(name): value for name, value in series.labels}
    identity = {
        JOB: series.job,
        "replica": series.replica,
        "attempt": str(series.attempt) if series.attempt else "",
        "node": series.node,
        "device": series.device,
        "cluster": series.cluster,
        PROJECT: series.project,
    }
    for name, value in identity.items():
        if value:
            if name in found:
                found[f"exported_{name}"] = found[name]
            found[name] = value
    return found


def _label_external(series: Series) -> Labels:
    """Return the labels of a series of another system, as sent if the sent labels identify the stored series."""
    name = series.metric.removeprefix(EXTERNAL)
    sent = {convert_to_sent_label(label): value for label, value in series.labels}
    try:
        whole = resolve([(NAME, name), *sent.items()], series.project).series == series
    except InvalidRequestError:
        whole = False
    labels = sent if whole else _identity(series)
    return make_labels([(NAME, name), *labels.items()])


def _invert_rule(rule: TranslationRule, series: Series) -> dict[str, str] | None:
    """Return the labels with which an exporter would send our series; None if the rule does not apply to it."""
    own = dict(series.labels)
    if rule.metric != series.metric or any(own.pop(label, None) != value for label, value in rule.fixed):
        return None
    names = {ours: theirs for theirs, ours in rule.keep.items()}
    labels = {names.get(label, _replace_invalid(label)): value for label, value in own.items()}
    owner = _owner(rule.subject, series)
    for label, pattern in rule.only.items():
        if label in labels or (label in owner and (rule.subject is RuleTarget.GPU or pattern.fullmatch(owner[label]))):
            continue
        # A rule of one part of their metric names it: the pattern is the text itself.
        if not pattern.fullmatch(pattern.pattern):
            return None
        labels[label] = pattern.pattern
    identity = _identity(replace(series, labels=()))
    identity.update(labels | owner)
    if series.node:
        identity["instance"] = series.node
    if series.job and series.replica and rule.subject in {RuleTarget.POD, RuleTarget.REPORTED_POD}:
        identity.setdefault("pod", f"{series.job}-{series.replica}")
    return identity


def _owner(subject: RuleTarget, series: Series) -> dict[str, str]:
    """Return the labels by which an exporter names the GPU or the Slurm job."""
    gpu = series.device.removeprefix("gpu")
    if subject is RuleTarget.GPU:
        return {"gpu": gpu, "device": f"nvidia{gpu}", "Hostname": series.node}
    if subject is RuleTarget.SLURM_GPU:
        return {"gpu": gpu, "slurmjobid": series.job}
    return {"slurmjobid": series.job} if subject is RuleTarget.SLURM else {}
