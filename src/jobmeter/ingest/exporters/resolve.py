"""Resolves Prometheus labels to a series: its owner, its metric and its unit."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from jobmeter.errors import InvalidRequestError
from jobmeter.ingest.exporters import RULES
from jobmeter.ingest.rule import ANY, Bounds, RuleTarget, TranslationRule
from jobmeter.model.catalog import find
from jobmeter.model.series import Series, check_job_id, check_series, is_name
from jobmeter.model.special import is_special, make_plain, make_special

NAME = "__name__"
EXTERNAL = "external."
_JOB_LABELS = (
    "job_name",
    "training_kubeflow_org_job_name",
    "batch_kubernetes_io_job_name",
    "label_training_kubeflow_org_job_name",
    "label_batch_kubernetes_io_job_name",
    "label_job_name",
)
"""Labels of a pod that name its job, as relabelling and kube-state-metrics write them."""
_PODS = ("exported_pod", "pod", "pod_name", "kubernetes_pod_name")
"""Labels that name the pod.

If a target has a label of the same name, Prometheus renames the exporter's to ``exported_``.
"""
_NAMESPACES = ("exported_namespace", "namespace", "pod_namespace", "kubernetes_namespace")
_CONTAINERS = ("exported_container", "container", "container_name")
_ALIKE = {"namespace": _NAMESPACES, "container": _CONTAINERS}
_MACHINES = ("node", "kubernetes_io_hostname", "kubernetes_node", "Hostname")
_NODES = {  # an exporter that reports on other machines or pods has an ``instance`` that is not the machine
    RuleTarget.NODE: ("nodename", "kubernetes_node", "instance"),
    RuleTarget.POD: ("node", "kubernetes_io_hostname", "instance"),
    RuleTarget.REPORTED_POD: ("node",),
    RuleTarget.REPORTED_NODE: ("node",),
    RuleTarget.GPU: ("Hostname", "hostname", "node", "instance"),
    RuleTarget.FLINK: ("host", "instance"),
    RuleTarget.SLURM: ("nodename", "instance"),
    RuleTarget.SLURM_GPU: ("nodename", "instance"),
}
_GPUS = {RuleTarget.GPU, RuleTarget.SLURM_GPU}
_SLURM = {RuleTarget.SLURM, RuleTarget.SLURM_GPU}
"""Targets of rules for which every machine becomes a replica of the job."""
_OF_NODES = {RuleTarget.NODE, RuleTarget.REPORTED_NODE, RuleTarget.GPU, *_SLURM}
"""Subjects whose series are ambiguous without a machine."""
_WORKER = re.compile(
    r"(?P<job>.+)-(?P<role>master|worker|launcher|chief|ps|evaluator|scheduler|server|head)-(?P<index>\d+)"
)
_PORT = re.compile(r":\d{1,5}")
_SCRAPE = "scrape_"
_JOB = re.compile(f"(?:{_SCRAPE})*job")
"""Prometheus' label ``job``, which means something else in Jobmeter, and labels with its stored names."""


@dataclass(frozen=True, slots=True)
class ResolvedSeries:
    """A series, the factor of its values, and their bounds after the multiplication.

    A multiplied value outside of ``measured`` means that there is no measurement. ``sent`` is the series whose labels
    are the sent labels, if ``series`` is a metric of the catalogue; see ``read_sent``.
    """

    series: Series
    factor: float
    lowest: float
    highest: float
    sent: Series | None = None
    measured: Bounds = ANY


def resolve(labels: Sequence[tuple[str, str]], project: str) -> ResolvedSeries:
    """Resolve labels to a series. Raises InvalidRequestError naming the invalid field."""
    named = _name_labels(labels)
    name = named.get(NAME, "")
    if not name:
        raise InvalidRequestError("a series has no __name__", "metric")
    rule = next((rule for rule in RULES.get(name, ()) if rule.fits(_add_common_names(named))), None)
    mapped = None if rule is None else _map_series(rule, named, project)
    if mapped is None or (not mapped.node and rule is not None and rule.subject in _OF_NODES):
        rule, mapped = None, _make_external_series(name, named, project)
    if rule is None:
        return resolve_bounds(mapped, name)
    measured = rule.measured[0] * rule.factor, rule.measured[1] * rule.factor
    return replace(
        resolve_bounds(mapped, name, rule.factor), sent=_make_sent_series(name, named, mapped), measured=measured
    )


def resolve_special(labels: Sequence[tuple[str, str]], project: str) -> ResolvedSeries:
    """Resolve labels to the series of special values; see ``model.special``. Raises as ``resolve``."""
    series = check_series(make_special(resolve(labels, project).series))
    return ResolvedSeries(series, 1.0, -math.inf, math.inf)


def _make_sent_series(name: str, named: Mapping[str, str], mapped: Series) -> Series | None:
    """Return a series of special values with the exporter's name, all sent labels, and the owner of ``mapped``.

    Its samples are stale markers, so it has no values. None if the labels exceed the limits of a series.
    """
    labels = tuple(sorted((convert_to_stored_label(label), value) for label, value in named.items() if label != NAME))
    try:
        return check_series(make_special(replace(mapped, metric=EXTERNAL + name, labels=labels)))
    except InvalidRequestError:
        return None


def read_sent(series: Series) -> tuple[dict[str, str], ResolvedSeries] | None:
    """Return the sent labels that ``series`` holds, with the name, and the series that they resolve to.

    None if ``series`` holds no labels of another series; see ``ResolvedSeries.sent``.
    """
    plain = make_plain(series)
    if not is_special(series.metric) or (name := plain.metric.removeprefix(EXTERNAL)) not in RULES:
        return None
    sent = {NAME: name, **{convert_to_sent_label(label): value for label, value in series.labels}}
    try:
        found = resolve(list(sent.items()), series.project)
    except InvalidRequestError:
        return None
    return None if found.sent != series else (sent, found)


