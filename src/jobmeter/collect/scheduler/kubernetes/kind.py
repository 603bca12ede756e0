"""Kubernetes as a kind of scheduler."""

from collections.abc import Mapping
from pathlib import Path

from jobmeter.collect.scheduler.base import Option, Scheduler, SchedulerKind
from jobmeter.collect.scheduler.kubernetes.api import HttpApi
from jobmeter.collect.scheduler.kubernetes.informer import Informer
from jobmeter.collect.scheduler.kubernetes.kinds import KINDS
from jobmeter.collect.scheduler.kubernetes.objects import PodObject, Workload
from jobmeter.collect.scheduler.kubernetes.source import KubernetesScheduler
from jobmeter.errors import ConfigurationError

_PROJECTS = ("key", "namespace")


def _make(cluster: str, options: Mapping[str, str | None], state: Path | None) -> Scheduler:
    projects = options.get("projects") or "key"
    if projects not in _PROJECTS:
        raise ConfigurationError(f"--projects {projects!r} is not one of {', '.join(_PROJECTS)}")
    api = HttpApi(options.get("kubeconfig"), options.get("context"))
    names = (name.strip() for name in (options.get("namespaces") or "").split(","))
    return KubernetesScheduler(
        cluster,
        Informer(api, "api/v1/pods", PodObject, optional=False),
        [(kind, Informer(api, kind.path, Workload, optional=True)) for kind in KINDS],
        state=state,
        by_namespace=projects == "namespace",
        namespaces=frozenset(filter(None, names)),
        user_label=options.get("user_label") or "",
    )


KIND = SchedulerKind(
    "Jobs of a Kubernetes cluster: its API server is watched, once for the whole cluster.",
    _make,
    (
        Option(
            "kubeconfig",
            "FILE",
            "Configuration of the API server (default: the pod's own account, else KUBECONFIG or ~/.kube/config).",
        ),
        Option("context", "NAME", "Context in that file (default: its current one)."),
        Option("namespaces", "NAME,...", "Only these namespaces (default: all)."),
        Option("projects", "key|namespace", "Project of jobs: the key's (default), or one per namespace."),
        Option("user-label", "NAME", "Label or annotation of a job with its user."),
    ),
)