def convert_to_stored_label(name: str) -> str:
    """Return the name under which a sent label is stored."""
    return _SCRAPE + name if _JOB.fullmatch(name) else name


def convert_to_sent_label(name: str) -> str:
    """Return the name under which a stored label was sent."""
    return name.removeprefix(_SCRAPE) if _JOB.fullmatch(name) else name


def resolve_bounds(series: Series, name: str, factor: float = 1.0) -> ResolvedSeries:
    """Check a series and add the bounds of its metric, which the sender calls ``name``.

    Raises InvalidRequestError naming the invalid field.
    """
    metric = find(check_series(series).metric)
    if metric is None:
        raise InvalidRequestError(f"metric {name[:128]!r} is not a metric name", "metric")
    return ResolvedSeries(series, factor, *metric.bounds)


def _name_labels(labels: Sequence[tuple[str, str]]) -> dict[str, str]:
    named: dict[str, str] = {}
    for name, value in labels:
        if name in named:
            raise InvalidRequestError(f"label {name[:64]!r} appears twice", "labels")
        named[name] = value
    # An empty label counts as absent.
    return {name: value for name, value in named.items() if value}


def _add_common_names(named: Mapping[str, str]) -> Mapping[str, str]:
    """Add common names for labels that differ between set-ups."""
    found = {name: first for name, names in _ALIKE.items() if (first := _find_first(named, names))}
    return {**named, **found} if found else named


def _find_first(named: Mapping[str, str], names: Sequence[str]) -> str:
    return next((named[name] for name in names if name in named), "")


def _make_external_series(name: str, named: Mapping[str, str], project: str) -> Series:
    labels = {convert_to_stored_label(label): value for label, value in named.items() if label != NAME}
    subject = RuleTarget.FLINK if name.startswith("flink_") else RuleTarget.POD
    job, replica = _owner(subject, named)
    # The address of a pod's own target is that of the pod or of its reporter, never that of a machine.
    nodes = _MACHINES if job and subject is RuleTarget.POD else _NODES[RuleTarget.FLINK] if job else ("instance",)
    return Series(
        metric=EXTERNAL + name,
        project=project,
        node=_host(_find_first(named, nodes)),
        job=job,
        replica=replica if job else "",
        labels=tuple(sorted(labels.items())),
    )


def _map_series(rule: TranslationRule, named: Mapping[str, str], project: str) -> Series:
    alike = _add_common_names(named)
    labels = {ours: alike[theirs] for theirs, ours in rule.keep.items() if theirs in alike}
    job, replica = _owner(rule.subject, named)
    node = _host(_find_first(named, _NODES[rule.subject]))
    if not job and rule.subject in {RuleTarget.POD, RuleTarget.REPORTED_POD}:
        labels |= {"pod": pod} if (pod := _find_first(named, _PODS)) else {}
    return Series(
        metric=rule.metric,
        project=project,
        node=node,
        device=f"gpu{named.get('gpu', '')}" if rule.subject in _GPUS else "",
        job=job,
        replica=node if rule.subject in _SLURM else replica,
        labels=tuple(sorted((*labels.items(), *rule.fixed))),
    )


def _owner(subject: RuleTarget, named: Mapping[str, str]) -> tuple[str, str]:
    """Return the job and the replica; both are empty for series of no job."""
    if subject in {RuleTarget.NODE, RuleTarget.REPORTED_NODE}:
        return "", ""
    if subject is RuleTarget.FLINK:
        # By its id, as the collector of a job manager does: names are reused, and a job must keep one identity.
        job = next((name for key in ("job_id", "job_name") if _is_job(name := named.get(key, ""))), "")
        return job, _replica(named.get("tm_id", "") or "jobmanager")
    if subject in _SLURM:
        return named["slurmjobid"], ""
    pod = _find_first(named, _PODS)
    return find_owner(pod, _find_first(named, _JOB_LABELS)) if pod else ("", "")


def find_owner(pod: str, job: str = "") -> tuple[str, str]:
    """Return the job and the replica of a pod, from its name and the job that its labels name (empty: no label)."""
    match = _WORKER.fullmatch(pod)
    if match and job in {"", match["job"]}:
        return (match["job"], f"{match['role']}-{match['index']}") if _is_job(match["job"]) else ("", "")
    if not _is_job(job):
        return "", ""
    rest = pod.removeprefix(f"{job}-") if pod.startswith(f"{job}-") else pod
    index = re.match(r"(\d+)(?:-[a-z0-9]{5})?$", rest)  # a pod of an indexed Job: its number, and five letters
    return job, f"worker-{index[1]}" if index else _replica(rest)


def _is_job(name: str) -> bool:
    try:
        check_job_id(name)
    except InvalidRequestError:
        return False
    return True


def _replica(name: str) -> str:
    return name if is_name(name) else ""


def _host(instance: str) -> str:
    """Return the host of an address: ``10.0.0.1:9100``, ``[::1]:9100``, ``http://a.example:80/metrics``; else empty."""
    rest = instance.rpartition("://")[2].partition("/")[0]
    if rest.startswith("["):
        host = rest[1:].partition("]")[0]
    else:
        head, colon, port = rest.rpartition(":")
        host = head if colon and ":" not in head and _PORT.fullmatch(colon + port) else rest
    return _replica(host)
